"""The dispatch mode that writes down every operation: its phase, its module, what it costs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from measurements.counters.dispatch.modules import Modules, Names
from measurements.counters.dispatch.moved import moved
from measurements.counters.dispatch.plans import Plan, by_rows, plan_for
from measurements.counters.dispatch.regions import (
    Regions,
    again,
    called_from_update_code,
    in_sharding_propagation,
)
from measurements.counters.dispatch.tensors import LISTS, NESTED, key_of, plain, samples_of, values_of
from measurements.formulas import Cost, Formula
from measurements.records import MeasurementError, OpRecord, Phase, Shape, shapes_in


class UnknownOp(MeasurementError):  # noqa: N818 - a published name
    """An operation without a formula."""


class UnknownOpWarning(UserWarning):
    """An operation without a formula was counted as 0; said once for each."""


_graph_task = torch._C._current_graph_task_id
_current_node = torch._C._current_autograd_node
_next_node = torch._C._autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled
_NO_NUMBER = 2**63
"""Nodes that accumulate gradients carry 2^64 - 1 in place of a number of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operation on tensors of these shapes, wherever it runs: all of an OpRecord but the module."""

    phase: Phase
    op: str
    arguments: tuple[object, ...]
    outputs: tuple[Shape, ...]
    cost: Cost
    read: int
    written: int


class Here(threading.local):
    """Where a thread is: in which modules, and in which code that is no module."""

    def __init__(self, names: Names) -> None:
        """In none."""
        self.modules = Modules(names)
        self.regions = Regions()

    def enter(self, module: nn.Module, arguments: Any) -> None:
        """A module starts its forward, on the thread that calls this (a global forward pre-hook)."""
        self.modules.enter(module)

    def leave(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """A module ends its forward, or fails in it (a global forward hook)."""
        self.modules.leave(module)

    def enter_step(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An optimizer starts its step (a global pre-hook)."""
        return self.regions.enter_step(arguments, keywords)


Place = tuple[Call, str, bool]
"""What ran, in which module, and whether it was done again."""


def record_of(place: Place) -> OpRecord:
    """The record of one operation that ran."""
    call, module, repeats = place
    contraction, other, again, other_again = call.cost
    flop, recomputed = contraction + other, again + other_again
    if repeats:
        flop, contraction, recomputed, again = 0, 0, flop + recomputed, contraction + again
    return OpRecord(
        *(call.phase, call.op, module, call.arguments, call.outputs),
        *(flop, contraction, recomputed, again, call.read, call.written),
    )


class WorkedOut:
    """What operators, and operations on shapes that have been seen, cost by one set of formulas."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.plans: dict[int, Plan | None] = {}  # by the operator's id
        self.calls: dict[Any, Call] = {}
        self.kept: list[Any] = []  # the operators, so that no other gets their ids


SHARED = WorkedOut()
"""By the suite's own formulas: it holds for all blocks."""

MOST_CALLS = 20_000
"""Above this a new block starts afresh."""

PLAIN_TYPES = ((torch.Tensor,), (torch.nn.Parameter,), (torch.Tensor, torch.Tensor))
"""Types that are no wrappers, the usual ones of an operation on a parameter."""

CONTROL_FLOW = ("cond", "while_loop", "scan", "associative_scan", "map_impl")
"""Operators that do nothing but call the functions that they are given."""


