"""In the batch size N every operation costs a + b·N, and the few with an `a` have a name.

Contractions have none: they are exactly linear. The update is nothing but `a`. The mean of the loss would
have two that cancel: its N - 1 additions and its one division make N.
"""

from __future__ import annotations

import pytest

import models
from measurements.counters import COUNTERS
from measurements.records import Phase

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B5")]

BATCHES = tuple(2**power for power in range(10))

FORWARD, BACKWARD, UPDATE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE


def linear_net(c):
    """What LinearNet of c classes pays once: N rows of a bias gradient are N - 1 adds; SGD 2 a parameter."""
    parameters = (3 * 224 * 224 + 1) * 4096 + (4096 + 1) * 128 + (128 + 1) * c
    return {(BACKWARD, "aten.sum"): -(4096 + 128 + c), (UPDATE, "aten.add_"): 2 * parameters}


def resnet18(c):
    """What ResNet-18 pays once: besides those, the statistics of each normalized channel.

    Of the batch: ε, root and reciprocal 3. Running: mean 3, variance 3 and its correction 1.
    """
    stages = {64: 1 + 4, 128: 5, 256: 5, 512: 5}  # channels: normalizations, four and one in front or aside
    channels = sum(width * count for width, count in stages.items())
    weights = 64 * 3 * 49 + 4 * 64 * 64 * 9 + 512 * c + c + 2 * channels
    for width in (128, 256, 512):  # a block from half the width, one of the width, a 1x1 shortcut
        weights += (width // 2) * width * 9 + 3 * width * width * 9 + (width // 2) * width
    return {
        (FORWARD, "aten.native_batch_norm"): 10 * channels,
        (BACKWARD, "aten.sum"): -c,
        (UPDATE, "aten.add_"): 2 * weights,
    }


FIXED = {"linear_net": linear_net, "resnet18": resnet18}


@pytest.fixture(scope="module")
def laws():
    """A function from architecture and classes to a and b of each phase and operation, from two batches."""
    found = {}

    def law(arch, classes):
        if (arch, classes) not in found:
            one, two = (by_phase_and_op(COUNTERS["dispatch"](step_of(arch, classes, n))) for n in (1, 2))
            assert list(one) == list(two)
            found[arch, classes] = {key: (2 * one[key] - two[key], two[key] - one[key]) for key in one}
        return found[arch, classes]

    return law


def step_of(arch, classes, batch):
    """A training step with SGD, on meta."""
    import torch

    from measurements.step import Step, make_optimizer

    with torch.device("meta"):
        model = models.build(arch, classes)
        x, targets = torch.rand(batch, *models.input_shape(arch)), torch.randint(classes, (batch,))
    return Step(model, (x,), targets, optimizer=make_optimizer("sgd", model.parameters()))


def by_phase_and_op(work):
    """FLOP of each operation in each phase, all work."""
    return {(phase, op): part.total for phase in Phase for op, part in work.by_phase()[phase].by_op().items()}


@pytest.mark.axes(batch=BATCHES)
def test_every_operation_is_a_fixed_part_and_one_for_each_sample(batch, classes, laws, record_work):
    """LinearNet at every batch; the law is drawn from the first two."""
    work = record_work(COUNTERS["dispatch"](step_of("linear_net", classes, batch)), arch="linear_net")

    expected = {key: a + b * batch for key, (a, b) in laws("linear_net", classes).items()}
    assert by_phase_and_op(work) == expected


@pytest.mark.axes(batch=BATCHES)
def test_contractions_are_linear_and_the_update_is_constant(batch, classes):
    """By hand: the three layers of LinearNet for each sample, backward twice forward but for the first."""
    work = COUNTERS["dispatch"](step_of("linear_net", classes, batch))
    first, others = 2 * 3 * 224 * 224 * 4096, 2 * (4096 * 128 + 128 * classes)

    assert work.contraction.forward == (first + others) * batch
    assert work.contraction.backward == (first + 2 * others) * batch
    assert work.update == linear_net(classes)[UPDATE, "aten.add_"]


@pytest.mark.parametrize("arch", FIXED)
def test_what_does_not_grow_with_the_batch_is_named(arch, classes, laws):
    """The operations with a fixed part are these, and it is that large."""
    fixed = {key: a for key, (a, _) in laws(arch, classes).items() if a}

    assert fixed == FIXED[arch](classes)


@pytest.mark.parametrize("batch", [pytest.param(5, id="b005")])
@pytest.mark.parametrize("arch", FIXED)
def test_the_law_holds_beyond_the_batches_that_it_is_drawn_from(arch, batch, classes, laws, record_work):
    """With batch normalization, too."""
    work = record_work(COUNTERS["dispatch"](step_of(arch, classes, batch)))

    assert by_phase_and_op(work) == {key: a + b * batch for key, (a, b) in laws(arch, classes).items()}
