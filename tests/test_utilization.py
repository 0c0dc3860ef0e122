"""How much of the device does training use? Study A's four methods, each in two conventions.

theory  forward FLOP by fvcore, x 3, over the time of a batch
one     forward and backward FLOP, over the time of a batch of one image
batch   the same of a whole batch
epoch   the same of all images, in batches, over the time of all of them

The time is that of the whole step. The FLOP of the last three are the dispatch counter's, which the closed
form confirms before anything is timed; those of study A were its own profiler's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from measurements.counters import COUNTERS

if TYPE_CHECKING:
    from measurements.options import Given
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = [pytest.mark.experiment("A11"), pytest.mark.axes(device=("cpu", "cuda"))]

in_batches = pytest.mark.axes(batch={"cpu": (8,), "cuda": (64,)})

EPOCH_IMAGES = {"cpu": 32, "cuda": 10_000}


@pytest.fixture
def counted(dispatched: Counted, closed: Counted) -> Counted:
    """What a batch costs, by the counter and by the theory."""
    assert dispatched.contraction == closed.contraction
    return dispatched


@in_batches
def test_by_theory(
    build_step: Callable[[str], Step], trained_step: Step, counted: Counted, time_rounds: Callable[..., Any]
) -> None:
    """Three times fvcore's forward is less than the first layer's input gradient above the count."""
    fvcore = COUNTERS["fvcore"]
    if reason := fvcore.why_not():
        pytest.skip(reason)
    forward = fvcore(build_step("cpu")).contraction.forward

    time_rounds(trained_step, flop=3 * forward, counter="fvcore", method="theory").checked()


@pytest.mark.parametrize("batch", [1], ids=["b001"])
def test_of_one_image(trained_step: Step, counted: Counted, time_rounds: Callable[..., Any]) -> None:
    """The least that a step can be."""
    time_rounds(trained_step, work=counted, method="one").checked()


@in_batches
def test_of_a_batch(trained_step: Step, counted: Counted, time_rounds: Callable[..., Any]) -> None:
    """As one trains."""
    time_rounds(trained_step, work=counted, method="batch").checked()


@in_batches
def test_of_an_epoch(
    given: Given,
    device: str,
    batch: int,
    input_shape: tuple[int, ...],
    classes: int,
    trained_step: Step,
    counted: Counted,
    time_rounds: Callable[..., Any],
) -> None:
    """All images once; contraction FLOP are linear in them, so that a smaller last batch needs no count."""
    from measurements import images

    wanted = given.epoch_images or EPOCH_IMAGES[device]
    assert model_flop(counted) % batch == 0

    time_rounds(
        trained_step,
        flop=model_flop(counted) // batch * wanted,
        epoch=images.of_an_epoch(given.data, given.data_root, wanted, batch, input_shape, classes),
        rounds=len(images.sizes(wanted, batch)),
        method="epoch",
        images=wanted,
        data=given.data,
    ).checked()


def model_flop(work: Counted) -> int:
    """Contraction FLOP, forward and backward."""
    return work.contraction.forward + work.contraction.backward
