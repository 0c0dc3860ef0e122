"""With depth the ratio of a convolutional network rises from 11/7 to 2, while the update is paid once.

DeeperConvNet applies one 3x3 convolution n times between two 7x7 ones. At n = 0 the two stand to each other
as 3 to 4, as in ConvNet, so that backward is (3 + 2·4) / (3 + 4) of forward: 1.571 (with SGD's update at
batch 1 1.572). Its pool has no padding and leaves 55x55 where ConvNet's leaves 56x56, which the next
convolution's stride turns into 28x28 either way: the contractions of the two are the same, though not all
work (ConvNet pools a second time). The weight that is applied n times has one gradient, summed n - 1 times in
backward, and is updated once; at n = 0 it has no gradient, and is not updated.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from measurements import theory
from measurements.records import Phase

pytestmark = [
    pytest.mark.theory,
    pytest.mark.experiment("B6"),
    pytest.mark.axes(batch=(1,), counter=("dispatch",)),
]

DEPTHS = (0, 1, 2, 5, 10, 20, 50, 100)
APPLIED = 32 * (32 * 3 * 3)  # weights of the convolution that is applied n times

depths = pytest.mark.parametrize("arch", [f"deeper_conv_net_{n:03}" for n in DEPTHS])
sgd = pytest.mark.parametrize("optimizer", ["sgd"])


@pytest.fixture
def input_shape():
    """The study's images, whatever --input-shape says."""
    return (3, 224, 224)


def first(batch):
    """Forward FLOP of the first convolution: 7x7 of 3 channels at 112x112 places."""
    return 2 * batch * 112 * 112 * 32 * (3 * 7 * 7)


def others(n, batch, classes):
    """Forward FLOP of the others: n times 3x3 of 32 channels at 55x55, 7x7 of 32 at 28x28, the classifier."""
    return 2 * batch * (n * 55 * 55 * APPLIED + 28 * 28 * 64 * (32 * 7 * 7) + 64 * classes)


def weights(classes):
    """Parameters that have a gradient at any depth, without the convolution in the middle."""
    return 32 * (3 * 7 * 7) + 64 * (32 * 7 * 7) + 64 * classes + classes


@depths
@sgd
def test_every_depth_costs_its_closed_form(arch, step, optimizer, batch, classes, counter, record_work):
    """By hand, and from the layers: a row for each time that the shared convolution is applied."""
    from measurements.layers import layers_of

    n = int(arch.rpartition("_")[2])
    work = record_work(counter(step), depth=n)
    closed = theory.closed_form(layers_of(step.model, step.inputs)).contraction

    assert work.contraction.forward == first(batch) + others(n, batch, classes)
    assert work.contraction.backward == first(batch) + 2 * others(n, batch, classes)
    assert (closed.forward, closed.backward) == (work.contraction.forward, work.contraction.backward)


@depths
@sgd
def test_the_shared_weight_is_summed_n_minus_one_times_and_updated_once(
    arch, step, optimizer, classes, counter
):
    """The update does not know the depth, but for 0, where the weight takes no part."""
    n = int(arch.rpartition("_")[2])
    work = counter(step)
    sums = work.by_phase()[Phase.BACKWARD].by_op().get("aten.add")

    assert work.update == 2 * (weights(classes) + (APPLIED if n else 0))
    assert (sums.backward if sums else 0) == max(n - 1, 0) * APPLIED


def test_the_ratio_rises_from_eleven_sevenths_to_two(classes, run_at):
    """Exactly 2 less the first convolution's share of forward: within 1/49 at a depth of 100."""
    works = {n: run_at(f"deeper_conv_net_{n}", classes) for n in DEPTHS}
    ratios = [Fraction(work.contraction.backward, work.contraction.forward) for work in works.values()]
    with_update = [
        Fraction(work.contraction.backward + work.update, work.contraction.forward) for work in works.values()
    ]

    assert ratios == [theory.ratio(first(1), others(n, 1, classes)) for n in DEPTHS]
    assert ratios == [2 - Fraction(first(1), first(1) + others(n, 1, classes)) for n in DEPTHS]
    assert ratios == sorted(set(ratios))
    assert Fraction(97, 49) < ratios[-1] < 2
    assert with_update == sorted(set(with_update))
    assert with_update[-1] < 2


def test_without_depth_it_is_eleven_sevenths_and_conv_net_s_contractions(classes, run_at):
    """3 to 4, and a classifier of 64·c multiply-adds that moves the eighth digit."""
    work = run_at("deeper_conv_net_0", classes)
    unit = 28 * 28 * 64 * (32 * 7 * 7) // 4

    ratio = Fraction(work.contraction.backward, work.contraction.forward)
    assert first(1) == 2 * 3 * unit
    assert ratio == Fraction(11 * unit + 2 * 64 * classes, 7 * unit + 64 * classes)
    assert round(float(ratio), 4) == 1.5714
    with_update = Fraction(work.contraction.backward + work.update, work.contraction.forward)
    assert round(float(with_update), 3) == 1.572
    conv_net = theory.contraction_at(theory.conv_net(classes), 1)
    assert (work.contraction.forward, work.contraction.backward) == (conv_net.forward, conv_net.backward)
    assert work.forward != theory.flop_at(theory.conv_net(classes), 1).forward


@pytest.fixture(scope="module")
def run_at():
    """A function from an architecture to the work of its step at batch 1, with SGD."""
    import torch

    import models
    from measurements import count_step

    def work(arch, classes):
        with torch.device("meta"):
            model, x = models.build(arch, classes), torch.rand(1, 3, 224, 224)
            return count_step(model, x, torch.randint(classes, (1,)), optimizer="sgd")

    return work
