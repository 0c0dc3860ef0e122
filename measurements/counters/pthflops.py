"""pthflops' count_ops in its default mode, torch.fx (BSD).

Unit: MAC, which the package calls FLOPs. Mode: evaluation, which the package itself switches to. Device: any,
meta included.
How: torch.fx traces the model without running it, then runs the graph node by node; modules count by their
type, functions where they are named add, mul or matmul. Rows: one for each node.
It takes models of one positional tensor. Its other mode, torch.jit, calls a function that torch no longer has
(torch.onnx._optimize_trace).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from measurements.counters import CounterError
from measurements.counters.adapter import left_as_found, macs, named, silenced

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # distutils at import
    from pthflops import count_ops

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of the forward pass by pthflops, two for each of its MACs, by node of the traced graph.

    Raises: CounterError where the inputs are not one tensor.
    """
    given = step.inputs
    tensor = given[0] if isinstance(given, tuple | list) and len(given) == 1 else given
    if not isinstance(tensor, torch.Tensor):
        raise CounterError(
            f"pthflops cannot count {type(step.model).__name__}: it takes one tensor as input; "
            "leave this counter out"
        )
    with left_as_found(step), named("pthflops", step), silenced():
        _, nodes = count_ops(step.model, tensor, print_readable=False, verbose=True)
    names = {path.replace(".", "_"): path for path, _ in step.model.named_modules() if path}
    root = type(step.model).__name__
    return macs([(node, f"{root}.{names[node]}" if node in names else root, own) for node, own in nodes])
