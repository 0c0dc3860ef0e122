"""Every model of timm, where it is installed: `timm:NAME`."""

from __future__ import annotations

from types import ModuleType

from torch import nn

from models import IMAGE, ArchitectureError, on_meta, unknown


def build(name: str, classes: int = 10) -> nn.Module:
    """The timm model of that name."""
    timm = _timm(name)
    model: nn.Module = timm.create_model(name.removeprefix("timm:"), pretrained=False, num_classes=classes)
    return model


def input_shape(name: str) -> tuple[int, ...]:
    """Sizes of one input, as timm publishes them."""
    published = _timm(name).get_pretrained_cfg(name.removeprefix("timm:"), allow_unregistered=True)
    return tuple(published.input_size) if published else IMAGE


def _timm(name: str) -> ModuleType:
    """The package, known to have that model."""
    try:
        timm = on_meta.imported("timm")
    except ModuleNotFoundError as error:
        raise ArchitectureError(f"{name!r} needs timm; has none: pip install timm") from error
    if not timm.is_model(name.removeprefix("timm:")):
        raise unknown(name, [f"timm:{known}" for known in timm.list_models()])
    return timm
