"""The two ways in: `counting()` around any code, `count_step()` for one training step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from measurements.counters.dispatch.mode import Mode, Place, record_of
from measurements.counters.dispatch.plans import own_formulas
from measurements.counters.dispatch.regions import watch_recomputation
from measurements.formulas import Formula
from measurements.preservation import preserved
from measurements.records import Counted, OpRecord, Work
from measurements.step import (
    Inputs,
    Step,
    StepError,
    cut_off,
    make_optimizer,
    steps_to_steady,
    tensors_in,
)

ON_UNKNOWN = ("raise", "warn")


class Counting(Counted):
    """Work in progress: the names of Work, which can be read at any time. `counting()` makes it."""

    def __init__(self, on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None) -> None:
        """A count of nothing yet."""
        if on_unknown not in ON_UNKNOWN:
            raise ValueError(f"unknown on_unknown {on_unknown!r}; have {', '.join(ON_UNKNOWN)}")
        self._mode = Mode(on_unknown, own_formulas(formulas or {}))
        self._records: list[OpRecord] = []  # of what had run when they were last read
        self._known: dict[Place, OpRecord] = {}

    @property
    def records(self) -> tuple[OpRecord, ...]:
        """One OpRecord for each executed operation, in the order in which they ran."""
        for place in islice(self._mode.log, len(self._records), None):
            record = self._known.get(place)
            if record is None:
                record = self._known[place] = record_of(place)
            self._records.append(record)
        return tuple(self._records)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operations that were counted as 0 because nothing says what they cost."""
        return tuple(self._mode.unknown)

    def frozen(self) -> Work:
        """The work so far, which no longer changes."""
        return Work(self.records)

    def __reduce__(self) -> tuple[type[Work], tuple[tuple[OpRecord, ...]]]:
        """A copy, or what a file holds, is the work so far."""
        return Work, (self.records,)

    def __repr__(self) -> str:
        """All work by phase."""
        return repr(self.frozen())


@contextmanager
def counting(on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None) -> Iterator[Counting]:
    """Counts every operation of the block: any code, loops, several models and optimizers, on any device.

    on_unknown: "raise" raises UnknownOp at an operation without a formula; "warn" lists it once and counts 0.
    formulas: operator -> function of its shapes and plain arguments (see measurements.formulas.cost.Formula);
    they go before the suite's own.
    Yields: a live object with the names of Work (FLOP as integers), which can be read at any time.
    Raises: UnknownOp; ValueError and TypeError for bad arguments. Nothing stays behind, also after an error.
    """
    work = Counting(on_unknown, formulas)
    mode = work._mode
    with ExitStack() as stack:
        hooks = (
            nn.modules.module.register_module_forward_pre_hook(mode.here.enter),
            nn.modules.module.register_module_forward_hook(mode.here.leave, always_call=True),
            register_optimizer_step_pre_hook(mode.here.enter_step),
        )
        for hook in hooks:
            stack.callback(hook.remove)
        stack.callback(watch_recomputation())
        stack.callback(_ignore_warning(HOOKS_FIRE_TWICE))
        stack.enter_context(mode)
        yield work


HOOKS_FIRE_TWICE = r"Using `torch\.compile\(module\)` when there are global hooks on modules"
"""What torch says about our hooks; a module that is entered twice and left twice is still one module."""


def _ignore_warning(message: str) -> Callable[[], None]:
    """Ignores one warning; gives a function that ends this and leaves all other filters as they are then."""
    before = list(warnings.filters)
    warnings.filterwarnings("ignore", message=message)
    mine = warnings.filters[0]

    def end() -> None:
        if mine not in before and mine in warnings.filters:
            warnings.filters.remove(mine)  # type: ignore[attr-defined]

    return end


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
    """FLOP of one training step of any model on any device: forward, backward, update in its steady state.

    inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments; at least one sample.
    targets, loss_fn: loss_fn(output, targets); None: cross entropy with targets, else the sum of all outputs.
    optimizer: a name ("sgd", "adam", …), an instance over the model's parameters, or None for no update.
    The model is counted in the mode that it is in. Weights, buffers, gradients, optimizer state, random state
    and mode are afterwards as before.
    Raises: StepError where the step cannot run (the sentence names what to change); UnknownOp for an
    operation without a formula.
    """
    if not isinstance(model, nn.Module):
        raise StepError(f"the model is {type(model).__name__}, not a torch.nn.Module; give a module")
    if isinstance(optimizer, str):
        optimizer = make_optimizer(optimizer, model.parameters())
    if not isinstance(optimizer, torch.optim.Optimizer | None):
        raise StepError(
            f"the optimizer is {type(optimizer).__name__}; give a name or a torch.optim.Optimizer instance"
        )
    inputs = cut_off(inputs)
    step = Step(model, inputs, cut_off(targets), loss_fn, optimizer)
    check(step)
    with preserved(model, optimizer, inputs), torch.enable_grad():
        return count_in_place(step, on_unknown, formulas)


def check(step: Step) -> None:
    """Refuses a step that has nothing to count.

    Raises: StepError for an empty batch, a model with nothing to train, and an optimizer without parameters
    or over others.
    """
    for x in tensors_in(step.inputs):
        if x.numel() == 0:
            raise StepError(
                f"an input has shape {tuple(x.shape)}, which holds nothing; give a batch of at least 1"
            )
    name = type(step.model).__name__
    trained = [parameter for parameter in step.model.parameters() if parameter.requires_grad]
    if not trained:
        raise StepError(
            f"nothing to train: no parameter of {name} needs a gradient; set requires_grad=True on one"
        )
    if step.optimizer is not None:
        updated = [p for group in step.optimizer.param_groups for p in group["params"]]
        if not updated:
            raise StepError("the optimizer has no parameter; give it the model's parameters")
        if not any(p is own for p in updated for own in trained):
            raise StepError(f"the optimizer updates no parameter of {name}; give it this model's parameters")


def count_in_place(
    step: Step, on_unknown: str = "raise", formulas: Mapping[Any, Formula] | None = None
) -> Work:
    """FLOP of one step that really runs and leaves its traces; nothing before the steady state is counted."""
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
