"""Every model of torchvision: classification, segmentation, detection, video and optical flow."""

from __future__ import annotations

import inspect

from torch import nn
from torchvision.models import get_model, get_model_builder, get_model_weights, list_models

from models import IMAGE, unknown

# These families initialize their weights a second time unless told not to, and no count depends on that.
# GoogLeNet and Inception also warn where they are told nothing.
INIT_WEIGHTS = ("vgg", "googlenet", "inception")
# Sources: torchvision's references/video_classification (16 frames a clip) and references/optical_flow.
FRAMES = 16
FLOW_IMAGE = (3, 512, 512)


def build(name: str, classes: int = 10) -> nn.Module:
    """The model of that name as torchvision builds it by default, auxiliary classifiers included."""
    options: dict[str, object] = {"weights": None}
    kind = _kind(name)
    if kind != "optical_flow":
        options["num_classes"] = classes
    if "weights_backbone" in inspect.signature(get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    if name.removeprefix("quantized_").startswith(INIT_WEIGHTS):
        options["init_weights"] = False
    model: nn.Module = get_model(name, **options)
    return model


def input_shape(name: str) -> tuple[int, ...]:
    """Sizes of one input: the smallest crop with published weights, which is what the builder expects."""
    kind = _kind(name)
    if kind == "optical_flow":
        return FLOW_IMAGE
    sizes: list[int] = []
    for weights in get_model_weights(name):
        preset = weights.transforms()
        sizes += getattr(preset, "crop_size", None) or getattr(preset, "resize_size", None) or []
    if not sizes:
        return IMAGE
    image = (min(sizes), min(sizes))
    return (3, FRAMES, *image) if kind == "video" else (3, *image)


def _kind(name: str) -> str:
    """The part of torchvision.models with that model: "video", "detection", …; a classifier's own file."""
    known = list_models()
    if name not in known:
        raise unknown(name, known)
    module: str = get_model_builder(name).__module__
    return module.removeprefix("torchvision.models.").split(".")[0]
