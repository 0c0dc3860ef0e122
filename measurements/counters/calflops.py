"""calflops (MIT), which began as a copy of DeepSpeed's profiler.

Unit: MAC, its `macs`: multiply-adds of contractions. Its `flops` are twice that, with biases, normalization,
activations and pooling by the element on top. Mode: evaluation, which the package itself switches to. Device:
any, meta included. No gradients; include_backPropagation=True multiplies the forward pass by 3.
How: functions of torch.nn.functional, matmul, addmm, baddbmm and einsum are replaced by counting ones, which
add to the module that calls them; hooks on recurrent layers, whose MACs stay 0. Rows: one for each module.
It imports transformers, accelerate and huggingface_hub for models that it can download, and does not install
the first: modules that do nothing stand in for those that are missing. Nothing here calls them.
It runs in a process of its own: an error in a model leaves its functions in place.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from measurements.counters.adapter import Call, left_as_found, macs_of_functions, named, silenced


class StandIn(types.ModuleType):
    """A module that has every name: a function that says False, as of "is timm available?"."""

    def __getattr__(self, name: str) -> Callable[..., bool]:
        """That function."""
        if name.startswith("__"):  # whoever looks for a file or a path finds none
            raise AttributeError(name)
        return lambda *_, **__: False


for _name in ("transformers", "accelerate", "huggingface_hub"):
    if importlib.util.find_spec(_name) is None:
        sys.modules |= {part: StandIn(part) for part in (_name, f"{_name}.utils")}
with silenced():
    from calflops.calculate_pipline import CalFlopsPipline

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by calflops, two for each of its MACs, by module."""
    with left_as_found(step), named("calflops", step), silenced():
        call = Call(step).eval()  # as its calculate_flops does
        with torch.no_grad():
            call(
                *call.tensors
            )  # torch imports parts when first called, which must not meet replaced functions
        profiler = CalFlopsPipline(call, include_backPropagation=False, compute_bp_factor=2.0)
        return macs_of_functions(
            call, profiler.start_flops_calculate, profiler.get_total_macs, profiler.end_flops_calculate
        )