def _in_backward(node: Any, modules: Modules) -> tuple[str, bool]:
    """The module that made this node, and whether its forward is being done again."""
    number = _NO_NUMBER if node is None else node._sequence_nr()
    owner = modules.owner_of(number) if number < _NO_NUMBER else ""
    repeats = again.depth > 0 or "Checkpoint" in type(node).__name__
    if repeats and modules.current:
        owner = modules.current
    if _grad_enabled():  # gradients of gradients, or a forward done again: this too makes nodes
        modules.note(owner, _next_node() - 1)
    return owner, repeats


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode that keeps a log of what ran where.

    While the step runs it does as little as it can: what was logged becomes records when somebody reads them.
    """

    supports_higher_order_operators = True

    def __init__(self, on_unknown: str, own: Mapping[str, Formula]) -> None:
        """A mode that has seen nothing."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.log: list[Place] = []
        self.places: dict[Place, Place] = {}  # equal ones are kept once
        self.on_unknown = on_unknown
        self.own = own
        self.unknown: dict[str, None] = {}
        self.worked_out = WorkedOut() if own else SHARED
        if len(self.worked_out.calls) > MOST_CALLS:
            self.worked_out.calls.clear()
        self.plans, self.calls = self.worked_out.plans, self.worked_out.calls
        self.wrapped = False  # whether a wrapper was met
        self.here = Here(Names())

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs the operation, and logs it."""
        kwargs = kwargs or {}
        try:
            plan = self.plans[id(func)]
        except KeyError:
            plan = self.plans[id(func)] = self._plan(func)
        if types and types not in PLAIN_TYPES and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            self.wrapped = True
            return NotImplemented  # a wrapper (nested, quantized, …) unwraps by itself; its parts are counted
        if self.wrapped and in_sharding_propagation():
            return func(*args, **kwargs)  # a distributed tensor asks for sizes: nothing is computed
        if plan is None:
            return self._without_plan(func, args, kwargs)
        here = self.here
        modules, regions = here.modules, here.regions
        module = modules.current
        phase = Phase.FORWARD
        repeats, node = False, None
        task = _graph_task()
        if regions.step == task or plan.updates:  # not a backward inside a step: a task of its own
            phase = Phase.UPDATE
        elif task != -1:
            phase = Phase.BACKWARD
            node = _current_node()
            module, repeats = _in_backward(node, modules)
        elif not module and called_from_update_code():
            phase = Phase.UPDATE
        elif module != modules.owners[-1]:  # the first operation after a backward
            modules.note(module, _next_node() - 1)
        out = func(*args, **kwargs)
        if plan.region:
            regions.change(plan.region, args)
        key: tuple[Any, ...] = (plan, phase, key_of(args))
        if kwargs:
            key += (tuple(kwargs), key_of(kwargs.values()))
        if not plan.fixed:
            key += key_of(out if type(out) in LISTS else (out,))
        if plan.asks and (node is not None or plan.lengths):
            key += self._asked(plan, node, args)
        call = self.calls.get(key)
        if call is None:
            call = self._call(plan, key, phase, node, args, kwargs, out)
        place = (call, module, repeats)
        self.log.append(self.places.setdefault(place, place))
        return out

    def _plan(self, func: Any) -> Plan | None:
        self.worked_out.kept.append(func)  # its id is a key
        known = isinstance(func, torch._ops.OpOverload | torch._ops.HigherOrderOperator)
        return plan_for(func, self.own) if known else None

    def _without_plan(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite operation as its parts; any other one is unknown."""
        if isinstance(func, torch._ops.OpOverload):
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if isinstance(func, torch._ops.HigherOrderOperator) and str(func) in CONTROL_FLOW:
            return func(*map(self._watched, args), **kwargs)
        name = str(getattr(func, "overloadpacket", func))
        shapes = [tuple(shape) for shape in shapes_in([plain(x) for x in (*args, *kwargs.values())])]
        self._unknown(name, f"no formula for {name} on {shapes}")
        return func(*args, **kwargs)

    def _watched(self, function: Any) -> Any:
        """A function that an operator calls, counted while it runs; everything else as it is."""
        if not callable(function):
            return function

        def watched(*arguments: Any) -> Any:
            with self:
                return function(*arguments)

        return watched

    def _unknown(self, name: str, sentence: str) -> None:
        hint = (
            f"give it one: counting(formulas={{'{name}': function of its shapes}}), "
            "or a row in measurements/formulas"
        )
        if self.on_unknown == "raise":
            raise UnknownOp(f"{sentence}; {hint}")
        if name not in self.unknown:
            self.unknown[name] = None
            warnings.warn(f"{sentence}, counted as 0; {hint}", UnknownOpWarning, stacklevel=4)

    def _asked(self, plan: Plan, node: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a formula asks besides arguments: the node's name and needs, and the values of lengths."""
        name = "" if node is None else node.name()
        needs = () if node is None else tuple([edge[0] is not None for edge in node.next_functions])
        lengths = tuple([values_of(args[place]) if place < len(args) else None for place in plan.lengths])
        return name, needs, lengths

    def _call(
        self,
        plan: Plan,
        key: tuple[Any, ...],
        phase: Phase,
        node: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> Call:
        """What one call is and costs; kept for all that are alike, except where a formula failed."""
        arguments = [plain(value) for value in args]
        keywords = {word: plain(value) for word, value in kwargs.items()}
        outs = tuple(shapes_in([plain(out)]))
        cost: Cost | None = Cost()
        if plan.cost is not None:
            name, needs, lengths = self._asked(plan, node, args)
            for place, values in zip(plan.lengths, lengths, strict=True):
                if values is not None:
                    arguments[place] = values
            asked = {"needs": needs, "node": name, "phase": phase}
            samples = [(arguments, keywords, outs)]
            if any(shape.layout == NESTED for shape in shapes_in(arguments)) and not by_rows(plan.name):
                samples = [
                    (
                        list(values[0]),
                        dict(zip(kwargs, values[1], strict=True)),
                        tuple(shapes_in([values[2]])),
                    )
                    for values in samples_of((args, tuple(kwargs.values()), out))
                ]
            cost = self._cost(plan, samples, asked)
        read = written = 0
        if plan.moves:
            read, written = moved(plan.operator, plan.name, args, kwargs, out)
        words = tuple(keywords.items())
        call = Call(phase, plan.name, (*arguments, *words), outs, cost or Cost(), read, written)
        if cost is not None:
            self.calls[key] = call
        return call

    def _cost(
        self,
        plan: Plan,
        samples: Sequence[tuple[Sequence[object], Mapping[str, object], tuple[Shape, ...]]],
        asked: Mapping[str, object],
    ) -> Cost | None:
        """The sum over what the formula is called with, once but for nested tensors; None where it fails."""
        assert plan.cost is not None
        total = Cost()
        for arguments, keywords, outs in samples:
            first = outs[0] if outs else None
            context = {"out": first, "out_shape": first, "outs": outs, **asked}
            try:
                total += plan.cost(arguments, keywords, context)
            except Exception as error:  # a user's formula may raise anything
                shapes = [tuple(shape) for shape in shapes_in(arguments)]
                self._unknown(plan.name, f"the formula for {plan.name} fails on {shapes}: {error}")
                return None
        return total
