"""The four regimes of the ratio are limits that real networks come ever closer to.

Two linear layers without bias, trained by SGD. At scale s one of them has s weights, the other one; the batch
is s where the update shall be negligible, and 1 where it shall be large.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest

from measurements import theory
from measurements.counters import COUNTERS

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B2")]

SCALES = [10**power for power in range(1, 7)]

# For each of theory.REGIMES: sizes of the chain (inputs, between, outputs), the batch, and how far the ratio
# is from its limit. Forward is 2·N·(s + 1) in all four, the update 2·(s + 1): update / forward = 1 / N.
# Backward / forward is (s + 2) / (s + 1) where the first layer has the s weights, (2·s + 1) / (s + 1) where
# the second has.
NETS = (
    (lambda s: ((s, 1, 1), s), lambda s: Fraction(1, s + 1) + Fraction(1, s)),
    (lambda s: ((s, 1, 1), 1), lambda s: Fraction(1, s + 1)),
    (lambda s: ((1, 1, s), s), lambda s: Fraction(1, s) - Fraction(1, s + 1)),
    (lambda s: ((1, 1, s), 1), lambda s: -Fraction(1, s + 1)),
)


def spelled(name):
    """The regime's name as an id."""
    return name.replace(", ", "-").replace(" ", "_")


def step_of(sizes, batch):
    """A training step of the chain of linear layers, on meta."""
    import torch
    from torch import nn

    from measurements.step import Step, make_optimizer

    with torch.device("meta"):
        layers = (nn.Linear(*pair, bias=False) for pair in pairwise(sizes))
        model = nn.Sequential(*layers)
        return Step(model, torch.ones(batch, sizes[0]), optimizer=make_optimizer("sgd", model.parameters()))


@pytest.mark.parametrize(
    ("regime", "net", "away"),
    [(regime, *net) for regime, net in zip(theory.REGIMES, NETS, strict=True)],
    ids=[spelled(regime.name) for regime in theory.REGIMES],
)
def test_a_network_comes_ever_closer_to_its_regime(regime, net, away, record_work):
    """Each tenfold scale is nearer, by exactly the formula; the last is within 1/100000."""
    ratios = []
    for scale in SCALES:
        sizes, batch = net(scale)
        work = record_work(COUNTERS["dispatch"](step_of(sizes, batch)), regime=regime.name, scale=scale)
        ratios.append(Fraction(work.contraction.backward + work.update, work.contraction.forward))

    distances = [abs(ratio - regime.limit) for ratio in ratios]
    assert ratios == [regime.limit + away(scale) for scale in SCALES]
    assert distances == sorted(set(distances), reverse=True)
    assert distances[-1] < Fraction(1, 100_000)


@pytest.mark.parametrize("scale", [1, 3, 1000], ids=lambda scale: f"s{scale:04}")
def test_the_ratio_of_the_theory_is_that_of_the_network(scale):
    """From the forward FLOP of the two layers and the update, in all four regimes, far from the limit too."""
    for net, _ in NETS:
        sizes, batch = net(scale)
        work = COUNTERS["dispatch"](step_of(sizes, batch))
        first, others = (2 * batch * a * b for a, b in pairwise(sizes))
        update = 2 * (sizes[0] * sizes[1] + sizes[1] * sizes[2])

        counted = Fraction(work.contraction.backward + work.update, work.contraction.forward)
        assert counted == theory.ratio(first, others, update)
