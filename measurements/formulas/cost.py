"""What a formula returns, and how a formula is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from measurements.records import Shape


class Cost(NamedTuple):
    """FLOP of one operation.

    contraction: 2 for each multiply-add of a product of two operands (8 where they are complex).
    other: element-wise work, one for each add, multiply, compare, exp, … on one element.
    again, other_again: the same two for work that the operation does a second time, in none of the above.
    """

    contraction: int = 0
    other: int = 0
    again: int = 0
    other_again: int = 0

    def __add__(self, more: tuple[object, ...]) -> Cost:
        """Both costs, field by field."""
        return Cost(*(mine + theirs for mine, theirs in zip(self, more, strict=True)))  # type: ignore[operator]


NOTHING = Cost()

Formula = Callable[..., "Cost | int"]
"""A function of an operation's shapes and plain arguments.

Its parameters name arguments of the operator's schema; a name that the schema does not have takes the
argument at its place (so `x` in front is the first argument, whatever the schema calls it), or its own
default. Tensors arrive as Shapes. Besides:
out, out_shape     the first tensor that came back, as a Shape
outs               all of them
needs              for each input of the autograd node that runs the operation, whether it needs a gradient;
                   () outside of backward
node               the name of that node ("MvBackward0"), "" outside of backward
phase              "forward", "backward" or "update"
*arguments         all further arguments
A plain integer that comes back is contraction FLOP; `elementwise(n)` makes other work of it.
Raises: ValueError where shapes do not say what the operation costs, or contradict each other.
"""

CONTEXT = ("out", "out_shape", "outs", "needs", "node", "phase")


def contraction(flop: int) -> Cost:
    """FLOP of a product of two operands."""
    return Cost(contraction=flop)


def elementwise(flop: int) -> Cost:
    """FLOP of element-wise work."""
    return Cost(other=flop)


def floating(x: Shape, flop: int) -> Cost:
    """FLOP of work on elements of x: twice as much where they are complex, none where they are integers."""
    return elementwise(max(flop, 0) * (2 if x.is_complex else 1)) if x.is_float else NOTHING


def multiply_add(*operands: Shape | None) -> int:
    """FLOP of one multiply-add.

    2, or 8 where the operands are complex (4 products, 2 sums, and 2 additions).
    """
    return 8 if any(x is not None and x.is_complex for x in operands) else 2


@cache
def _parameters(formula: Formula) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(formula).parameters.values())


class Binding:
    """The way from an operator's schema to a formula's parameters, worked out once for each operator.

    schema: the schema's arguments in order, each with its default.
    Raises: ValueError where the formula has a parameter that nothing can fill.
    """

    def __init__(self, formula: Formula, op: str, schema: Sequence[tuple[str, object]]) -> None:
        """Every parameter of the formula, matched with an argument of the schema or with the context."""
        self.formula = formula
        self.defaults = dict(schema)
        self.names = tuple(self.defaults)
        self.context: list[str] = []
        self.positional: list[str] = []
        self.named: list[tuple[str, str]] = []
        parameters = _parameters(formula)
        spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        for place, parameter in enumerate(parameters):
            name = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.positional += self.names[place:]
            elif name in CONTEXT:
                self.context.append(name)
            elif name in self.defaults or (place < len(self.names) and parameter.default is parameter.empty):
                source = name if name in self.defaults else self.names[place]
                if spread or parameter.kind is parameter.POSITIONAL_ONLY:
                    self.positional.append(source)
                else:
                    self.named.append((name, source))
            elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                raise ValueError(
                    f"formula of {op}: parameter {name!r} is neither an argument of the operator "
                    f"({', '.join(self.names)}) nor one of {', '.join(CONTEXT)}"
                )

    def __call__(
        self, arguments: Sequence[object], keywords: Mapping[str, object], context: Mapping[str, object]
    ) -> Cost:
        """FLOP of one call, its tensors given as Shapes."""
        given = {**self.defaults, **dict(zip(self.names, arguments, strict=False)), **keywords}
        cost = self.formula(
            *(given[source] for source in self.positional),
            **{parameter: given[source] for parameter, source in self.named},
            **{parameter: context[parameter] for parameter in self.context},
        )
        parts = cost if isinstance(cost, Cost) else (cost,)
        if not all(isinstance(part, int) and part >= 0 for part in parts):
            raise ValueError(
                f"it gives {cost!r}; let it give an integer of 0 or more, or a Cost of such integers"
            )
        return Cost(*parts)
