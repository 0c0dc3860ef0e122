"""Whether a count is linear in the batch, forward and backward.

Contractions are, exactly. A counter is where what it reports beyond them is: where that is not linear, its
row in the table of differences names the operation. Counters that compute get small images (32 x
32), others 224 x 224 on meta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import models
from measurements.counters import COUNTERS, differences
from measurements.counters.differences import explained
from measurements.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.counters import Counter
    from measurements.counters.differences import Seen
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = [pytest.mark.experiment("A2"), pytest.mark.axes(batch=(64, 128))]

SMALL = (3, 64, 64)
SMALLER = (3, 32, 32)
OTHERS = tuple(name for name, row in COUNTERS.items() if row.package)


@pytest.fixture
def input_shape(input_shape: tuple[int, ...], device: str, arch: str, batch: int) -> tuple[int, ...]:
    """Sizes of one image: small ones for counters that compute, unless the option gives others."""
    usual = input_shape == models.input_shape(arch)
    small = (
        SMALL if arch in ("alexnet", "mobilenet_v2") else SMALLER
    )  # what it takes, one alone in training too
    return small if usual and device != "meta" and batch > 1 else input_shape


@pytest.fixture
def one(worked_out: dict[object, Counted], arch: str, classes: int, input_shape: tuple[int, ...]) -> Counted:
    """The closed form of the same step with a single image."""
    import torch

    from measurements import theory
    from measurements.layers import layers_of

    key = ("one", arch, classes, input_shape)
    if key not in worked_out:
        with torch.device("meta"):
            model = models.build(arch, classes).eval()  # a single value has no statistics to train on
            worked_out[key] = theory.closed_form(layers_of(model, (torch.rand(1, *input_shape),)))
    return worked_out[key]


@pytest.mark.theory
@pytest.mark.experiment("A3")
@pytest.mark.axes(batch=(1, 64, 128), counter=("dispatch", "closed_form"))
def test_contractions_are_linear_in_the_batch(
    request: pytest.FixtureRequest,
    batch: int,
    counter: Counter,
    one: Counted,
    record_work: Callable[..., Counted],
) -> None:
    """N images cost N times one image, forward and backward."""
    seen = {"dispatch": "dispatched", "closed_form": "closed"}[counter.name]
    work = record_work(request.getfixturevalue(seen)).contraction

    assert work.forward == batch * one.contraction.forward
    assert work.backward == batch * one.contraction.backward


@pytest.mark.counters
@pytest.mark.axes(counter=OTHERS)
def test_a_counter_is_linear_less_what_is_explained(
    step: Step,
    seen: Seen,
    batch: int,
    counter: Counter,
    one: Counted,
    record_work: Callable[..., Counted],
) -> None:
    """Without the rows of the table of differences, N images cost N times one image (a batch of one: A1)."""
    work = record_work(counter(step)).contraction

    for phase in counter.phases:
        beyond = sum(amount for _, amount in explained(counter.name, phase, seen))
        assert getattr(work, phase) - beyond == batch * getattr(one.contraction, phase)


NAMED = ("alexnet", "mobilenet_v2")
NOT_LINEAR = {
    ("ptflops_pytorch", "alexnet"): {
        "aten.relu_",
        "aten.max_pool2d_with_indices",
        "aten._adaptive_avg_pool2d",
    },
    ("ptflops_pytorch", "mobilenet_v2"): {"aten.mean"},
    ("pthflops", "alexnet"): {"aten.addmm"},
    ("pthflops", "mobilenet_v2"): {"aten.addmm"},
}
"""What ptflops replaces as a function counts for the whole batch, in a report for one sample; pthflops counts
the bias of a linear layer once, whatever the batch."""


@pytest.mark.counters
@pytest.mark.axes(
    arch=NAMED,
    batch=(64,),
    counter=tuple(name for name in OTHERS if Phase.BACKWARD not in COUNTERS[name].phases),
)
def test_the_operations_that_break_linearity_are_named(
    arch: str, batch: int, counter: Counter, seen: Seen, of_one: Seen
) -> None:
    """Where a row's amount for N images is not N times its amount for one."""
    for_one = {row.op: 0 for row, _ in explained(counter.name, Phase.FORWARD, of_one)}
    for row, amount in explained(counter.name, Phase.FORWARD, of_one):
        for_one[row.op] += amount
    for_all = dict.fromkeys(for_one, 0)
    for row, amount in explained(counter.name, Phase.FORWARD, seen):
        for_all[row.op] += amount

    broken = {op for op, amount in for_all.items() if amount != batch * for_one[op]}
    assert broken == NOT_LINEAR.get((counter.name, arch), set())


@pytest.fixture
def of_one(arch: str, classes: int, input_shape: tuple[int, ...], counter: Counter) -> Seen:
    """What the dispatch counter sees of the same step with a single image, which not every network takes."""
    if arch not in NAMED:
        pytest.skip(f"needs {' or '.join(NAMED)}; has {arch}")
    import torch

    from measurements.step import Step

    with torch.device("meta"):
        step = Step(
            models.build(arch, classes), (torch.rand(1, *input_shape),), torch.zeros(1, dtype=torch.long)
        )
        return differences.seen(counter.name, step)
