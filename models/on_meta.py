"""Building on the meta device, also where a constructor reads numbers from a tensor, as RegNet's does."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _EmptyOnMeta(TorchFunctionMode):
    """Memory for weights (`torch.empty`) on meta, every other tensor where it would be anyway."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """The call, on meta where it only asks for memory."""
        kwargs = dict(kwargs or {})
        if func is torch.empty and kwargs.get("device") is None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def imported(module: str) -> ModuleType:
    """The module, imported with tensors on the CPU: on meta, torch 2.7.1 fails to import torchvision."""
    with torch.device("cpu"):
        return importlib.import_module(module)


def build(builder: Callable[[str, int], nn.Module], name: str, classes: int) -> nn.Module:
    """What the builder builds, on torch's current default device."""
    try:
        return builder(name, classes)
    except Exception as error:
        # torch has no one type for "a meta tensor has no numbers"; all of its messages name the device
        if torch.empty(0).device.type != "meta" or "meta" not in str(error):
            raise
    with torch.device("cpu"), _EmptyOnMeta():
        return builder(name, classes).to("meta")
