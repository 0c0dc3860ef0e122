"""PyTorch's two profilers with with_flops=True (torch, BSD-3-Clause).

Unit: FLOP, a multiply-add is 2. Device: CPU (on meta they also see the operations inside of Python's meta
kernels). Mode: the step's.
How: the profiler keeps the sizes of every operator that runs and has formulas for seven: conv2d, mm, addmm,
bmm, baddbmm, and mul and add by the elements of their first argument. All others count 0, the backward of a
convolution and every in-place operation among them.
Phases: one profile around forward, another around backward. Rows: one for each operator and phase.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from measurements.counters.adapter import left_as_found, named, silenced
from measurements.records import OpRecord, Phase, Work

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes to the terminal when it starts and stops

if TYPE_CHECKING:
    from measurements.step import Step


def count_torch(step: Step) -> Work:
    """FLOP of forward and backward by torch.profiler.profile, by operator."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    return _count("torch_profiler", step, lambda: torch.profiler.profile(activities=cpu, with_flops=True))


def count_autograd(step: Step) -> Work:
    """FLOP of forward and backward by torch.autograd.profiler.profile, by operator."""
    return _count("autograd_profiler", step, lambda: torch.autograd.profiler.profile(with_flops=True))


def _count(name: str, step: Step, profile: Callable[[], AbstractContextManager[Any]]) -> Work:
    with left_as_found(step), named(name, step), silenced():
        with profile() as forward:
            loss = step.forward()
        with profile() as backward:
            step.backward(loss)
        return Work((*_rows(Phase.FORWARD, forward), *_rows(Phase.BACKWARD, backward)))


def _rows(phase: Phase, profile: Any) -> Iterable[OpRecord]:
    """One row for each operator that counted."""
    return [
        OpRecord(phase, event.key, flop=int(event.flops), contraction=int(event.flops))
        for event in profile.key_averages()
        if event.flops
    ]
