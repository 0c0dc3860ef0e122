"""thop (MIT) and its continuation ultralytics-thop (AGPL-3.0), which installs the same module.

Unit: MAC. Mode: evaluation, which the package itself switches to. Device: any, meta included. No gradients.
How: forward hooks on modules, by the module's type; modules of other types count 0. The continuation walks a
type's ancestors, knows transposed convolution and attention, and also sees products that run as functions.
Rows: one for each module; of the continuation one more, "functional", for all functions together.

Each runs in a process of its own, with its own folder first on the path.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from measurements.counters.adapter import Call, left_as_found, macs, named, silenced

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by the module `thop` on the path, two for each of its MACs, by module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # distutils at import
        from thop import profile
    with left_as_found(step), named("thop", step), silenced():
        call = Call(step)
        total, _, tree = profile(call, inputs=call.tensors, verbose=False, ret_layer_info=True)
    by_module = _by_module(tree)
    rows = [("hook", call.path(name), own) for name, own in by_module.items()]
    return macs([*rows, ("functional", "", int(total) - sum(by_module.values()))])


def _by_module(tree: dict[str, tuple[float, float, Any]], parent: str = "") -> dict[str, int]:
    """MAC of each module without its children's, which its own figure includes."""
    found: dict[str, int] = {}
    for child, (total, _, children) in tree.items():
        name = f"{parent}.{child}" if parent else child
        below = _by_module(children, name)
        found |= {name: int(total) - sum(int(mac) for mac, _, _ in children.values())} | below
    return found
