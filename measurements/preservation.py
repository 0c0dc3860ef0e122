"""Nothing left behind: a model, its optimizer and all random generators as they were before a step."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from measurements.step import Inputs, StepError, tensors_in


@contextmanager
def preserved(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, inputs: Inputs | None = None
) -> Iterator[None]:
    """A block after which weights, buffers, gradients, optimizer and random state, and mode are as before."""
    modules = list(model.modules())
    lazy = nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
    if any(isinstance(x, lazy) for x in (*model.parameters(), *model.buffers())):
        raise StepError(
            f"{type(model).__name__} has parameters without a shape yet (lazy modules); "
            "call it on its inputs once first"
        )
    modes = [module.training for module in modules]
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (part, dict(part))
        for module in modules
        for part in (module._parameters, module._buffers, module._modules)
        if isinstance(part, dict)  # those of a scripted module are fixed
    ]
    weights = list(model.parameters())
    if optimizer is not None:
        weights += [p for group in optimizer.param_groups for p in group["params"]]
    weights = list(dict.fromkeys(weights))
    leaves = [*weights, *(x for x in tensors_in(inputs) if x.is_leaf)]
    gradients = [(x, x.grad) for x in leaves]
    trained = [(x, x.requires_grad) for x in leaves]
    # a forward may write into any of these
    values = _values([*weights, *model.buffers(), *tensors_in(inputs)])
    values += _values([grad for _, grad in gradients if grad is not None])
    state = _optimizer_state(optimizer)
    dice = _random_state() + _own_generators(modules)
    try:
        for leaf in leaves:
            leaf.grad = None
        yield
    finally:
        _restore_random_state(dice)
        for table, entries in tables:
            table.clear()
            table.update(entries)
        with torch.no_grad():
            for tensor, value in values:
                _copy_back(tensor, value)
        for weight, needs in trained:
            if weight.requires_grad != needs:
                weight.requires_grad_(needs)
        for leaf, grad in gradients:
            leaf.grad = grad
        state()
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _values(tensors: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each tensor with a copy of its elements; of one that has none, its sizes."""
    return [(x, x.detach() if _is_empty_of_numbers(x) else x.detach().clone()) for x in tensors]


def _is_empty_of_numbers(x: Tensor) -> bool:
    return x.device.type == "meta" or isinstance(x, FakeTensor)


def _copy_back(tensor: Tensor, value: Tensor) -> None:
    """The old elements in the old tensor; one that did not change is left alone, and keeps its version.

    One that was resized (an observer's extremes, before it saw any), or given another dtype (by half()), gets
    sizes and dtype back as well. Left alone is what torch cannot write to or compare: an expanded view, whose
    elements come back with those of the tensor that it shows, and dtypes that only hold data.
    """
    if tensor.is_inference() or tensor.is_nested:
        return
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        tensor.data = value
        return
    if _is_empty_of_numbers(tensor) or _is_expanded(tensor):
        return
    try:
        if tensor.layout is not torch.strided:
            tensor.data = value
        elif not torch.equal(tensor, value):
            tensor.detach().copy_(value)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise


def _is_expanded(x: Tensor) -> bool:
    """Whether some of its elements are one and the same in memory."""
    if x.layout is not torch.strided:
        return False
    return any(size > 1 and not step for size, step in zip(x.shape, x.stride(), strict=True))


def _optimizer_state(optimizer: torch.optim.Optimizer | None) -> Callable[[], None]:
    """A function that puts the optimizer's state and groups back."""
    if optimizer is None:
        return lambda: None
    groups = [(group, dict(group)) for group in optimizer.param_groups]
    state = {key: _snapshot(value) for key, value in optimizer.state.items()}
    fields = {name: value for name, value in vars(optimizer).items() if name not in ("state", "param_groups")}

    def restore() -> None:
        for group, entries in groups:
            group.clear()
            group.update(entries)
        optimizer.state.clear()
        for key, value in state.items():
            optimizer.state[key] = value()
        for name in set(vars(optimizer)) - set(fields) - {"state", "param_groups"}:
            delattr(optimizer, name)
        vars(optimizer).update(fields)

    return restore


def _snapshot(value: Any) -> Callable[[], Any]:
    """A function that gives the value back as it is now: the same tensors with the elements of now."""
    if isinstance(value, Tensor):
        saved = _values([value])

        def tensor() -> Tensor:
            with torch.no_grad():
                for x, elements in saved:
                    _copy_back(x, elements)
            return value

        return tensor
    if isinstance(value, dict):
        items = {key: _snapshot(item) for key, item in value.items()}

        def mapping() -> Any:
            value.clear()
            value.update({key: item() for key, item in items.items()})
            return value

        return mapping
    if isinstance(value, list):
        parts = [_snapshot(item) for item in value]

        def sequence() -> Any:
            value[:] = [part() for part in parts]
            return value

        return sequence
    kept = copy.deepcopy(value)
    return lambda: kept


def _random_state() -> list[tuple[Callable[[Any], object], Any]]:
    """Every generator that a model may draw from, as (setter, state)."""
    states: list[tuple[Callable[[Any], object], Any]] = [
        (random.setstate, random.getstate()),
        (torch.set_rng_state, torch.get_rng_state()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    return states


def _own_generators(modules: Iterable[nn.Module]) -> list[tuple[Callable[[Any], object], Any]]:
    """The generators that modules keep for themselves, likewise; of numpy's, the part that moves."""
    kept = {id(value): value for module in modules for value in vars(module).values()}.values()
    states: list[tuple[Callable[[Any], object], Any]] = []
    for value in kept:
        if isinstance(value, torch.Generator):
            states.append((value.set_state, value.get_state()))
        elif isinstance(value, random.Random):
            states.append((value.setstate, value.getstate()))
        elif (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.random.Generator):
            states.append((partial(setattr, value.bit_generator, "state"), value.bit_generator.state))
    return states


def _restore_random_state(states: list[tuple[Callable[[Any], object], Any]]) -> None:
    for setter, state in states:
        setter(state)
