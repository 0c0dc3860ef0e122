"""The architectures that `--arch` takes: one list, and what builds every other name.

Names: those of `ARCHITECTURES`; `deeper_conv_net_N` for any N; every other torchvision model; `timm:NAME`
where timm is installed; `pkg.module:factory` for your own model. Weights are random and never downloaded.
To add an architecture, give its family's file a class or function and add one row to `ARCHITECTURES`.
Importing this package imports no torch: the rows name their builders, and `build` imports them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

IMAGE = (3, 224, 224)


class ArchitectureError(ValueError):
    """One sentence on why a name gives no model, and what to change."""


class UnknownArchitecture(ArchitectureError):  # noqa: N818 - its base says that it is an error
    """One sentence on a name that nothing here knows, with the names near it."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row of the list.

    builder: "module:function", imported when called as function(name, classes).
    shape: the sizes of one input, without the batch.
    """

    builder: str
    shape: tuple[int, ...] = IMAGE


_TORCHVISION = Architecture("models.torchvision_models:build")

ARCHITECTURES: dict[str, Architecture] = {
    "linear_net": Architecture("models.linear:build"),
    "one_net": Architecture("models.linear:build", (1,)),
    "conv_net": Architecture("models.convolutional:build"),
    "deeper_conv_net": Architecture("models.convolutional:build"),
    "mlp": Architecture("models.mlp:build", (24,)),
    "resnet18": _TORCHVISION,
    "resnet34": _TORCHVISION,
    "resnet50": _TORCHVISION,
    "resnet101": _TORCHVISION,
    "resnet152": _TORCHVISION,
    "vgg11": _TORCHVISION,
    "vgg13": _TORCHVISION,
    "vgg16": _TORCHVISION,
    "vgg19": _TORCHVISION,
    "wide_resnet50_2": _TORCHVISION,
    "alexnet": _TORCHVISION,
    "mobilenet_v2": _TORCHVISION,
    "efficientnet_b0": _TORCHVISION,
}


def build(name: str, classes: int = 10) -> nn.Module:
    """The model of that name with random weights, on the device that `with torch.device(…)` around it names.

    Raises: UnknownArchitecture where nothing has that name; ArchitectureError where your own model fails.
    """
    if classes < 1:
        raise ArchitectureError(f"classes is {classes}; give 1 or more")
    row = listed(name)
    module, function = (row.builder if row else f"{_family(name)}:build").split(":")
    from models import on_meta

    try:
        return on_meta.build(getattr(on_meta.imported(module), function), name, classes)
    except SystemExit as error:
        raise ArchitectureError(
            f"{name!r} ended the program while it was imported or built (exit {error.code}); "
            "move what runs at import under if __name__ == '__main__'"
        ) from error


def input_shape(name: str) -> tuple[int, ...]:
    """Sizes of one input of that model, without the batch.

    The size that a listed, torchvision or timm model is published with; 3x224x224 for a model of your own.
    An optical flow model takes two such images, a detection model a list of them.
    """
    row = listed(name)
    if row:
        return row.shape
    from models import on_meta

    shape: tuple[int, ...] = on_meta.imported(_family(name)).input_shape(name)
    return shape


def parse_shape(text: str) -> tuple[int, ...]:
    """Sizes of one input from the command line's "3x64x64".

    Raises: ValueError where a size is not a whole number of 1 or more.
    """
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", text) or 0 in map(int, text.split("x")):
        raise ValueError(
            f"input shape {text!r}; give whole numbers of 1 or more joined by x, such as 3x224x224"
        )
    return tuple(map(int, text.split("x")))


def listed(name: str) -> Architecture | None:
    """The row of that name, None where it has none; `deeper_conv_net_N` has that of `deeper_conv_net`."""
    return ARCHITECTURES.get(re.sub(r"^(deeper_conv_net)_[0-9]+$", r"\1", name))


def unknown(name: str, others: Iterable[str]) -> UnknownArchitecture:
    """The error that lists the names near a wrong one, whatever their case, dashes and underscores."""
    spellings: dict[str, str] = {}
    for known in [*ARCHITECTURES, *others]:
        spellings.setdefault(_letters(known), known)
    near = [spellings[key] for key in difflib.get_close_matches(_letters(name), spellings, n=5)]
    names = f"near: {', '.join(near)}" if near else f"have {', '.join(ARCHITECTURES)} and all of torchvision"
    return UnknownArchitecture(f"unknown architecture {name!r}; {names}; or give pkg.module:factory")


def _letters(name: str) -> str:
    """The name without case and punctuation."""
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _family(name: str) -> str:
    """The module that knows names of this form that are not in the list."""
    if name.startswith("timm:"):
        return "models.timm_models"
    return "models.own" if ":" in name else "models.torchvision_models"
