"""What to do with an operator: from the table of formulas, the free rows and its schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from measurements.formulas import FORMULAS, FREE, Cost, Formula, Free
from measurements.formulas.cost import Binding
from measurements.formulas.pointwise import POINTWISE, by_rule
from measurements.records import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to do with an operator, worked out once for each.

    cost: from arguments, keywords and context to a Cost; None where a row of FREE or the schema says:
    nothing.
    moves: whether its bytes count (a view moves none).
    asks: whether the cost asks for more than arguments.
    lengths: places of arguments whose values it asks for.
    region: +1 where the operator opens a record function, -1 where it closes one.
    updates: whether it belongs to the update wherever it runs (unscaling of gradients).
    fixed: whether equal arguments give equal outputs, sizes and dtypes that is.
    """

    name: str
    cost: Callable[[Sequence[object], Mapping[str, object], Mapping[str, object]], Cost] | None
    moves: bool = True
    asks: bool = False
    lengths: tuple[int, ...] = ()
    region: int = 0
    updates: bool = False
    fixed: bool = False
    operator: Any = None


LENGTHS = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k")
"""Arguments that hold the ends of packed sequences: small integer tensors whose values decide the count."""


def base_name(name: str) -> str:
    """The operator without the underscore of an in-place variant."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


PRIMITIVES = {"convert_element_type": "_to_copy"}
"""Names of torch's primitive operators that are spelled otherwise in ATen."""


def _in_aten(name: str) -> str:
    """The ATen name of a primitive operator ("prims.add"), in which forward-mode derivatives are written."""
    namespace, _, rest = name.partition(".")
    return f"aten.{PRIMITIVES.get(rest, rest)}" if namespace == "prims" else name


def _tagged_pointwise(func: Any) -> bool:
    """Whether PyTorch tags the operator, or the functional variant of an in-place one, as pointwise."""
    if torch.Tag.pointwise in func.tags:
        return True
    namespace, _, name = _in_aten(func._schema.name.replace("::", ".")).partition(".")
    base = getattr(getattr(torch.ops, namespace), base_name(name), None)
    return base is not None and any(torch.Tag.pointwise in getattr(base, o).tags for o in base.overloads())


def _is_view(func: Any) -> bool:
    """Whether the schema says so; a composite (reshape, to) may copy as well, its parts will tell."""
    if func.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd):
        return False
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for argument in func._schema.arguments
    )


_BY_DATA = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def _is_fixed(func: Any) -> bool:
    """Whether equal arguments give outputs of equal sizes and dtypes.

    Not where the elements decide, nor where only global settings do (a factory's dtype), nor outside of ATen.
    """
    tensors = any("Tensor" in str(argument.type) for argument in func._schema.arguments)
    return func.namespace == "aten" and tensors and _BY_DATA.isdisjoint(func.tags)


def plan_for(func: Any, own: Mapping[str, Formula]) -> Plan | None:
    """The plan of an operator; None where nothing says what it costs."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        return _higher_order_plan(func, own)
    plan = _plan_for(func, own)
    return plan and replace(plan, operator=func, fixed=_is_fixed(func))


def _plan_for(func: Any, own: Mapping[str, Formula]) -> Plan | None:
    name = str(func.overloadpacket)
    base = base_name(_in_aten(name))
    formula = own.get(str(func)) or own.get(name) or own.get(base) or FORMULAS.get(name) or FORMULAS.get(base)
    schema = [(argument.name, argument.default_value) for argument in func._schema.arguments]
    if formula is not None:
        binding = Binding(formula, name, schema)
        lengths = tuple(place for place, (argument, _) in enumerate(schema) if argument in LENGTHS)
        asks = bool(lengths) or not {"needs", "node"}.isdisjoint(binding.context)
        return Plan(name, binding, asks=asks, lengths=lengths, updates=name.startswith("aten._amp_"))
    free = FREE.get(name) or FREE.get(base)
    if free is not None:
        region = {"_record_function_enter_new": 1, "_record_function_enter": 1, "_record_function_exit": -1}
        moves = free not in (Free.VIEW, Free.INTEGER)
        return Plan(name, None, moves, region=region.get(base.partition(".")[2], 0), updates="._amp_" in name)
    single = base.replace("_foreach_", "", 1) if "._foreach_" in base else None
    if single is not None:
        return _foreach_plan(func, name, single)
    if _tagged_pointwise(func):
        return Plan(name, lambda arguments, keywords, context: by_rule(tuple(arguments), _first(context)))
    if _is_view(func):
        return Plan(name, None, moves=False)
    return None


def _higher_order_plan(func: Any, own: Mapping[str, Formula]) -> Plan | None:
    """The plan of an operator that takes functions (cond, flex_attention): the user's formula, if any."""
    formula = own.get(str(func))
    if formula is None:
        return None
    names = [(name, None) for name in inspect.signature(func.__call__).parameters]
    return Plan(str(func), Binding(formula, str(func), names), operator=func)


