"""The first layer costs backward what it costs forward, every other one twice that; SGD 2 a parameter."""

from __future__ import annotations

import pytest

import models
from measurements import theory
from measurements.records import Phase

pytestmark = [
    pytest.mark.theory,
    pytest.mark.axes(batch=(1, 64), counter=("dispatch",)),
    pytest.mark.parametrize("optimizer", ["sgd"]),
    pytest.mark.parametrize(
        "arch",
        [
            pytest.param("linear_net", marks=pytest.mark.experiment("B3")),
            pytest.param("conv_net", marks=pytest.mark.experiment("B4")),
        ],
    ),
]

# Layers in order: (name, multiply-adds a sample, biases), with `c` classes.
LAYERS = {
    "linear_net": lambda c: [
        ("LinearNet.fc1", 3 * 224 * 224 * 4096, 4096),
        ("LinearNet.fc2", 4096 * 128, 128),
        ("LinearNet.fc3", 128 * c, c),
    ],
    "conv_net": lambda c: [
        ("ConvNet.conv1", 112 * 112 * 32 * (3 * 7 * 7), 0),
        ("ConvNet.conv2", 28 * 28 * 64 * (32 * 7 * 7), 0),
        ("ConvNet.fc1", 64 * c, c),
    ],
}
# Multiply-adds a sample for each weight: the places where a filter is applied; 1 in a linear layer.
PLACES = {"ConvNet.conv1": 112 * 112, "ConvNet.conv2": 28 * 28}
TERMS = {"linear_net": theory.linear_net, "conv_net": theory.conv_net}


@pytest.fixture
def input_shape(arch):
    """The sizes that the study gives it, whatever --input-shape says."""
    return models.input_shape(arch)


def test_the_first_layer_is_one_to_one_and_the_others_two_to_one(
    arch, step, optimizer, batch, classes, counter, record_work
):
    """Contractions by module, forward and backward, against the arithmetic above."""
    work = record_work(counter(step))
    parts = {name: part.contraction for name, part in work.by_module().items() if part.contraction.total}

    layers = LAYERS[arch](classes)
    assert list(parts) == [name for name, *_ in layers]
    for position, (name, multiply_adds, _) in enumerate(layers):
        forward = 2 * multiply_adds * batch
        assert parts[name].forward == forward, name
        assert parts[name].backward == (forward if position == 0 else 2 * forward), name
        assert parts[name].update == 0


def test_the_update_is_two_for_each_parameter(arch, step, optimizer, classes, counter):
    """Whatever the batch: of the convolutions' weights each is counted once, however often it is applied."""
    work = counter(step)

    weights = sum(n // PLACES.get(name, 1) + biases for name, n, biases in LAYERS[arch](classes))
    assert work.update == 2 * weights
    assert work.contraction.update == 0


def test_all_work_is_the_closed_form_by_phase_and_module(arch, step, optimizer, batch, classes, counter):
    """Every element-wise operation too, where it ran; bias, ReLU, pooling and loss included."""
    work = counter(step)
    terms = TERMS[arch](classes, optimizer)

    for phase in Phase:
        modules = work.by_phase()[phase].by_module()
        counted = {name: part.total for name, part in modules.items() if part.total}
        expected = {}
        for term in terms:
            if term.phase is phase:
                expected[term.module] = expected.get(term.module, 0) + term.at(batch)
        assert counted == {name: flop for name, flop in expected.items() if flop}, phase
    assert work.contraction == theory.contraction_at(terms, batch)
