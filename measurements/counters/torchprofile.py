"""torchprofile's profile_macs (MIT).

Unit: MAC. Device: the trace needs tensors that hold numbers; it fails on meta. Mode: the step's.
How: torch.jit traces one forward pass, and nodes of the graph have formulas by operator; normalization,
pooling and products of elements count one for each output. Rows: one for each node; their scopes are empty.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torchprofile import profile_macs

from measurements.counters.adapter import Call, left_as_found, macs, named

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by torchprofile, two for each of its MACs, by node of the traced graph."""
    with left_as_found(step), named("torchprofile", step), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operators without a formula
        call = Call(step)
        nodes: Any = profile_macs(call, call.tensors, reduction=None)
    return macs([(node.operator, "", found) for node, found in nodes.items()])
