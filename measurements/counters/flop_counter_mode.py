"""PyTorch's own counter, torch.utils.flop_counter.FlopCounterMode (torch, BSD-3-Clause).

Unit: FLOP, a multiply-add is 2. Device: any, meta included. Mode: the step's.
How: a dispatch mode with formulas for matrix products, convolution and attention; an operation without one
is decomposed or counts 0 (mv, dot, attention and recurrent layers that run fused on a CPU).
Phases: one context around forward and backward, read between the two. The update is not run: of the
optimizers only those that multiply matrices would count there.
Rows: one for each operator and phase. The mode's own rows by module are wrong in backward and left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.flop_counter import FlopCounterMode

from measurements.counters.adapter import left_as_found, named
from measurements.records import OpRecord, Phase, Work

if TYPE_CHECKING:
    from measurements.step import Step


def count(step: Step) -> Work:
    """FLOP of forward and backward by FlopCounterMode, by operator."""
    with left_as_found(step), named("flop_counter_mode", step), FlopCounterMode(display=False) as mode:
        loss = step.forward()
        forward = _by_op(mode)
        step.backward(loss)
        both = _by_op(mode)
    backward = {op: flop - forward.get(op, 0) for op, flop in both.items()}
    return Work((*_rows(Phase.FORWARD, forward), *_rows(Phase.BACKWARD, backward)))


def _by_op(mode: FlopCounterMode) -> dict[str, int]:
    """FLOP so far by operator."""
    return {str(op): flop for op, flop in mode.get_flop_counts().get("Global", {}).items()}


def _rows(phase: Phase, by_op: dict[str, int]) -> list[OpRecord]:
    """One row for each operator that counted."""
    return [OpRecord(phase, op, flop=flop, contraction=flop) for op, flop in by_op.items() if flop]
