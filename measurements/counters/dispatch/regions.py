"""What code a thread is in that is no module: an optimizer's step, a checkpoint's forward done again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.amp.grad_scaler
import torch.nn.utils.clip_grad
from torch.utils import checkpoint


class Regions:
    """The record functions that one thread is in; an optimizer's step is one."""

    def __init__(self) -> None:
        """In none."""
        self.outer: list[int | None] = []
        self.step: int | None = None  # the graph task that the innermost step runs in, -1 outside of backward

    def change(self, change: int, args: tuple[Any, ...]) -> None:
        """A record function opens (+1) or closes (-1)."""
        if change > 0:
            self.outer.append(self.step)
            if str(args[0]).startswith("Optimizer.step#"):
                self.step = torch._C._current_graph_task_id()
        elif self.outer:
            self.step = self.outer.pop()

    def enter_step(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An optimizer starts its step: its closure runs outside of the update."""
        given = [self._outside_of_update(value) for value in arguments[1:]]
        named = {
            key: self._outside_of_update(value) if key == "closure" else value
            for key, value in keywords.items()
        }
        return (arguments[0], *given), named

    def _outside_of_update(self, value: Any) -> Any:
        if not callable(value):
            return value

        def called_by_optimizer() -> Any:
            inside, self.step = self.step, None
            try:
                return value()
            finally:
                self.step = inside

        return called_by_optimizer


_CLIPPING = str(torch.nn.utils.clip_grad.__file__)
_OPTIM = str(torch.optim.__path__[0])
_SCALER = (str(torch.amp.grad_scaler.__file__), ("unscale_", "step", "update"))


def called_from_update_code() -> bool:
    """Whether the caller's caller is torch's gradient clipping or scaling, or anything in torch.optim.

    A closure that an optimizer calls is not.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name, code = frame.f_code.co_filename, frame.f_code.co_name
        if name == __file__ and code == "called_by_optimizer":
            return False
        if name == _CLIPPING or name.startswith(_OPTIM) or (name == _SCALER[0] and code in _SCALER[1]):
            return True
        frame = frame.f_back
    return False


_SHARDING = "_sharding_prop.py"


def in_sharding_propagation() -> bool:
    """Whether a distributed tensor runs this operation on fake tensors, once, to learn the sizes it gives."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_SHARDING):
            return True
        frame = frame.f_back
    return False


class _Again(threading.local):
    depth = 0


again = _Again()
"""Its depth is above 0 where this thread runs a forward again for a checkpoint that is not reentrant."""

_lock = threading.Lock()
_watchers = 0


def watch_recomputation() -> Callable[[], None]:
    """Notices when torch's checkpointing runs a forward again; gives a function that ends the watch.

    Torch announces it by entering a hook of its own class: while anybody watches, that class counts its
    entries.
    """
    global _watchers
    with _lock:
        _watchers += 1
        if _watchers == 1:
            checkpoint._recomputation_hook.__enter__ = _enter  # type: ignore[method-assign]
            checkpoint._recomputation_hook.__exit__ = _exit  # type: ignore[method-assign]

    def end() -> None:
        global _watchers
        with _lock:
            _watchers -= 1
            if _watchers == 0:
                del checkpoint._recomputation_hook.__enter__
                del checkpoint._recomputation_hook.__exit__

    return end


def _enter(self: Any) -> Any:
    again.depth += 1
    return super(checkpoint._recomputation_hook, self).__enter__()


def _exit(self: Any, *error: Any) -> Any:
    again.depth -= 1
    return super(checkpoint._recomputation_hook, self).__exit__(*error)
