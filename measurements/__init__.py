"""FLOP of a training step, counted exactly and held against a theory.

`counting` and `count_step` are imported when they are first asked for: this package costs nothing at
collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measurements.counters.dispatch import UnknownOp, count_step, counting

__all__ = ["METHOD", "UnknownOp", "count_step", "counting"]

METHOD = 1
"""Raised when counting or timing changes its meaning; stored in every saved run. CHANGELOG.md says how."""


def __getattr__(name: str) -> object:
    """The lazy names: torch is imported with them and not before."""
    if name in ("UnknownOp", "count_step", "counting"):
        from measurements.counters import dispatch

        return getattr(dispatch, name)
    raise AttributeError(f"module 'measurements' has no attribute {name!r}")
