"""A model's layers come out as rows, one a call, and the model is left as it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from measurements import theory

if TYPE_CHECKING:
    from torch import Tensor, nn


def net(run: Any, **children: Any) -> nn.Module:
    """A module of class Net with those children, whose forward is run(self, *inputs)."""
    import torch

    class Net(torch.nn.Module):
        def forward(self, *inputs: Any, **named: Any) -> Any:
            return run(self, *inputs, **named)

    model = Net()
    for name, child in children.items():
        setattr(model, name, child)
    return model


def linear(inputs: int = 4, outputs: int = 4) -> nn.Module:
    """A linear layer."""
    import torch

    return torch.nn.Linear(inputs, outputs)


def ones(*sizes: int, **options: Any) -> Tensor:
    """A tensor of ones."""
    import torch

    return torch.ones(*sizes, **options)


def rows(model: nn.Module, *inputs: Any) -> list[tuple[str, bool, bool]]:
    """(name, input needs gradient, weight needs gradient) of each row."""
    from measurements.layers import layers_of

    return [
        (row.name, row.input_needs_gradient, row.weight_needs_gradient) for row in layers_of(model, inputs)
    ]


def test_every_call_is_a_row() -> None:
    """A layer that is called twice is counted twice, and only its first input is data."""
    model = net(lambda self, x: self.a(self.a(x)), a=linear())

    assert rows(model, ones(2, 4)) == [("Net.a", False, True), ("Net.a", True, True)]


def test_a_shared_layer_has_the_name_found_first() -> None:
    """Under whichever name it is called."""
    shared = linear()
    model = net(lambda self, x: self.b(self.a(x)), a=shared, b=shared)

    assert [name for name, *_ in rows(model, ones(2, 4))] == ["Net.a", "Net.a"]


def test_names_begin_with_the_class_of_the_model() -> None:
    """A bare layer is its own model; nested ones join with dots."""
    import torch

    assert [name for name, *_ in rows(linear(), ones(2, 4))] == ["Linear"]
    nested = net(lambda self, x: self.body(x), body=torch.nn.Sequential(torch.nn.ReLU(), linear()))
    assert [name for name, *_ in rows(nested, ones(2, 4))] == ["Net.body.1"]


def test_the_applications_of_one_convolution_are_rows_of_one_name() -> None:
    """DeeperConvNet applies one layer as often as its name says."""
    import torch

    import models
    from measurements.layers import layers_of

    with torch.device("meta"):
        layers = layers_of(models.build("deeper_conv_net_7"), torch.empty(1, 3, 64, 64))

    assert [row.name for row in layers].count("DeeperConvNet.conv_layer.0") == 7


def test_gradients_are_those_that_the_call_needs() -> None:
    """Input that asks, a frozen layer, what lies behind it, and a part that runs without gradients."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.without(x)
        return self.last(self.frozen(self.first(x)))

    model = net(run, without=linear(), first=linear(), frozen=linear(), last=linear())
    model.frozen.weight.requires_grad_(False)

    assert rows(model, ones(2, 4)) == [
        ("Net.without", False, False),
        ("Net.first", False, True),
        ("Net.frozen", True, False),
        ("Net.last", True, True),
    ]
    assert rows(linear(), ones(2, 4, requires_grad=True)) == [("Linear", True, True)]


def test_gradients_are_on_where_the_caller_has_them_off() -> None:
    """The rows describe a training step."""
    import torch

    with torch.no_grad():
        assert rows(linear(), ones(2, 4)) == [("Linear", False, True)]
        assert not torch.is_grad_enabled()


def test_inputs_come_by_position_or_by_name() -> None:
    """A tensor, a tuple, a dict; and layers that are called by name."""
    from measurements.layers import layers_of

    model = net(lambda self, x, y: self.a(input=x) + self.b(y), a=linear(4), b=linear(3))

    by_position = layers_of(model, (ones(2, 4), ones(2, 3)))
    by_name = layers_of(model, {"y": ones(2, 3), "x": ones(2, 4)})

    assert by_position == by_name
    assert [row.x for row in by_name] == [(2, 4), (2, 3)]
    assert layers_of(linear(), ones(2, 4)) == layers_of(linear(), (ones(2, 4),))


