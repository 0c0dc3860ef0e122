"""The suite's own counter: every ATen operation that really runs, forward, backward and update, on any device.

A TorchDispatchMode sees each operation below autograd. How it knows where an operation belongs:
phase      backward: inside autograd's graph task, on whichever thread; update: inside an optimizer's step (which announces
           itself by a record function "Optimizer.step#…"), torch's gradient clipping and unscaling; else forward. A closure that
           the optimizer calls keeps its own phases. An update written by hand is one inside
           `torch.profiler.record_function("Optimizer.step#mine")`.
module     forward: a stack kept by global module hooks. Backward: the module whose operation made the autograd node
           (matched by the node's sequence number).
again      work inside torch's activation checkpointing that repeats the forward: reentrant under its own node, the other kind
           inside its unpack hook. Gradients of gradients are no repetition.
Cost: one lookup for each operation. Equal operations in the same place share one OpRecord.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.utils.clip_grad
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from measurements.formulas import FORMULAS, FREE, Cost, Formula, Free
from measurements.formulas.cost import Binding
from measurements.formulas.pointwise import by_rule
from measurements.records import Counted, MeasurementError, OpRecord, Phase, Shape, Work, shapes_in
from measurements.step import Inputs, Step, StepError, cut_off, make_optimizer, preserved, steps_to_steady

ON_UNKNOWN = ("raise", "warn")


class UnknownOp(MeasurementError):
    """An operation without a formula."""


class UnknownOpWarning(UserWarning):
    """An operation without a formula was counted as 0; said once for each."""


# --------------------------------------------------------------------------- what an operation costs
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to do with an operator, worked out once for each.

    cost: from arguments, keywords and context to a Cost; None where it costs nothing by a row of FREE or its schema.
    moves: whether its bytes count (a view moves none).
    asks: whether the cost asks for more than arguments. lengths: places of arguments whose values it asks for.
    region: +1 where the operator opens a record function, -1 where it closes one.
    updates: whether it belongs to the update wherever it runs (unscaling of gradients).
    """

    name: str
    cost: Callable[[Sequence[object], Mapping[str, object], Mapping[str, object]], Cost] | None
    moves: bool = True
    asks: bool = False
    lengths: tuple[int, ...] = ()
    region: int = 0
    updates: bool = False


LENGTHS = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k")
"""Arguments that hold the ends of packed sequences: small integer tensors whose values decide the count."""


