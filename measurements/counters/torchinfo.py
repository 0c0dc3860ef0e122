"""torchinfo's summary (MIT).

Unit: MAC, its `total_mult_adds`. Mode: evaluation, which the package itself switches to. Device: any, meta
included. No gradients.
How: a hook on every module; what it counts is made of parameters: each of a convolution's (biases too) once
for each position of the output, each other parameter once for each sample, whatever the other dimensions.
Rows: one for each module without children, each time that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchinfo import summary, torchinfo

from measurements.counters.adapter import Call, left_as_found, macs, named, silenced

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by torchinfo, two for each of its MACs, by module."""
    with left_as_found(step), named("torchinfo", step), silenced():
        call = Call(step)
        try:
            found = summary(call, input_data=list(call.tensors), mode="eval", verbose=0)
        finally:
            torchinfo._cached_forward_pass.clear()  # it holds on to every model
    names = {id(module): name for name, module in call.named_modules()}
    leaves = [layer for layer in found.summary_list if layer.is_leaf_layer]
    return macs([("parameters", call.path(names[layer.layer_id]), layer.macs) for layer in leaves])
