"""As the batch grows LinearNet falls from 2:1 to 1:1, OneNet from 3:1 to 2:1, and ConvNet stays.

The ratio is (contractions of backward + update) / contractions of forward. Of a network of linear layers with
F FLOP in the first, O in the others and B biases it is 1 + O/(F + O) + (F + O + 2·B)/(N·(F + O)): the update
of SGD is a forward pass at batch 1, and 2 for each bias. So OneNet at batch 1 is a little above 3:1, which
the study takes for the maximum.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

import models
from measurements import theory
from measurements.counters import COUNTERS
from measurements.records import Phase

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B8")]

BATCHES = tuple(2**power for power in range(15))
TERMS = {"linear_net": theory.linear_net, "one_net": theory.one_net, "conv_net": theory.conv_net}

# FLOP of a sample forward, with c classes: (first layer, other layers, parameters).
NETS = {
    "linear_net": lambda c: (
        2 * 150528 * 4096,
        2 * (4096 * 128 + 128 * c),
        150529 * 4096 + 4097 * 128 + 129 * c,
    ),
    "one_net": lambda c: (2 * 4096, 2 * (4096 * 128 + 128 * c), 2 * 4096 + 4097 * 128 + 129 * c),
    "conv_net": lambda c: (
        2 * 112 * 112 * 32 * 147,
        2 * (28 * 28 * 64 * 1568 + 64 * c),
        32 * 147 + 64 * 1568 + 65 * c,
    ),
}


@pytest.fixture
def input_shape(arch):
    """The sizes that the study gives it, whatever --input-shape says."""
    return models.input_shape(arch)


@pytest.mark.axes(batch=BATCHES, counter=("dispatch",))
@pytest.mark.parametrize("optimizer", ["sgd"])
@pytest.mark.parametrize("arch", NETS)
def test_every_point_of_the_curve_is_the_closed_form(
    arch, step, optimizer, batch, classes, counter, record_work
):
    """All work and contractions by phase, and the ratio as a fraction."""
    work = record_work(counter(step))
    terms = TERMS[arch](classes, optimizer)
    first, others, parameters = NETS[arch](classes)

    by_phase = {phase: part.total for phase, part in work.by_phase().items()}
    assert by_phase == {phase: getattr(theory.flop_at(terms, batch), phase) for phase in Phase}
    assert work.contraction == theory.contraction_at(terms, batch)
    ratio = Fraction(work.contraction.backward + work.update, work.contraction.forward)
    assert ratio == theory.ratio(batch * first, batch * others, 2 * parameters)


@pytest.fixture(scope="module")
def curve():
    """A function from an architecture and classes to its counted ratios at all batches."""
    import torch

    from measurements.step import Step, make_optimizer

    def ratio(arch, classes, batch):
        with torch.device("meta"):
            model = models.build(arch, classes)
            x, targets = torch.rand(batch, *models.input_shape(arch)), torch.randint(classes, (batch,))
        step = Step(model, (x,), targets, optimizer=make_optimizer("sgd", model.parameters()))
        work = COUNTERS["dispatch"](step)
        return Fraction(work.contraction.backward + work.update, work.contraction.forward)

    return lambda arch, classes=10: [ratio(arch, classes, batch) for batch in BATCHES]


@pytest.mark.parametrize(("arch", "start", "end"), [("linear_net", 2, 1), ("one_net", 3, 2)])
def test_a_network_of_linear_layers_falls_from_its_start_to_its_end(arch, start, end, curve):
    """By the formula above; both ends within a hundredth, every larger batch lower."""
    first, others, parameters = NETS[arch](10)
    biases = 4096 + 128 + 10
    forward = first + others
    ratios = curve(arch)

    assert 2 * parameters == forward + 2 * biases
    assert ratios == [
        1 + Fraction(others, forward) + Fraction(forward + 2 * biases, batch * forward) for batch in BATCHES
    ]
    assert ratios == sorted(set(ratios), reverse=True)
    assert abs(ratios[0] - start) < Fraction(1, 100)
    assert abs(ratios[-1] - end) < Fraction(1, 100)


def test_one_net_exceeds_three_to_one_by_its_biases(curve):
    """At batch 1: their 2·(4096 + 128 + 10) FLOP exceed the 2·4096 that the first layer does not pay."""
    first, others, _ = NETS["one_net"](10)

    assert curve("one_net")[0] - 3 == Fraction(2 * (4096 + 128 + 10) - first, first + others) > 0


def test_conv_net_is_flat(curve):
    """From batch 1 on it moves by less than a thousandth: its update is 0.8 thousandths of a forward."""
    ratios = curve("conv_net")

    assert ratios == sorted(set(ratios), reverse=True)
    assert ratios[0] - ratios[-1] < Fraction(1, 1000)
    assert round(float(ratios[-1]), 4) == round(11 / 7, 4)