def _base_name(name: str) -> str:
    """The operator without the underscore of an in-place variant."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _tagged_pointwise(func: Any) -> bool:
    """Whether PyTorch tags the operator, or the functional variant of an in-place one, as pointwise."""
    if torch.Tag.pointwise in func.tags:
        return True
    namespace, _, name = func._schema.name.partition("::")
    base = getattr(getattr(torch.ops, namespace), _base_name(name), None)
    return base is not None and any(torch.Tag.pointwise in getattr(base, o).tags for o in base.overloads())


def _is_view(func: Any) -> bool:
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for argument in func._schema.arguments
    )


def plan_for(func: Any, own: Mapping[str, Formula]) -> Plan | None:
    """The plan of an operator; None where nothing says what it costs."""
    name = str(func.overloadpacket)
    base = _base_name(name)
    formula = own.get(str(func)) or own.get(name) or own.get(base) or FORMULAS.get(name) or FORMULAS.get(base)
    schema = [(argument.name, argument.default_value) for argument in func._schema.arguments]
    if formula is not None:
        binding = Binding(formula, name, schema)
        lengths = tuple(place for place, (argument, _) in enumerate(schema) if argument in LENGTHS)
        asks = bool(lengths) or not {"needs", "node", "phase"}.isdisjoint(binding.context)
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
        first = given[names[0]]
        if not isinstance(first, tuple):
            return Cost()
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

    return Plan(name, cost, asks=True)


def _at(value: object, place: int, length: int) -> object:
    """One place of a list over all tensors; what is given once for all stays."""
    listed = isinstance(value, tuple) and not isinstance(value, Shape) and len(value) == length
    return value[place] if listed else value  # type: ignore[index]


# --------------------------------------------------------------------------- tensors as keys and as Shapes
_PLAIN = frozenset(
    (int, float, bool, str, type(None), complex, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
)
_LISTS = frozenset((tuple, list))
_STRIDED = torch.strided


def _key(values: Any) -> tuple[Any, ...]:
    """Hashable values that say of each tensor what a formula or its bytes may depend on."""
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            key.append(value)
        elif isinstance(value, Tensor):
            key.append(value.shape)
            key.append(value.dtype)
            if value.layout is not _STRIDED:
                key.append((value.layout, _stored(value)))
        elif kind in _LISTS:
            key.append(tuple(value) if value and type(value[0]) is int else _key(value))
        else:
            key.append(id(value) if hasattr(value, "unpack") else kind)
    return tuple(key)


def _stored(value: Tensor) -> int:
    """Elements that a sparse tensor stores."""
    if value.layout is torch.sparse_coo:
        return value._values().numel()
    if value.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return value.values().numel()
    return value.numel()


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _plain(value: Any) -> object:
    """The value with every tensor as its Shape."""
    if isinstance(value, Tensor):
        layout = str(value.layout).removeprefix("torch.")
        return Shape((int(n) for n in value.shape), _dtype(value), layout, _stored(value))
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if hasattr(value, "unpack"):  # a packed weight of a quantized layer
        return tuple(_plain(item) for item in value.unpack() if isinstance(item, Tensor))
    return value if type(value) in _PLAIN else type(value).__name__  # a record holds no live object


def _bytes(value: Any) -> int:
    """Bytes of the tensors in nested arguments: stored elements times their size."""
    if isinstance(value, Tensor):
        return _stored(value) * value.element_size() if value.layout is not torch.strided else value.nbytes
    if isinstance(value, list | tuple):
        return sum(_bytes(item) for item in value)
    return 0


GATHERS = frozenset(
    f"aten.{name}" for name in ("embedding", "index_select", "gather", "index", "_unsafe_index", "take", "select_copy")
)
"""Operations that read of their first argument only what they write."""


# --------------------------------------------------------------------------- where an operation belongs
class _Place(threading.local):
    """What one thread is in: modules and record functions, outermost first."""

    def __init__(self) -> None:
        self.modules: list[tuple[nn.Module, str]] = []
        self.module = ""
        self.regions: list[bool] = []
        self.updating = 0


_graph_task = torch._C._current_graph_task_id
_current_node = torch._C._current_autograd_node
_next_sequence_number = torch._C._autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled
_CLIPPING = str(torch.nn.utils.clip_grad.__file__)
_OPTIM = str(torch.optim.__path__[0])
_CHECKPOINT = str(torch.utils.checkpoint.__file__)
_NO_SEQUENCE = 2**63
"""Nodes that accumulate gradients carry 2^64 - 1 in place of a number of their own."""


def _called_from_update_code() -> bool:
    """Whether torch's gradient clipping or anything in torch.optim is among the callers."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name == _CLIPPING or name.startswith(_OPTIM):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _called_from_recomputation() -> bool:
    """Whether a checkpoint's unpack hook, which runs the forward again, is among the callers."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "unpack_hook" and frame.f_code.co_filename == _CHECKPOINT:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Counting(Counted):
    """Work in progress: the names of Work, which can be read at any time. `counting()` makes it."""

    def __init__(self, on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None) -> None:
        """A count of nothing yet."""
        if on_unknown not in ON_UNKNOWN:
            raise ValueError(f"unknown on_unknown {on_unknown!r}; have {', '.join(ON_UNKNOWN)}")
        self._records: list[OpRecord] = []
        self._mode = _Mode(self._records, on_unknown, own_formulas(formulas or {}))

    @property
    def records(self) -> tuple[OpRecord, ...]:
        """One OpRecord for each executed operation, in the order in which they ran."""
        return tuple(self._records)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operations that were counted as 0 because nothing says what they cost."""
        return tuple(self._mode.unknown)

    def frozen(self) -> Work:
        """The work so far, which no longer changes."""
        return Work(self.records)

    def __repr__(self) -> str:
        """All work by phase."""
        return repr(self.frozen())


