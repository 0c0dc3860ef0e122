"""DeepSpeed's FlopsProfiler (Apache-2.0).

Unit: MAC, its `macs`: multiply-adds of contractions. Its `flops` are twice that, and biases, normalization,
activations and pooling by the element. Device: CPU; on meta, and on fake tensors, it counts Linear twice,
because meta kernels call replaced functions. Mode: the step's. No gradients; its report takes backward as
twice forward.
How: functions of torch and torch.nn.functional are replaced by counting ones, which add to the module that
calls them; hooks on recurrent layers, whose MACs stay 0. Rows: one for each module.
It runs in a process of its own: an error in a model leaves its functions in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.counters.adapter import Call, left_as_found, macs_of_functions, named, silenced

with silenced():  # it logs which accelerator it found
    from deepspeed.profiling.flops_profiler import FlopsProfiler

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by DeepSpeed, two for each of its MACs, by module."""
    with left_as_found(step), named("deepspeed", step), silenced():
        call = Call(step)
        profiler = FlopsProfiler(call)
        return macs_of_functions(call, profiler.start_profile, profiler.get_total_macs, profiler.end_profile)
