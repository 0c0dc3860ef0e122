"""At usual batch sizes 2:1 survives the optimizer; at batch 1 it does not where weights are used once.

The ratio is (contractions of backward + update) / contractions of forward, 2 + (update - first layer) /
forward: the update lifts it, the first layer lowers it. The study bounds it by 3:1, for SGD. Adam at batch 1
takes OneNet to 8.5:1, and to 11:1 with the 18 FLOP per parameter of the paper's equations.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

import models
from measurements import theory

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B10")]

BATCHES = (1, 64)
NEAR = Fraction(1, 10)
COSTS = {"sgd": 2, "adam": 13, "adam_of_the_paper": 18}  # FLOP for each parameter

CLASSIFIERS = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19"),
    *("wide_resnet50_2", "alexnet", "mobilenet_v2", "efficientnet_b0"),
)
# Fewer, since Adam's update runs seven operations for each tensor, and their number decides how long counting
# takes.
FAMILIES = ("resnet18", "vgg11", "alexnet", "mobilenet_v2")
LINEAR = ("linear_net", "one_net")


def holds(step, optimizer, work):
    """Asserts that the counted ratio is the theory's, and what lifts and lowers it from 2."""
    from measurements.layers import layers_of

    layers = layers_of(step.model, step.inputs)
    first, others = theory.first_layer(layers), theory.other_layers(layers)
    sizes = [parameter.numel() for parameter in step.model.parameters()]
    update = theory.update_flop(optimizer, sum(sizes), len(sizes))

    ratio = Fraction(work.contraction.backward + work.update, work.contraction.forward)
    assert work.update == update
    assert ratio == theory.ratio(first, others, update)
    assert ratio - 2 == Fraction(update - first, work.contraction.forward)


@pytest.mark.axes(arch=CLASSIFIERS, batch=BATCHES, optimizer=("sgd",), counter=("dispatch",))
def test_the_ratio_with_the_update_is_exactly_the_theory_s(step, optimizer, counter, record_work):
    """All thirteen classifiers."""
    holds(step, optimizer, record_work(counter(step)))


@pytest.mark.axes(arch=FAMILIES, batch=BATCHES, optimizer=("adam",), counter=("dispatch",))
def test_the_ratio_with_adam_s_update_is_exactly_the_theory_s(step, optimizer, counter, record_work):
    """One classifier of each family."""
    holds(step, optimizer, record_work(counter(step)))


@pytest.fixture
def input_shape(arch, input_shape):
    """The sizes that a linear network has, whatever --input-shape says."""
    return models.input_shape(arch) if arch in LINEAR else input_shape


@pytest.mark.parametrize("arch", LINEAR)
@pytest.mark.axes(batch=BATCHES, optimizer=("sgd", "adam"), counter=("dispatch",))
def test_the_ratio_of_a_linear_network_is_exactly_the_theory_s(arch, step, optimizer, counter, record_work):
    """Whose every weight is used once for each sample."""
    holds(step, optimizer, record_work(counter(step)))


@pytest.fixture(scope="module")
def networks():
    """First layer, other layers (FLOP of a sample forward) and parameters of an architecture, by its name."""
    import torch

    from measurements.layers import layers_of

    def facts(arch):
        with torch.device("meta"):
            model, x = models.build(arch), torch.rand(1, *models.input_shape(arch))
        layers = layers_of(model, x)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return theory.first_layer(layers), theory.other_layers(layers), parameters

    return {arch: facts(arch) for arch in (*CLASSIFIERS, *LINEAR)}


def ratios(networks, archs, batch):
    """The ratio of each network with each update at that batch."""
    return {
        (arch, name): theory.ratio(batch * first, batch * others, cost * parameters)
        for arch, (first, others, parameters) in networks.items()
        for name, cost in COSTS.items()
        if arch in archs
    }


def test_two_to_one_survives_at_batch_64(networks):
    """All thirteen classifiers are within a tenth of it, whatever the optimizer."""
    assert {key for key, r in ratios(networks, CLASSIFIERS, 64).items() if abs(r - 2) > NEAR} == set()


def test_two_to_one_does_not_survive_batch_1_where_most_weights_are_of_linear_layers(networks):
    """AlexNet is at 2.42 with Adam; VGG-11 is away with the paper's 18 alone, deeper VGGs never."""
    at_one = ratios(networks, CLASSIFIERS, 1)
    away = {key for key, r in at_one.items() if abs(r - 2) > NEAR}

    assert away == {("alexnet", "adam"), ("alexnet", "adam_of_the_paper"), ("vgg11", "adam_of_the_paper")}
    # Forward of two samples 2840533760, backward 5399960320, 57044810 parameters.
    assert at_one["alexnet", "adam"] == Fraction(5399960320 + 2 * 13 * 57044810, 2840533760)


def test_adam_takes_linear_networks_far_above_three_to_one_at_batch_1(networks):
    """By hand: F first, O others, P = (F + O)/2 weights and 4234 biases; Adam adds 13·P/(F + O), over 6.5."""
    at_one, at_64 = (ratios(networks, LINEAR, batch) for batch in BATCHES)
    others = 2 * (4096 * 128 + 128 * 10)

    for arch, first in (("linear_net", 2 * 150528 * 4096), ("one_net", 2 * 4096)):
        forward = first + others
        parameters = forward // 2 + 4096 + 128 + 10
        limit = 1 + Fraction(others, forward)
        for name, cost in COSTS.items():
            assert at_one[arch, name] == limit + Fraction(cost * parameters, forward), (arch, name)
            assert at_64[arch, name] == limit + Fraction(cost * parameters, 64 * forward), (arch, name)

    nearly = {key: round(float(ratio), 1) for key, ratio in at_one.items()}
    assert nearly == {
        ("linear_net", "sgd"): 2.0,
        ("linear_net", "adam"): 1 + 6.5,
        ("linear_net", "adam_of_the_paper"): 1 + 9.0,
        ("one_net", "sgd"): 3.0,
        ("one_net", "adam"): 2 + 6.5,
        ("one_net", "adam_of_the_paper"): 2 + 9.1,  # 9 is for the weights; biases add 0.07
    }


def test_the_costs_of_the_table_are_the_theory_s():
    """What PyTorch runs, and what the paper's equations say."""
    run = {name: theory.UPDATE_COST[name] for name in ("sgd", "adam")}
    written = {"adam_of_the_paper": theory.ADAM_AS_THE_PAPER_WRITES_IT}

    assert {**run, **written} == COSTS
