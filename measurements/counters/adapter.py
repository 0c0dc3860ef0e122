"""What the adapters of other packages share: the call as the packages want it, the model left as it was."""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from measurements.counters import CounterError
from measurements.preservation import preserved
from measurements.records import MeasurementError, OpRecord, Phase, Work

if TYPE_CHECKING:
    from measurements.step import Step


class Call(torch.nn.Module):
    """The call of a step's model as a module that takes the tensors among the inputs, one by one.

    Tracing takes tensors alone, and ptflops one positional tensor or a dictionary: `tensors` are the inputs
    as they want them. Tensors that are not given stay as the step has them. The model's own modules run,
    below the name "model".
    """

    def __init__(self, step: Step) -> None:
        """The call of `step`."""
        super().__init__()
        self.model = step.model
        self.training = step.model.training
        self._leaves, self._spec = pytree.tree_flatten(step.inputs)
        self._places = [n for n, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors among the inputs, in order."""
        return tuple(self._leaves[place] for place in self._places)

    def forward(self, *tensors: torch.Tensor) -> object:
        """The model's output."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=False):
            leaves[place] = tensor
        inputs = pytree.tree_unflatten(leaves, self._spec)
        if isinstance(inputs, dict):
            return self.model(**inputs)
        return self.model(*inputs) if isinstance(inputs, tuple | list) else self.model(inputs)

    def path(self, name: str) -> str:
        """The module `name` of this Call as OpRecord names it: "model.conv1" is "AlexNet.conv1"."""
        return type(self.model).__name__ + name.removeprefix("model")


def macs(rows: Iterable[tuple[str, str, float]]) -> Work:
    """Work of a forward pass from rows (operator, module, MAC), 2 FLOP for each; rows of 0 are left out."""
    return Work(
        tuple(
            OpRecord(Phase.FORWARD, op, module, flop=2 * int(count), contraction=2 * int(count))
            for op, module, count in rows
            if count
        )
    )


def macs_of_functions(
    call: Call, start: Callable[[], Any], total: Callable[[], float], end: Callable[[], Any]
) -> Work:
    """MACs of DeepSpeed's profiler and of its copies: `start` replaces functions, `end` brings them back.

    They add up in the attribute __macs__ of the module that calls the functions; what `total` has beyond them
    is a row of its own (a compiled model's wrapper counts the model again).
    """
    with functions_kept():
        try:
            start()
            with torch.no_grad():
                call(*call.tensors)
            own = {name: int(vars(module).get("__macs__", 0)) for name, module in call.named_modules()}
            rest = int(total()) - sum(own.values())
        finally:
            end()
    return macs([*(("functions", call.path(name), count) for name, count in own.items()), ("rest", "", rest)])


@contextmanager
def functions_kept() -> Iterator[None]:
    """The functions that packages replace, afterwards as before, also where a package was interrupted.

    They put methods that torch.Tensor inherits back onto torch.Tensor itself: these are taken off again.
    """
    owners = (torch, torch.nn.functional, torch.Tensor)
    before = [{name: value for name, value in vars(owner).items() if _replaceable(name)} for owner in owners]
    try:
        yield
    finally:
        for owner, names in zip(owners, before, strict=True):
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
        for name in [name for name in vars(torch.Tensor) if _replaceable(name) and name not in before[-1]]:
            delattr(torch.Tensor, name)


def _replaceable(name: str) -> bool:
    """Whether packages replace functions of such a name."""
    return not name.startswith("_") or name == "__matmul__"


@contextmanager
def silenced() -> Iterator[io.StringIO]:
    """What a package prints, logs and warns of, in place of the terminal."""
    said = io.StringIO()
    off = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield said
    finally:
        logging.disable(off)


@contextmanager
def named(counter: str, step: Step) -> Iterator[None]:
    """An error inside of a counter or the model as one sentence; our own says enough by itself."""
    try:
        yield
    except MeasurementError:
        raise
    except Exception as error:
        first = error.__cause__ or error  # a package may wrap what the model said
        raise CounterError(
            f"{counter} cannot count {type(step.model).__name__}: {type(first).__name__}: {_said(first)}; "
            "give inputs that the model accepts, or leave this counter out"
        ) from error


def _said(error: BaseException) -> str:
    """The first line of what the error says; of one that says nothing, the line of code that raised it."""
    text = str(error).strip() or str(traceback.extract_tb(error.__traceback__)[-1].line)
    return text.splitlines()[0]


@contextmanager
def left_as_found(step: Step) -> Iterator[None]:
    """The step's model afterwards as before.

    `preserved` brings back weights, buffers, gradients and random state; this also what packages leave on
    modules: attributes, hooks, mode.
    """
    found = [
        (vars(module), {name: (value, _copied(value)) for name, value in vars(module).items()})
        for module in step.model.modules()
    ]
    with preserved(step.model, step.optimizer, step.inputs):
        try:
            yield
        finally:
            for attributes, before in found:
                attributes.clear()
                for name, (value, entries) in before.items():
                    if isinstance(value, dict) and entries is not None:
                        value.clear()
                        value.update(entries)
                    attributes[name] = value


def _copied(value: object) -> dict[object, object] | None:
    """The entries of a dictionary, which hooks, parameters, buffers and children are kept in; else None."""
    return dict(value) if isinstance(value, dict) else None
