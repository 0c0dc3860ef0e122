"""One training step of one model: forward, backward, update. Counting and timing use the same one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from measurements.ranges import annotated
from measurements.records import MeasurementError

Inputs = Tensor | tuple[Any, ...] | dict[str, Any]


class StepError(MeasurementError):
    """A step that cannot run as it was given: the sentence names what to change."""


@dataclass
class Step:
    """One training step.

    inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
    loss_fn: called as loss_fn(output, targets), or as loss_fn(output) without targets. None: cross entropy
    with targets, else the sum of all outputs.
    optimizer: None leaves the update out.
    autocast: the dtype that forward and loss are cast to where torch finds it safe; None: as they come.
    scaler: scales the loss before backward and unscales before the update, as one trains in float16.
    The step and its phases are NVTX ranges, for whoever looks with a profiler.
    """

    model: nn.Module
    inputs: Inputs
    targets: Any = None
    loss_fn: Callable[..., Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = None
    autocast: torch.dtype | None = None
    scaler: torch.amp.GradScaler | None = None

    def call(self) -> Any:
        """What the model gives for the inputs."""
        if isinstance(self.inputs, dict):
            return self.model(**self.inputs)
        if isinstance(self.inputs, tuple | list):
            return self.model(*self.inputs)
        return self.model(self.inputs)

    def forward(self) -> Tensor:
        """The loss, a scalar.

        Raises: StepError where the model fails on the inputs, or the loss is not one real number.
        """
        with annotated("forward"), self._casting():
            return self._forward()

    def _casting(self) -> AbstractContextManager[Any]:
        """Autocast, where it is wanted, on the device of the inputs."""
        if self.autocast is None:
            return nullcontext()
        device = next((x.device.type for x in tensors_in(self.inputs)), "cpu")
        return torch.autocast(device, self.autocast)

    def _forward(self) -> Tensor:
        given = _describe(self.inputs)
        with _named(f"the forward of {_name(self.model)} failed on inputs of {given}", INPUTS_HINT):
            output = self.call()
        with _named(
            f"the loss failed on outputs of {_describe(output)} and targets of {_describe(self.targets)}",
            "give targets that fit the outputs, or a loss_fn",
        ):
            loss = self._loss(output)
        if not isinstance(loss, Tensor):
            raise StepError(
                f"the loss is {_describe(loss)}, not a tensor; give a loss_fn that returns a scalar tensor"
            )
        if loss.numel() != 1:
            raise StepError(
                f"the loss is not a scalar but has shape {_sizes(loss)}; give a loss_fn that reduces it to "
                "one number"
            )
        if loss.is_complex():
            raise StepError(
                f"the loss is complex ({_describe(loss)}); give a loss_fn that returns a real one"
            )
        return loss

    def _loss(self, output: Any) -> Any:
        if self.loss_fn is not None:
            return self.loss_fn(output) if self.targets is None else self.loss_fn(output, self.targets)
        if self.targets is not None:
            return _sum([nn.functional.cross_entropy(head, self.targets) for head in _heads(output)])
        return sum_of_outputs(output)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss in every parameter that needs one."""
        if not loss.requires_grad:
            raise StepError(
                f"nothing to train: the loss of {_name(self.model)} needs no gradient; give the model a "
                "parameter with requires_grad=True on the way to the loss"
            )
        with annotated("backward"), _named(f"the backward of {_name(self.model)} failed", BACKWARD_HINT):
            scaled = loss if self.scaler is None else self.scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]

    def update(self) -> None:
        """One step of the optimizer; one that needs a closure (LBFGS) runs forward and backward by itself."""
        if self.optimizer is None:
            return
        failed = f"the step of {type(self.optimizer).__name__} failed"
        with annotated("update"), _named(failed, UPDATE_HINT):
            if _needs_closure(self.optimizer):
                self.optimizer.step(self._closure)  # type: ignore[arg-type]
            elif self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()

    def _closure(self) -> Tensor:
        self.model.zero_grad(set_to_none=True)
        loss = self.forward()
        self.backward(loss)
        return loss

    def run(self) -> None:
        """The whole step, from no gradients."""
        with annotated("step"):
            self._run()

    def _run(self) -> None:
        if self.optimizer is not None and _needs_closure(self.optimizer):
            self.update()
            return
        self.model.zero_grad(set_to_none=True)
        self.backward(self.forward())
        self.update()


INPUTS_HINT = "give inputs that model(*inputs) accepts"
BACKWARD_HINT = "give a model whose loss.backward() runs, and inputs and targets on its device"
UPDATE_HINT = "give an optimizer whose step() runs on this model's gradients"


@contextmanager
def _named(what: str, hint: str) -> Iterator[None]:
    """An error of the user's code as one sentence that names what to change; our own says enough."""
    try:
        yield
    except MeasurementError:
        raise
    except (Exception, SystemExit) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StepError(f"{what}: {type(error).__name__}: {first}; {hint}") from error


