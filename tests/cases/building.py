"""How the text of a case becomes a model and its inputs. Torch is imported when the first case is built."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.cases.vocabulary import names

if TYPE_CHECKING:
    from measurements.step import Step


def has(module: str, name: str) -> bool:
    """Whether the module is there and has the name."""
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


NEEDS: dict[str, Callable[[], bool]] = {
    "torch.optim.Muon": lambda: has("torch.optim", "Muon"),
    "torch.distributed with gloo": lambda: has("torch.distributed", "ProcessGroupGloo"),
    "a C++ compiler": lambda: shutil.which(os.environ.get("CXX", "g++")) is not None,
}
"""What not every machine or torch has, and whether this one has it."""


def evaluate(text: str) -> Any:
    """The value of a case's text."""
    return eval(text, dict(names()))


def step(model: str, inputs: str, within: str, device: str) -> Step:
    """The training step of a case. To another process goes its text, and it is built there anew."""
    import torch

    with torch.device(device):
        made: Step = case_step()(evaluate(model), evaluate(f"({inputs},)"))
    vars(made)["text"] = (model, inputs, within, device)
    return made


@functools.cache
def case_step() -> type[Step]:
    """The class of a case's step."""
    from torch import Tensor

    from measurements.step import Step

    class CaseStep(Step):
        """A step that has no backward where nothing needs a gradient, and is sent as its text."""

        def backward(self, loss: Tensor) -> None:
            if loss.requires_grad:
                super().backward(loss)

        def __reduce_ex__(self, protocol: Any) -> Any:
            text = vars(self).get("text")
            return super().__reduce_ex__(protocol) if text is None else (step_there, text)

    return CaseStep


def step_there(model: str, inputs: str, within: str, device: str) -> Step:
    """The step in the process that it was sent to, and that stays in its context from now on."""
    if within and within not in STAYED_IN:
        STAYED_IN[within] = evaluate(within)
        STAYED_IN[within].__enter__()
    return step(model, inputs, within, device)


STAYED_IN: dict[str, Any] = {}
"""Contexts by their text."""
