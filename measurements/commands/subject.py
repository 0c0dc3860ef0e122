"""What `count` counts: a model by its name, with inputs and a loss that fit it (`samples.py`).

Loss: mean cross entropy with random targets where the model returns one tensor of batch x classes, else the
sum of all outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import models
from measurements.commands import CommandError, first_line
from measurements.records import MeasurementError, Work

if TYPE_CHECKING:
    from torch import Tensor, nn

CROSS_ENTROPY, SUM = "cross entropy", "the sum of all outputs"


@dataclass(frozen=True)
class Subject:
    """One architecture, counted: what it was given, and what its step costs.

    inputs: "64x3x224x224 float32", one for each tensor. tokens: of one sample, 1 where the input is no token
    sequence. modules: names in tree order, as in OpRecord.module. remark: what was done otherwise than asked.
    """

    arch: str
    batch: int
    device: str
    inputs: tuple[str, ...]
    loss: str
    optimizer: str | None
    parameters: int
    trained: int
    tokens: int
    modules: tuple[str, ...]
    work: Work
    remark: str = ""

    def by(self, kind: str) -> dict[str, Work]:
        """The work by op, module (in tree order, then what ran outside of the model) or phase."""
        if kind != "module":
            return self.work.by_op() if kind == "op" else self.work.by_phase()
        found = self.work.by_module()
        order = [name for name in self.modules if name in found]
        return {name: found[name] for name in (*order, *(name for name in found if name not in order))}


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    arch: str
    batch: int
    optimizer: str | None
    shapes: tuple[tuple[int, ...], ...] | None
    classes: int


def counted(asked: Asked) -> Subject:
    """The subject, counted on meta; on the CPU, with a remark, where the model needs numbers to run.

    Raises: CommandError in one sentence.
    """
    try:
        return _counted(asked, "meta")
    except CommandError as error:
        said = _about_meta(error)
        if said is None:
            raise
    remark = f"{asked.arch} cannot run on meta, where nothing is computed ({said}): counted on the CPU"
    return _counted(asked, "cpu", remark)


def _about_meta(error: BaseException) -> str | None:
    """What torch or the model, and not this suite, said about the meta device; None where neither did."""
    ours = (MeasurementError, models.ArchitectureError)
    cause = error.__cause__
    while cause is not None:
        if not isinstance(cause, ours) and "meta" in str(cause).lower():
            return first_line(cause)
        cause = cause.__cause__
    return None


def _on_the_command_line(sentence: str) -> str:
    """The sentence, with what to change there in place of what to change in Python."""
    from measurements.step import INPUTS_HINT

    sentence = sentence.replace(
        INPUTS_HINT, "give --input-shape, or the model a method example_inputs(batch)"
    )
    return sentence.replace("give a loss_fn", "make the model return one")


def _counted(asked: Asked, device: str, remark: str = "") -> Subject:
    import torch

    from measurements.counters.dispatch import count_step
    from measurements.samples import inputs_for, targets_for
    from measurements.step import tensors_in

    model = _model(asked, device)
    name = type(model).__name__
    try:
        with torch.device(device):
            inputs = inputs_for(model, asked.batch, asked.shapes, models.input_shape(asked.arch))
        targets = targets_for(model, inputs, asked.batch)
        work = count_step(model, inputs, targets, optimizer=asked.optimizer)
    except MeasurementError as error:
        raise CommandError(_on_the_command_line(str(error))) from error
    except Exception as error:
        raise CommandError(f"the step of {name} failed: {first_line(error)}; mend the model") from error
    tensors = list(tensors_in(inputs))
    weights = list(model.parameters())
    return Subject(
        arch=asked.arch,
        batch=asked.batch,
        device=device,
        inputs=tuple(_described(x) for x in tensors),
        loss=SUM if targets is None else CROSS_ENTROPY,
        optimizer=asked.optimizer,
        parameters=sum(w.numel() for w in weights),
        trained=sum(w.numel() for w in weights if w.requires_grad),
        tokens=next((x.shape[1] for x in tensors if x.dim() > 1 and _holds_integers(x)), 1),
        modules=tuple(f"{name}.{path}" if path else name for path, _ in model.named_modules()),
        work=work,
        remark=remark,
    )


def _model(asked: Asked, device: str) -> nn.Module:
    import torch

    try:
        with torch.device(device):
            return models.build(asked.arch, asked.classes)
    except models.ArchitectureError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        raise CommandError(
            f"{asked.arch!r} failed to build with {asked.classes} classes: {first_line(error)}"
        ) from error


def _holds_integers(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and str(x.dtype) != "torch.bool"


def _described(x: Tensor) -> str:
    return f"{'x'.join(map(str, x.shape))} {str(x.dtype).removeprefix('torch.')}"
