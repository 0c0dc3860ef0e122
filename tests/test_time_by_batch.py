"""Does an image cost less time in a larger batch? The same step by each clock.

Study A saw it in four of five architectures and asked why not in VGG13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from measurements.clocks import CLOCKS

if TYPE_CHECKING:
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = [
    pytest.mark.experiment("A9"),
    pytest.mark.axes(
        arch=("resnet18", "resnet50", "vgg13", "alexnet", "mobilenet_v2"),
        device=("cpu", "cuda"),
        batch={"cpu": (1, 8), "cuda": (1, 64, 128)},
    ),
]


def test_an_image_in_a_batch(
    clock: str,
    trained_step: Step,
    dispatched: Counted,
    closed: Counted,
    time_rounds: Callable[..., Any],
) -> None:
    """Its FLOP are the theory's; its seconds are saved, and none of them is within a count."""
    assert dispatched.contraction == closed.contraction

    timing = time_rounds(trained_step, work=dispatched)

    timing.checked()
    assert all(seconds > 0 for seconds in timing.seconds), f"no time by the {clock} clock of {tuple(CLOCKS)}"
