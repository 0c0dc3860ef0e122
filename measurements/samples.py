"""Inputs and targets that fit a model.

inputs   random tensors of the shapes that were asked for, one for each shape; else what the model's own
         method `example_inputs(batch)` returns: a tensor, a tuple of positional arguments or a dict of
         keyword arguments (token ids, masks, several tensors); else the size that the architecture is
         published with, once for each argument that forward requires
targets  random classes where the model returns one tensor of batch x classes; else none: the loss is the sum
         of all outputs
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from measurements.preservation import preserved
from measurements.records import MeasurementError
from measurements.step import Step

Shapes = tuple[tuple[int, ...], ...]


class SampleError(MeasurementError):
    """Inputs that a model cannot be given: one sentence that names what to change."""


def inputs_for(model: nn.Module, batch: int, shapes: Shapes | None, published: tuple[int, ...]) -> Any:
    """Inputs on torch's default device.

    shapes: behind the batch; None: the model's own, else `published`.
    Raises: SampleError where example_inputs fails or returns something else, or no tensor has such a size.
    """
    own = getattr(model, "example_inputs", None)
    if shapes is None and callable(own):
        return _own(own, batch, type(model).__name__)
    shapes = shapes or (published,) * _required_arguments(model)
    dtype = next((w.dtype for w in model.parameters() if w.is_floating_point()), None)
    try:
        return tuple(torch.rand(batch, *shape, dtype=dtype) for shape in shapes)
    except (RuntimeError, TypeError) as error:  # more elements than 64 bits number
        sizes = ", ".join("x".join(map(str, (batch, *shape))) for shape in shapes)
        raise SampleError(
            f"no tensor can have the size {sizes} ({_first_line(error)}); "
            "give a smaller --batch or --input-shape"
        ) from error


def _own(example_inputs: Any, batch: int, name: str) -> Any:
    try:
        inputs = example_inputs(batch)
    except (Exception, SystemExit) as error:
        raise SampleError(f"{name}: example_inputs({batch}) failed: {_first_line(error)}") from error
    if not isinstance(inputs, Tensor | tuple | dict):
        raise SampleError(
            f"{name}: example_inputs returned {type(inputs).__name__}; return a tensor, a tuple of arguments "
            "or a dict of them"
        )
    return inputs


def _first_line(error: BaseException) -> str:
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def _required_arguments(model: nn.Module) -> int:
    """Arguments without which forward cannot be called; at least 1."""
    required = [
        parameter
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return max(1, len(required))


def targets_for(model: nn.Module, inputs: Any, batch: int) -> Tensor | None:
    """Random classes where the model returns batch x classes; None where the outputs are to be summed."""
    outputs: list[Any] = []

    def keep(output: Any) -> Tensor:
        outputs.append(output)
        return torch.zeros(())

    with preserved(model, inputs=inputs), torch.no_grad():
        Step(model, inputs, loss_fn=keep).forward()
    output = outputs[0]
    if (
        isinstance(output, torch.Tensor)
        and output.is_floating_point()
        and output.dim() == 2
        and len(output) == batch
    ):
        return torch.randint(output.shape[1], (batch,), device=output.device)
    return None