def _name(model: nn.Module) -> str:
    return type(model).__name__


def _sizes(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{_sizes(value)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_describe(item)}" for key, item in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(_describe, value))
    return "none" if value is None else type(value).__name__


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, dicts and objects with fields (dataclasses, model outputs)."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name))


def cut_off(value: Any) -> Any:
    """The same inputs without the graph that made them: a backward pass through them ends there."""
    if isinstance(value, Tensor):
        return value if value.is_leaf else value.detach().requires_grad_(value.requires_grad)
    if not any(not x.is_leaf for x in tensors_in(value)):
        return value
    if isinstance(value, dict):
        return {key: cut_off(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(cut_off(item) for item in value)
    return value


def sum_of_outputs(output: Any) -> Tensor:
    """The sum of all floating-point outputs: the loss where there are no targets.

    Raises: StepError where there is none.
    """
    parts = [x for x in tensors_in(output) if x.is_floating_point() or x.is_complex()]
    if not parts:
        raise StepError(
            f"the model returns {_describe(output)}: no floating-point tensor to sum; give a loss_fn"
        )
    sums = [(part.abs() if part.is_complex() else part).sum() for part in parts]
    return _sum(sums)


def _heads(output: Any) -> list[Tensor]:
    """The tensors that targets are compared with: the first, and those of its shape (auxiliary heads)."""
    found = list(tensors_in(output))
    if not found:
        raise StepError(
            f"the model returns {_describe(output)}: no tensor to compare targets with; give a loss_fn"
        )
    return [head for head in found if head.shape == found[0].shape]


def _sum(parts: list[Tensor]) -> Tensor:
    """The sum of some tensors, without an addition where there is one."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step cannot do without: LBFGS, and those whose step requires it, as SAM's."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    required = closure is not None and closure.default is closure.empty
    return isinstance(optimizer, torch.optim.LBFGS) or required


# --------------------------------------------------------------------------- optimizers
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.01}),
    "momentum": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "nesterov": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    "weight_decay": ("SGD", {"lr": 0.01, "weight_decay": 1e-4}),
    "momentum_weight_decay": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}),
    "nesterov_weight_decay": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}),
    "adam": ("Adam", {}),
    "adam_weight_decay": ("Adam", {"weight_decay": 1e-4}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adadelta": ("Adadelta", {}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "rprop": ("Rprop", {}),
    "asgd": ("ASGD", {}),
    "adafactor": ("Adafactor", {}),
    "lbfgs": ("LBFGS", {}),
    "muon": ("Muon", {}),
}
"""Name -> class in torch.optim and its arguments; all others are torch's defaults."""

IMPLEMENTATIONS = ("single", "foreach", "fused")


def make_optimizer(
    name: str, parameters: Iterable[nn.Parameter], implementation: str | None = None
) -> torch.optim.Optimizer:
    """The optimizer of that name over the parameters that need a gradient.

    implementation: "single", "foreach" or "fused"; None leaves the choice to torch.
    Raises: StepError for an unknown name or implementation, one that this torch lacks, and no parameters.
    """
    if name not in OPTIMIZERS:
        raise StepError(f"unknown optimizer {name!r}; have {', '.join(OPTIMIZERS)}")
    if implementation not in (None, *IMPLEMENTATIONS):
        raise StepError(f"unknown implementation {implementation!r}; have {', '.join(IMPLEMENTATIONS)}")
    kind, settings = OPTIMIZERS[name]
    if not hasattr(torch.optim, kind):
        raise StepError(f"optimizer {name!r} needs torch.optim.{kind}; torch {torch.__version__} has none")
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise StepError(
            f"optimizer {name!r} has no parameter to update; give the model one with requires_grad=True"
        )
    if implementation is not None:
        # not every one has foreach and fused
        takes = inspect.signature(getattr(torch.optim, kind)).parameters
        ways = {way: way == implementation for way in IMPLEMENTATIONS[1:]}
        settings = settings | {way: wanted for way, wanted in ways.items() if wanted or way in takes}
    try:
        return getattr(torch.optim, kind)(trained, **settings)  # type: ignore[no-any-return]
    except (TypeError, ValueError, RuntimeError) as error:
        wanted = f"{implementation} {name}" if implementation else name
        raise StepError(f"torch.optim.{kind} has no {wanted} for these parameters: {error}") from error


def steps_to_steady(optimizer: torch.optim.Optimizer) -> int:
    """Steps after which all cost the same: momentum's first only copies, RAdam's first five differ."""
    if isinstance(optimizer, torch.optim.RAdam):
        return 6
    if isinstance(optimizer, torch.optim.SGD) and any(group["momentum"] for group in optimizer.param_groups):
        return 1
    return 0