def _first(context: Mapping[str, object]) -> Shape | None:
    outs = context["outs"]
    return outs[0] if isinstance(outs, tuple) and outs else None


def _foreach_plan(func: Any, name: str, single: str) -> Plan:
    """The plan of an operation on lists of tensors: the plain operation, once for each place in the lists."""
    # a list `scalars` holds for each tensor what the plain operation calls `value`
    spelled = {"scalars": "value"} if single in ("aten.addcmul", "aten.addcdiv") else {}
    schema = [(spelled.get(a.name, a.name), a.default_value) for a in func._schema.arguments]
    names = [argument for argument, _ in schema]
    formula = FORMULAS.get(single)
    binding = Binding(formula, name, schema) if formula is not None else None

    def cost(
        arguments: Sequence[object], keywords: Mapping[str, object], context: Mapping[str, object]
    ) -> Cost:
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        lists = [x for x in given.values() if isinstance(x, tuple) and not isinstance(x, Shape)]
        if not lists:
            return Cost()
        first = lists[0]
        outs = context["outs"] if isinstance(context["outs"], tuple) and context["outs"] else first
        # an optimizer's step counters: scalars, all of them plus one scalar tensor, exactly once
        counters = single == "aten.add" and context["phase"] == "update" and given.get("alpha", 1) == 1
        if counters and isinstance(given.get("other"), Shape) and all(x == () for x in first):
            return Cost()
        total = Cost()
        for place in range(len(first)):
            here = {key: _at(value, place, len(first)) for key, value in given.items()}
            out = outs[place] if len(outs) == len(first) else first[place]
            if binding is None:
                total += by_rule(tuple(here.values()), out)
            else:
                total += binding((), here, {**context, "out": out, "outs": (out,)})
        return total

    return Plan(name, cost)


def _at(value: object, place: int, length: int) -> object:
    """One place of a list over all tensors; what is given once for all stays."""
    listed = isinstance(value, tuple) and not isinstance(value, Shape) and len(value) == length
    return value[place] if listed else value  # type: ignore[index]


BY_ROWS = frozenset(
    f"aten.{name}"
    for name in ("mul", "linear", "linear_backward", "native_layer_norm", "native_layer_norm_backward")
)
"""Formulas that hold for rows one below the other, however many belong to each sample."""


def by_rows(name: str) -> bool:
    """Whether the formula may see the rows of a nested tensor as one matrix; else it sees each sample."""
    formula = FORMULAS.get(base_name(name))
    return formula is None or base_name(name).partition(".")[2] in POINTWISE or name in BY_ROWS


def own_formulas(formulas: Mapping[Any, Formula]) -> dict[str, Formula]:
    """A user's formulas by the operator's name.

    A key is an operator (torch.ops.ns.name, with or without overload) or its name ("ns::name", "ns.name").
    Raises: TypeError for another key, or a formula that is not callable.
    """
    own: dict[str, Formula] = {}
    for op, formula in formulas.items():
        if isinstance(op, str):
            name = op.replace("::", ".")
        elif isinstance(
            op, torch._ops.OpOverload | torch._ops.OpOverloadPacket | torch._ops.HigherOrderOperator
        ):
            name = str(op)
        else:
            raise TypeError(
                f"formulas: {op!r} is no operator; give torch.ops.NAMESPACE.NAME or 'NAMESPACE::NAME'"
            )
        if not callable(formula):
            raise TypeError(f"formulas: what stands for {name} is {formula!r}, not a function of shapes")
        own[name] = formula
    return own
