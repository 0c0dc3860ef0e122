"""The suite's own counter: every ATen operation that really runs, in every phase, on any device.

A TorchDispatchMode sees each operation below autograd. How it knows where an operation belongs:
phase    backward: inside autograd's graph task, on any thread. Update: inside an optimizer's step (which
         announces itself by a record function "Optimizer.step#…"), torch's gradient clipping and unscaling.
         Else forward. A closure that the optimizer calls keeps its own phases. An update written by hand is
         one inside `torch.profiler.record_function("Optimizer.step#mine")`.
module   forward: a stack kept by global module hooks. Backward: the module whose operation made the autograd
         node (matched by the node's sequence number).
again    work inside torch's activation checkpointing that repeats the forward: reentrant under its own node,
         the other kind inside its unpack hook. Gradients of gradients are no repetition.
Cost: one lookup for each operation, which only logs it; the log becomes OpRecords when somebody reads it, and
equal operations in the same place share one.
"""

from measurements.counters.dispatch.entry import (
    Counting,
    check,
    count,
    count_in_place,
    count_step,
    counting,
)
from measurements.counters.dispatch.mode import UnknownOp, UnknownOpWarning
from measurements.counters.dispatch.plans import plan_for

__all__ = [
    "Counting",
    "UnknownOp",
    "UnknownOpWarning",
    "check",
    "count",
    "count_in_place",
    "count_step",
    "counting",
    "plan_for",
]
