"""What is timed of a training step, and what has to be ready before the clock starts.

step      forward, backward, update, from no gradients
forward   of the model and the loss
backward  of a loss whose forward has run before
update    of gradients whose backward has run before

Before each round come other inputs, which are ready on the device; no counting and no loading is within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from measurements.step import Step

POOL = 4
"""Inputs that the rounds of one timing take in turn."""


class Rounds:
    """The rounds of one phase: `prepare` before the clock starts, `work` while it runs."""

    def __init__(
        self,
        step: Step,
        phase: str,
        epoch: Iterable[tuple[Tensor, Tensor]] | None = None,
        loading: bool = False,
    ) -> None:
        """Rounds of the step.

        epoch: batches from a loader, one for each round; None: POOL random ones of the step's sizes in turn.
        loading: whether a batch is loaded, and sent to the device, within the round.
        """
        self.step = step
        self.phase = phase
        self.loading = loading
        self.batches: Iterator[tuple[Any, Any]] = cycle(_pool(step)) if epoch is None else _sent(epoch, step)
        self.loss: Tensor | None = None

    def prepare(self) -> None:
        """Takes the next inputs, and runs what comes before the phase."""
        self.loss = None
        self.step.model.zero_grad(set_to_none=True)
        if not self.loading:
            self._load()
        if self.phase in ("backward", "update"):
            self.loss = self.step.forward()
        if self.phase == "update" and self.loss is not None:
            self.step.backward(self.loss)

    def work(self) -> None:
        """What is timed; the graph of a forward is freed after the clock has stopped."""
        if self.loading:
            self._load()
        if self.phase == "step":
            self.step.run()
        elif self.phase == "forward":
            self.loss = self.step.forward()
        elif self.phase == "backward" and self.loss is not None:
            self.step.backward(self.loss)
        else:
            self.step.update()

    def _load(self) -> None:
        self.step.inputs, self.step.targets = next(self.batches)


def _pool(step: Step) -> list[tuple[Any, Any]]:
    """The step's own inputs and targets, and others of their sizes."""
    return [(step.inputs, step.targets), *(_others(step) for _ in range(POOL - 1))]


def _others(step: Step) -> tuple[Any, Any]:
    """Other numbers of the same sizes; what is no floating-point number (token ids) in another order."""

    def other(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_floating_point():
            return torch.rand_like(x)
        return x[torch.randperm(len(x), device=x.device)] if x.dim() else x

    return pytree.tree_map(other, step.inputs), pytree.tree_map(other, step.targets)


def _sent(epoch: Iterable[tuple[Tensor, Tensor]], step: Step) -> Iterator[tuple[Any, Any]]:
    """Batches of a loader as the step takes them, on its device."""
    device = step.targets.device
    for x, targets in epoch:
        yield (x.to(device),), targets.to(device)


def out_of_memory(error: BaseException | None) -> str | None:
    """What torch says, where the error or one that it came from is a lack of memory; else None."""
    while error is not None:
        said = str(error)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in said:
            return (said.strip() or type(error).__name__).splitlines()[0]
        error = error.__cause__ or error.__context__
    return None
