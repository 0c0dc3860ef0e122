"""Does backward take twice the time of forward? Each phase by itself, each against its own FLOP.

FLOP are in the closed form's ratio, for certain; seconds need not be, since a phase moves bytes, too.
soumith/convnet-benchmarks has backward : forward times of 1.96 to 2.62 on a Titan X.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from measurements.records import Work

if TYPE_CHECKING:
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = [
    pytest.mark.experiment("A10"),
    pytest.mark.axes(device=("cpu", "cuda"), batch={"cpu": (8,), "cuda": (64,)}, optimizer=("sgd",)),
]


@pytest.mark.parametrize("phase", ["forward", "backward", "update"])
def test_a_phase(
    phase: str,
    optimizer: str,
    trained_step: Step,
    dispatched: Counted,
    closed: Counted,
    time_rounds: Callable[..., Any],
) -> None:
    """An update has no contraction: it is timed, and has no utilization."""
    assert dispatched.contraction == closed.contraction
    work = Work(dispatched.by_phase()[phase].records)

    timing = time_rounds(trained_step, phase, work=work)

    timing.checked()
    assert bool(timing.utilizations) == (phase != "update")