def test_a_class_that_extends_a_layer_is_that_layer() -> None:
    """Its own name may be anything; a class that is only called alike is not."""
    import torch

    class Scaled(torch.nn.Conv2d):
        pass

    class Linear(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    from measurements.layers import layers_of

    assert [row.kind for row in layers_of(Scaled(3, 4, 1), ones(1, 3, 2, 2))] == ["Conv2d"]
    assert layers_of(Linear(), ones(1)) == []


def test_layers_and_theory_know_the_same_kinds() -> None:
    """A kind that is read has a closed form, and the other way round."""
    from measurements.layers import KINDS

    assert KINDS.keys() == theory.PRODUCTS.keys()


RECURRENT = {
    "sequence_first": ({}, (5, 3, 10), 15, 3),
    "batch_first": ({"batch_first": True}, (3, 5, 10), 15, 3),
    "one_sequence": ({}, (5, 10), 5, 1),
    "no_sequence": ({}, (5, 0, 10), 0, 0),
}


@pytest.mark.parametrize("which", RECURRENT)
def test_a_recurrent_layer_tells_its_steps_from_its_sequences(which: str) -> None:
    """Whichever axis holds them."""
    import torch

    from measurements.layers import layers_of

    named, sizes, positions, sequences = RECURRENT[which]
    (row,) = layers_of(torch.nn.LSTM(10, 20, device="meta", **named), ones(*sizes, device="meta"))
    settings = dict(row.settings)

    assert (settings["positions"], settings["sequences"]) == (positions, sequences)
    assert theory.forward_flop(row) == positions * 2 * 80 * 30
    assert theory.backward_flop(row) == positions * 2 * 80 * 30 + (positions - sequences) * 2 * 80 * 20


def test_packed_sequences_cost_their_own_lengths() -> None:
    """Lengths 4, 2 and 1 are 7 positions, of which 3 are first ones."""
    import torch

    from measurements.layers import layers_of

    packed = torch.nn.utils.rnn.pack_padded_sequence(ones(4, 3, 10), torch.tensor([4, 2, 1]))
    (row,) = layers_of(torch.nn.GRU(10, 20), (packed,))

    assert theory.forward_flop(row) == 7 * 2 * 60 * 30
    assert theory.backward_flop(row) == 7 * 2 * 60 * 30 + 4 * 2 * 60 * 20


def test_a_state_that_trains_is_owed_its_gradient() -> None:
    """An initial state that is a parameter, of a layer and of a cell."""
    import torch

    from measurements.layers import layers_of

    state = ones(1, 3, 20, requires_grad=True)
    (given,) = layers_of(torch.nn.GRU(10, 20), (ones(5, 3, 10), state))
    (cell,) = layers_of(torch.nn.LSTMCell(10, 20), (ones(3, 10), (state[0], state[0])))

    assert theory.backward_flop(given) == theory.forward_flop(given) + 15 * 2 * 60 * 20
    assert theory.backward_flop(cell) == theory.forward_flop(cell) + 3 * 2 * 80 * 20


def test_complex_numbers_are_noted() -> None:
    """8 for each multiply-add."""
    import torch

    from measurements.layers import layers_of

    (row,) = layers_of(torch.nn.Linear(4, 3, dtype=torch.complex64), ones(2, 4, dtype=torch.complex64))

    assert theory.forward_flop(row) == 8 * 2 * 4 * 3


def test_the_model_is_left_as_found() -> None:
    """No hook; statistics, random state, mode and weights as before, and a buffer that forward replaces."""
    import torch

    from measurements.layers import layers_of

    def run(self: Any, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        return self.dropout(self.norm(self.a(x)))

    model = net(run, a=linear(), norm=torch.nn.BatchNorm1d(4), dropout=torch.nn.Dropout())
    model.register_buffer("seen", torch.zeros(()))
    seen = model.seen
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()

    layers_of(model, torch.randn(5, 4, generator=torch.Generator()))

    assert model.seen is seen
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert not [module for module in model.modules() if module._forward_hooks]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_fails_is_left_as_found() -> None:
    """Its own error comes out; hooks and statistics do not stay behind."""
    import torch

    from measurements.layers import layers_of

    def run(self: Any, x: Tensor) -> Tensor:
        self.norm(self.a(x))
        raise RuntimeError("the model's own sentence")

    model = net(run, a=linear(), norm=torch.nn.BatchNorm1d(4))

    with pytest.raises(RuntimeError, match="the model's own sentence"):
        layers_of(model, ones(5, 4))

    assert not [module for module in model.modules() if module._forward_hooks]
    assert int(model.norm.num_batches_tracked) == 0


def test_what_the_closed_form_cannot_know_is_named() -> None:
    """A module with a parameter of its own; not one that normalizes, activates, embeds or holds layers."""
    import torch

    from measurements.layers import unseen

    known = torch.nn.Sequential(
        torch.nn.Embedding(5, 4), torch.nn.LayerNorm(4), torch.nn.PReLU(), torch.nn.BatchNorm1d(4), linear()
    )
    custom = net(lambda self, x: x @ self.weight, weight=torch.nn.Parameter(ones(4, 4)))

    assert unseen(known) == []
    assert unseen(torch.nn.Sequential(known, custom)) == ["Sequential.1"]
    assert unseen(custom) == ["Net"]
    assert unseen(torch.nn.MultiheadAttention(8, 2)) == []


def test_an_encoder_layer_shows_its_attention_in_either_mode() -> None:
    """The fused path of evaluation stands back where a layer has a hook."""
    import torch

    from measurements.layers import layers_of

    encoder = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    expected = 2 * 2 * (4 * 10 * 16 * 16 + 2 * 10 * 10 * 16 + 2 * 10 * 16 * 32)

    for training in (True, False):
        work = theory.closed_form(layers_of(encoder.train(training), ones(2, 10, 16)))
        assert work.contraction.forward == expected
