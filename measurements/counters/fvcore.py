"""fvcore's FlopCountAnalysis (Apache-2.0).

Unit: MAC, which the package calls flop. Device: the trace needs tensors that hold numbers; it fails on meta.
Mode: the step's own. The package does not change it, and charges BatchNorm 5 for each element in training
and 2 in evaluation; either way `differences` reads the mode from the operation.
How: torch.jit traces one forward pass, without gradients; operators of the graph without a formula count 0.
Rows: one for each module and operator, by fvcore's operator names.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

import torch

from measurements.counters.adapter import Call, left_as_found, macs, named

with warnings.catch_warnings():
    # fvcore scripts functions at import, which torch has deprecated; under -W error it would not import.
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    from fvcore.nn import FlopCountAnalysis

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by fvcore, two for each of its MACs, by module and operator."""
    with left_as_found(step), named("fvcore", step), torch.no_grad():
        call = Call(step)
        analysis = FlopCountAnalysis(call, call.tensors)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        counts = analysis.by_module_and_operator()
    return macs([(op, call.path(name), own[op]) for name, own in _own(counts).items() for op in own])


def _own(counts: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """MAC by module and operator without what ran in its children; in `counts` a module includes them."""
    own = {name: Counter(by_op) for name, by_op in counts.items()}
    for name, by_op in counts.items():
        if name:
            own[name.rpartition(".")[0]].subtract(by_op)
    return own