def own_formulas(formulas: Mapping[Any, Formula]) -> dict[str, Formula]:
    """A user's formulas by the operator's name.

    A key is an operator (torch.ops.ns.name, with or without overload) or its name ("ns::name", "ns.name").
    Raises: TypeError for another key, or a formula that is not callable.
    """
    own: dict[str, Formula] = {}
    for op, formula in formulas.items():
        if isinstance(op, str):
            name = op.replace("::", ".")
        elif isinstance(op, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            name = str(op)
        else:
            raise TypeError(f"formulas: {op!r} is no operator; give torch.ops.NAMESPACE.NAME or 'NAMESPACE::NAME'")
        if not callable(formula):
            raise TypeError(f"formulas: what stands for {name} is {formula!r}, not a function of shapes")
        own[name] = formula
    return own


class _Mode(TorchDispatchMode):
    """The dispatch mode that fills a list of records."""

    supports_higher_order_operators = True

    def __init__(self, records: list[OpRecord], on_unknown: str, own: Mapping[str, Formula]) -> None:
        super().__init__()
        self.records = records
        self.on_unknown = on_unknown
        self.own = own
        self.unknown: dict[str, None] = {}
        self.plans: dict[Any, Plan | None] = {}
        self.calls: dict[Any, Any] = {}  # an operation on these shapes -> what it costs
        self.known: dict[Any, OpRecord] = {}  # the same, in this phase and module -> its record
        self.kept: list[Any] = []  # packed weights whose id is part of a key
        self.owners: dict[int, str] = {}  # number of an autograd node -> module that made it
        self.place = _Place()
        self.roots: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self.paths: dict[int, dict[int, list[str]]] = {}

    # ----------------------------------------------------------------- hooks
    def enter_module(self, module: nn.Module, arguments: Any) -> None:
        """A module starts its forward (a global forward pre-hook)."""
        place = self.place
        name = self._name(module, place.modules)
        place.modules.append((module, name))
        place.module = name

    def leave_module(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """A module ends its forward, or fails in it (a global forward hook)."""
        place = self.place
        while place.modules:
            if place.modules.pop()[0] is module:
                break
        place.module = place.modules[-1][1] if place.modules else ""

    def _name(self, module: nn.Module, stack: list[tuple[nn.Module, str]]) -> str:
        """The name from the outermost module on; of several names the one under the module that called it."""
        if not stack:
            return self._root(module)
        root, root_name = stack[0]
        if id(module) not in self.paths[id(root)]:
            self._learn(root)
        found = self.paths[id(root)].get(id(module))
        if not found:  # not registered under the root: a root of its own
            return self._root(module)
        caller = stack[-1][1].removeprefix(root_name).lstrip(".")
        under = [path for path in found if path.startswith(f"{caller}." if caller else "")]
        return f"{root_name}.{(under or found)[0]}"

    def _root(self, module: nn.Module) -> str:
        held = self.roots.get(id(module))
        if held is None or held[0]() is not module:
            kind = type(module).__name__
            same = sum(name.partition("#")[0] == kind for _, name in self.roots.values())
            self.roots[id(module)] = held = (weakref.ref(module), f"{kind}#{same + 1}" if same else kind)
            self._learn(module)
        return held[1]

    def _learn(self, root: nn.Module) -> None:
        paths: dict[int, list[str]] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            paths.setdefault(id(module), []).append(path)
        self.paths[id(root)] = paths

    def enter_step(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An optimizer starts its step (a global pre-hook): its closure runs outside of the update."""
        given = [self._outside_of_update(value) for value in arguments[1:]]
        named = {key: self._outside_of_update(value) if key == "closure" else value for key, value in keywords.items()}
        return (arguments[0], *given), named

    def _outside_of_update(self, value: Any) -> Any:
        if not callable(value):
            return value

        def closure() -> Any:
            place = self.place
            inside, place.updating = place.updating, 0
            try:
                return value()
            finally:
                place.updating = inside

        return closure

    # ----------------------------------------------------------------- operations
    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operation, and writes it down."""
        kwargs = kwargs or {}
        try:
            plan = self.plans[func]
        except KeyError:
            plan = self.plans[func] = self._plan(func)
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper (nested, distributed, quantized) unwraps by itself; its parts are counted
        if plan is None:
            return self._without_plan(func, args, kwargs)
        place = self.place
        module = place.module
        phase = Phase.FORWARD
        again, node = False, None
        if _graph_task() != -1:
            phase = Phase.BACKWARD
            node = _current_node()
            module, again = self._in_backward(node, module)
        elif place.updating or plan.updates:
            phase = Phase.UPDATE
        elif _grad_enabled():
            self.owners.setdefault(_next_sequence_number() - 1, module)
        elif not module and _called_from_update_code():
            phase = Phase.UPDATE
        out = func(*args, **kwargs)
        if plan.region:
            self._region(plan.region, args)
        key = (plan, _key(args), _key(out if type(out) in _LISTS else (out,)))
        if kwargs:
            key += (tuple(kwargs), _key(kwargs.values()))
        if plan.asks:
            key += (phase, self._asked(plan, node, args))
        record = self.known.get((key, phase, module, again))
        if record is None:
            record = self._record(plan, key, phase, module, again, node, args, kwargs, out)
        self.records.append(record)
        return out

    def _plan(self, func: Any) -> Plan | None:
        if not isinstance(func, torch._ops.OpOverload):
            return None
        return plan_for(func, self.own)

    def _without_plan(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite operation as its parts; any other one is unknown."""
        if isinstance(func, torch._ops.OpOverload):
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        name = str(getattr(func, "overloadpacket", func))
        shapes = [tuple(shape) for shape in shapes_in([_plain(x) for x in (*args, *kwargs.values())])]
        self._unknown(name, f"no formula for {name} on {shapes}")
        return func(*args, **kwargs)

    def _unknown(self, name: str, sentence: str) -> None:
        hint = f"give it one: counting(formulas={{'{name}': function of its shapes}}), or a row in measurements/formulas"
        if self.on_unknown == "raise":
            raise UnknownOp(f"{sentence}; {hint}")
        if name not in self.unknown:
            self.unknown[name] = None
            warnings.warn(f"{sentence}, counted as 0; {hint}", UnknownOpWarning, stacklevel=4)

    def _in_backward(self, node: Any, module: str) -> tuple[str, bool]:
        """The module that made this node, and whether its forward is being done again."""
        owner = ""
        number = node._sequence_nr() if node is not None else _NO_SEQUENCE
        if number < _NO_SEQUENCE:
            owner = self.owners.get(number, "")
        again = False
        if _grad_enabled():  # create_graph, or a forward done again: this too makes nodes
            again = "checkpoint" in node.name().lower() if node is not None else False
            again = again or _called_from_recomputation()
            owner = module or owner if again else owner
            self.owners.setdefault(_next_sequence_number() - 1, owner)
        return owner, again

    def _region(self, change: int, args: tuple[Any, ...]) -> None:
        """A record function opens or closes; an optimizer's step is one."""
        place = self.place
        if change > 0:
            is_step = str(args[0]).startswith("Optimizer.step#")
            place.regions.append(is_step)
            place.updating += is_step
        elif place.regions:
            place.updating -= place.regions.pop()

    def _asked(self, plan: Plan, node: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a formula asks besides arguments: the node's name and needs, and the values of lengths."""
        name = "" if node is None else node.name()
        needs = () if node is None else tuple([edge[0] is not None for edge in node.next_functions])
        lengths = tuple([_values(args[place]) if place < len(args) else None for place in plan.lengths])
        return name, needs, lengths

    def _record(
        self,
        plan: Plan,
        key: tuple[Any, ...],
        phase: Phase,
        module: str,
        again: bool,
        node: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> OpRecord:
        """A new record; what it costs is worked out once for all modules that run the same operation."""
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = self._call(plan, phase, node, args, kwargs, out)
            self.kept += [value for value in args if hasattr(value, "unpack")]
        arguments, outs, cost, read, written = call
        flop, repeated = cost.contraction + cost.other, cost.again + cost.other_again
        contraction, repeated_contraction = cost.contraction, cost.again
        if again:
            repeated, repeated_contraction = flop + repeated, contraction + repeated_contraction
            flop = contraction = 0
        record = OpRecord(
            *(phase, plan.name, module, arguments, outs),
            *(flop, contraction, repeated, repeated_contraction, read, written),
        )
        self.known[(key, phase, module, again)] = record
        return record

    def _call(
        self, plan: Plan, phase: Phase, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> tuple[tuple[object, ...], tuple[Shape, ...], Cost, int, int]:
        """Arguments and outputs as Shapes, the cost, bytes read and bytes written."""
        arguments = [_plain(value) for value in args]
        keywords = {word: _plain(value) for word, value in kwargs.items()}
        outs = tuple(shapes_in([_plain(out)]))
        cost = Cost()
        if plan.cost is not None:
            name, needs, lengths = self._asked(plan, node, args)
            for place, values in zip(plan.lengths, lengths, strict=True):
                if values is not None:
                    arguments[place] = values
            first = outs[0] if outs else None
            context = {"out": first, "out_shape": first, "outs": outs, "needs": needs, "node": name, "phase": phase}
            try:
                cost = plan.cost(arguments, keywords, context)
            except Exception as error:  # a user's formula may raise anything
                shapes = [tuple(shape) for shape in shapes_in(arguments)]
                self._unknown(plan.name, f"the formula for {plan.name} fails on {shapes}: {error}")
        read = written = 0
        if plan.moves:
            given = [*args, *kwargs.values()]
            written = _bytes(out if outs else given)
            read = _bytes(given)
            if _base_name(plan.name) in GATHERS and args:
                read += written - _bytes(args[0])
        return (*arguments, *keywords.items()), outs, cost, read, written


def _values(value: Any) -> Any:
    """The elements of a small integer tensor; a meta tensor has none, and stays what it is."""
    if not isinstance(value, Tensor) or value.device.type == "meta":
        return None
    return tuple(value.tolist())


# --------------------------------------------------------------------------- the two ways in
@contextmanager
def counting(
    on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None
) -> Iterator[Counting]:
    """Counts every operation of the block: any code, loops, several models and optimizers, on any device.

    on_unknown: "raise" raises UnknownOp at an operation without a formula; "warn" lists it once and counts 0.
    formulas: operator -> function of its shapes and plain arguments (see measurements.formulas.cost.Formula); they go before
    the suite's own.
    Yields: a live object with the names of Work (FLOP as integers), which can be read at any time.
    Raises: UnknownOp; ValueError and TypeError for bad arguments. Nothing stays behind, also after an error.
    """
    work = Counting(on_unknown, formulas)
    mode = work._mode
    with ExitStack() as stack:
        hooks = (
            nn.modules.module.register_module_forward_pre_hook(mode.enter_module),
            nn.modules.module.register_module_forward_hook(mode.leave_module, always_call=True),
            register_optimizer_step_pre_hook(mode.enter_step),
        )
        for hook in hooks:
            stack.callback(hook.remove)
        stack.enter_context(mode)
        yield work


def count_step(
    model: nn.Module,
    inputs: Inputs,
    targets: Any = None,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    *,
    on_unknown: str = "raise",
    formulas: Mapping[Any, Formula] | None = None,
) -> Work:
    """FLOP of one training step of any model on any device: forward, backward, and the optimizer's update in its steady state.

    inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments, with at least one sample.
    targets, loss_fn: loss_fn(output, targets); None: cross entropy with targets, else the sum of all outputs.
    optimizer: a name ("sgd", "adam", …), an instance over the model's parameters, or None for no update.
    The model is counted in the mode that it is in. Weights, buffers, gradients, optimizer state, random state and mode are
    afterwards as before.
    Raises: StepError where the step cannot run (the sentence names what to change); UnknownOp for an operation without a formula.
    """
    if not isinstance(model, nn.Module):
        raise StepError(f"the model is {type(model).__name__}, not a torch.nn.Module; give a module")
    if isinstance(optimizer, str):
        optimizer = make_optimizer(optimizer, model.parameters())
    if not isinstance(optimizer, torch.optim.Optimizer | None):
        raise StepError(f"the optimizer is {type(optimizer).__name__}; give a name or a torch.optim.Optimizer instance")
    inputs = cut_off(inputs)
    step = Step(model, inputs, cut_off(targets), loss_fn, optimizer)
    check(step)
    with preserved(model, optimizer, inputs), torch.enable_grad():
        return count_in_place(step, on_unknown, formulas)


def check(step: Step) -> None:
    """Refuses a step that has nothing to count.

    Raises: StepError for an empty batch, a model with nothing to train, and an optimizer without parameters or over others.
    """
    from measurements.step import tensors_in

    for x in tensors_in(step.inputs):
        if x.numel() == 0:
            raise StepError(f"an input has shape {tuple(x.shape)}, which holds nothing; give a batch of at least 1")
    name = type(step.model).__name__
    trained = [parameter for parameter in step.model.parameters() if parameter.requires_grad]
    if not trained:
        raise StepError(f"nothing to train: no parameter of {name} needs a gradient; set requires_grad=True on one")
    if step.optimizer is not None:
        updated = [p for group in step.optimizer.param_groups for p in group["params"]]
        if not updated:
            raise StepError("the optimizer has no parameter; give it the model's parameters")
        if not any(p is own for p in updated for own in trained):
            raise StepError(f"the optimizer updates no parameter of {name}; give it this model's parameters")


def count_in_place(step: Step, on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None) -> Work:
    """FLOP of one step that really runs and leaves its traces; what comes before the steady state runs uncounted."""
    optimizer = step.optimizer
    ahead = 0 if optimizer is None else steps_to_steady(optimizer)
    if ahead == 0 or optimizer is None:
        with counting(on_unknown, formulas) as work:
            step.run()
        return work.frozen()
    with counting(on_unknown, formulas) as work:
        step.model.zero_grad(set_to_none=True)
        step.backward(step.forward())
    for _ in range(ahead):
        step.update()
    with counting(on_unknown, formulas) as update:
        step.update()
    return Work((*work.records, *update.records))


def count(step: Step) -> Work:
    """FLOP of a step, all phases; the model is left as it was."""
    return count_step(step.model, step.inputs, step.targets, step.loss_fn, step.optimizer)
