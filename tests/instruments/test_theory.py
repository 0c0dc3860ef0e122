"""The theory against hand arithmetic, published totals, a second witness and the ops of optimizers."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from measurements import theory
from measurements.records import Layer, Phase

if TYPE_CHECKING:
    from torch import nn

pytestmark = pytest.mark.theory

# architecture: (forward, backward) contraction FLOP at batch 2, 3x224x224, 10 classes. Source: hand formula.
PUBLISHED = {
    "resnet18": (7254265856, 14036475904),
    "resnet34": (14653018112, 28833980416),
    "resnet50": (16348626944, 32225198080),
    "resnet101": (31197511680, 61922967552),
    "resnet152": (46046396416, 91620737024),
    "vgg11": (30420140032, 60493463552),
    "vgg13": (45217644544, 90088472576),
    "vgg16": (61864837120, 123382857728),
    "vgg19": (78512029696, 156677242880),
    "wide_resnet50_2": (45583974400, 90695892992),
    "alexnet": (2840533760, 5399960320),
    "mobilenet_v2": (1198028288, 2352704512),
    "efficientnet_b0": (1538190208, 3033028352),
}


def rows(name: str, batch: int) -> list[Layer]:
    """The layers of a listed architecture on meta tensors."""
    import torch

    import models
    from measurements.layers import layers_of

    with torch.device("meta"):
        return layers_of(models.build(name), torch.empty(batch, *models.input_shape(name)))


# -------------------------------------------------------------------------------------------- the closed form


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_architecture_costs_its_published_total(name: str) -> None:
    """Forward and backward, and backward is twice forward less the first layer."""
    layers = rows(name, 2)

    work = theory.closed_form(layers).contraction

    assert (work.forward, work.backward) == PUBLISHED[name]
    assert work.backward == 2 * work.forward - theory.first_layer(layers)
    assert work.forward == theory.first_layer(layers) + theory.other_layers(layers)


X, W = {"input_needs_gradient": True}, {"weight_needs_gradient": True}
LAYERS = [
    # A matrix product: 4 rows, 16 features to 32: 2·4·16·32.
    (Layer("", "Linear", (4, 16), (32, 16), (4, 32), **X), 4096, 8192),
    # Two leading axes, and none.
    (Layer("", "Linear", (2, 5, 16), (32, 16), (2, 5, 32), **X), 10240, 20480),
    (Layer("", "Linear", (16,), (32, 16), (32,), **X), 1024, 2048),
    # The input is data; the weight is frozen; nothing upstream trains.
    (Layer("", "Linear", (4, 16), (32, 16), (4, 32)), 4096, 4096),
    (Layer("", "Linear", (4, 16), (32, 16), (4, 32), **X, weight_needs_gradient=False), 4096, 4096),
    (Layer("", "Linear", (4, 16), (32, 16), (4, 32), weight_needs_gradient=False), 4096, 0),
    (Layer("", "Linear", (0, 16), (32, 16), (0, 32), **X), 0, 0),
    # 2 samples, 8 filters of 5·3·3 taps at 10x10 places.
    (Layer("", "Conv2d", (2, 5, 10, 10), (8, 5, 3, 3), (2, 8, 10, 10), **X), 144000, 288000),
    # 4 groups: each of 12 filters sees 2 of 8 channels, at 6x6 places.
    (Layer("", "Conv2d", (2, 8, 8, 8), (12, 2, 3, 3), (2, 12, 6, 6), groups=4, **X), 31104, 62208),
    # Depthwise: each of 8 filters sees one channel.
    (Layer("", "Conv2d", (2, 8, 10, 10), (8, 1, 3, 3), (2, 8, 10, 10), groups=8, **X), 28800, 57600),
    # Stride and dilation show in the size of the output alone.
    (Layer("", "Conv2d", (2, 3, 15, 17), (8, 3, 3, 3), (2, 8, 8, 9), **X), 62208, 124416),
    (Layer("", "Conv1d", (2, 5, 20), (7, 5, 3), (2, 7, 10), **X), 4200, 8400),
    (Layer("", "Conv1d", (5, 20), (7, 5, 3), (7, 10), **X), 2100, 4200),
    (Layer("", "Conv3d", (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (1, 3, 3, 3, 3), **X), 2592, 5184),
    # One set of taps for each of 2·4·8·8 inputs: 6 filters of 4x4.
    (Layer("", "ConvTranspose2d", (2, 4, 8, 8), (4, 6, 4, 4), (2, 6, 16, 16), **X), 98304, 196608),
    (Layer("", "ConvTranspose2d", (1, 4, 8, 8), (4, 2, 4, 4), (1, 4, 16, 16), groups=2), 16384, 16384),
    # Complex numbers: 8 for each multiply-add.
    (Layer("", "Linear", (4, 5), (6, 5), (4, 6), **X, settings=(("complex", True),)), 960, 1920),
    # 7 rows: 5·3·4 multiply-adds with x, 5·4 with x2; backward: both factors twice, of x2 once.
    (Layer("", "Bilinear", (7, 3), (5, 3, 4), (7, 5)), 1120, 840 + 280),
    (
        Layer("", "Bilinear", (7, 3), (5, 3, 4), (7, 5), **X, settings=(("x2_needs_gradient", True),)),
        1120,
        2240,
    ),
    (Layer("", "Embedding", (4, 7), (100, 8), (4, 7, 8)), 0, 0),
    # 3 rows of 4·20 gates on 10 features and 20 hidden: 2·3·80·30; input and first state are constants.
    (Layer("", "LSTMCell", (3, 10), (80, 10), (3, 20)), 14400, 14400),
    (
        Layer("", "GRUCell", (3, 10), (60, 10), (3, 20), **X, settings=(("state_needs_gradient", True),)),
        10800,
        21600,
    ),
]


@pytest.mark.parametrize(
    ("layer", "forward", "backward"), LAYERS, ids=[f"{i:02}" for i in range(len(LAYERS))]
)
def test_a_layer_costs_what_a_hand_says(layer: Layer, forward: int, backward: int) -> None:
    """Arithmetic beside each row."""
    assert theory.forward_flop(layer) == forward
    assert theory.backward_flop(layer) == backward


def test_a_recurrent_layer_owes_its_first_state_nothing() -> None:
    """T=5, N=3, I=10, H=20: forward 5·2·3·80·30; backward the weights' as much, 4 of 5 states'."""
    steps = {"hidden_size": 20, "positions": 15, "sequences": 3}
    layer = Layer("", "LSTM", (5, 3, 10), (80, 10), (5, 3, 20), settings=tuple(steps.items()))

    assert theory.forward_flop(layer) == 72000
    assert theory.backward_flop(layer) == 72000 + 4 * 9600


def recurrent() -> list[tuple[str, dict[str, Any]]]:
    """Recurrent layers with every setting that changes a shape."""
    sizes: dict[str, Any] = {"input_size": 5, "hidden_size": 4}
    every = [sizes, {**sizes, "num_layers": 3, "bidirectional": True, "batch_first": True, "bias": False}]
    return [(kind, named) for kind in ("LSTM", "GRU", "RNN") for named in every] + [
        ("LSTM", {**sizes, "proj_size": 2, "num_layers": 2, "bidirectional": True})
    ]


def witnessed(model: nn.Module, inputs: tuple[Any, ...], frozen: tuple[str, ...] = ()) -> tuple[int, int]:
    """Forward and backward FLOP by torch's FlopCounterMode, right where no convolution is grouped."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    with FlopCounterMode(display=False) as forward:
        out = model(*inputs)
    with FlopCounterMode(display=False) as backward:
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert isinstance(out, torch.Tensor | tuple)
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("x_needs", [False, True], ids=["data", "later"])
@pytest.mark.parametrize(
    ("kind", "named"), recurrent(), ids=[f"{k}{i}".lower() for i, (k, _) in enumerate(recurrent())]
)
def test_recurrent_layers_agree_with_a_second_witness(
    kind: str, named: dict[str, Any], x_needs: bool
) -> None:
    """On meta tensors a recurrent layer runs as matrix products, which FlopCounterMode sees one by one."""
    import torch

    from measurements.layers import layers_of

    model = getattr(torch.nn, kind)(**named, device="meta")
    x = torch.empty(3, 6, 5, device="meta", requires_grad=x_needs)

    work = theory.closed_form(layers_of(model, x)).contraction

    assert (work.forward, work.backward) == witnessed(model, (x,))


ATTENTION = {
    "packed": ({}, (6, 4, 8), (6, 4, 8), (6, 4, 8)),
    "keys": ({"batch_first": True, "bias": False}, (4, 6, 8), (4, 5, 8), (4, 5, 8)),
    "widths": ({"kdim": 3, "vdim": 2}, (6, 4, 8), (5, 4, 3), (5, 4, 2)),
    "extra": ({"add_bias_kv": True, "add_zero_attn": True}, (6, 4, 8), (5, 4, 8), (5, 4, 8)),
    "unbatched": ({}, (6, 8), (5, 8), (5, 8)),
}


@pytest.mark.parametrize("needs", [False, True], ids=["data", "later"])
@pytest.mark.parametrize("frozen", [(), ("in_proj_weight", "in_proj_bias")], ids=["train", "frozen"])
@pytest.mark.parametrize("which", ATTENTION)
def test_attention_agrees_with_a_second_witness(which: str, frozen: tuple[str, ...], needs: bool) -> None:
    """With one and with three inputs, with appended keys, with frozen projections."""
    import torch

    from measurements.layers import layers_of

    named, *sizes = ATTENTION[which]
    model = torch.nn.MultiheadAttention(8, 2, **named, device="meta")
    inputs = tuple(torch.empty(size, device="meta", requires_grad=needs) for size in sizes)
    expected = witnessed(model, inputs, frozen)

    work = theory.closed_form(layers_of(model, inputs)).contraction

    assert (work.forward, work.backward) == expected


def test_a_step_has_a_row_for_each_layer_and_phase() -> None:
    """Forward in order, backward in reverse, the update last and no contraction."""
    layers = [
        Layer("Net.a", "Linear", (4, 16), (32, 16), (4, 32)),
        Layer("Net.b", "Linear", (4, 32), (10, 32), (4, 10), input_needs_gradient=True),
    ]

    work = theory.closed_form(layers, update=7)

    assert [(record.phase, record.module) for record in work.records] == [
        (Phase.FORWARD, "Net.a"),
        (Phase.FORWARD, "Net.b"),
        (Phase.BACKWARD, "Net.b"),
        (Phase.BACKWARD, "Net.a"),
        (Phase.UPDATE, ""),
    ]
    assert list(work.by_op()) == ["closed_form.Linear", "closed_form.update"]
    assert (work.update, work.contraction.update) == (7, 0)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (
            Layer("Net.a", "Fold", (1,), (1,), (1,)),
            r"no closed form for a layer of kind 'Fold' \(Net.a\); have Linear",
        ),
        (Layer("Net.a", "Linear", (4, 16), (32, 15), (4, 32)), "features of x 16, columns of weight 15"),
        (
            Layer("Net.a", "Conv1d", (1, 4, 9), (6, 3, 3), (1, 6, 7)),
            "channels of x 4, groups x channels of weight 3",
        ),
        (Layer("Net.a", "Conv1d", (1, 3, 9), (6, 3, 3), (1, 5, 7)), "channels of out 5, filters of weight 6"),
        (
            Layer("Net.a", "ConvTranspose1d", (1, 3, 9), (4, 3, 3), (1, 3, 11)),
            "channels of x 3, filters of weight 4",
        ),
        (Layer("Net.a", "LSTM", (5, 3, 10), (80, 10), (5, 3, 20)), "needs the setting 'hidden_size'"),
    ],
)
def test_a_layer_that_cannot_be_counted_says_why(layer: Layer, sentence: str) -> None:
    """The layer, both values, what to do."""
    with pytest.raises(ValueError, match=sentence):
        theory.forward_flop(layer)


# ---------------------------------------------------------------------------------- the ratio and its regimes


@pytest.mark.parametrize(
    "regime", theory.REGIMES, ids=lambda regime: regime.name.replace(", ", "-").replace(" ", "_")
)
def test_a_regime_comes_ever_closer_to_its_limit(regime: theory.Regime) -> None:
    """Each tenfold network is nearer, and the limit is reached to any precision."""
    away = [abs(theory.ratio(*regime.costs(10**power)) - regime.limit) for power in range(1, 10)]

    assert away == sorted(away, reverse=True)
    assert len(set(away)) == len(away)
    assert away[-1] < Fraction(1, 10**8)


def test_the_four_regimes_are_one_two_two_three() -> None:
    """As study B's table has them."""
    assert [regime.limit for regime in theory.REGIMES] == [1, 2, 2, 3]


def test_the_ratio_lies_between_one_and_three_while_the_update_is_at_most_a_forward_pass() -> None:
    """The bounds are met at the corners alone; a larger update leaves them."""
    assert theory.ratio(1, 0, 0) == 1
    assert theory.ratio(0, 1, 1) == 3
    assert 1 < theory.ratio(3, 4, 5) == Fraction(16, 7) < 3
    assert theory.ratio(0, 1, 9) > 3


def test_conv_net_has_eleven_sevenths_at_any_batch() -> None:
    """The study's small network: 1.5714, its first convolution being 3/7 of forward, less a classifier."""
    shares = {batch: rows("conv_net", batch) for batch in (1, 8)}

    ratios = {theory.ratio(theory.first_layer(r), theory.other_layers(r)) for r in shares.values()}

    assert len(ratios) == 1
    assert round(float(ratios.pop()), 4) == 1.5714


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ((0, 0, 5), "a network without contractions has no ratio"),
        ((3, -1, 0), "others -1, update 0; give FLOP of 0"),
    ],
)
def test_a_ratio_of_nothing_is_refused(terms: tuple[int, int, int], sentence: str) -> None:
    """No forward work, or less than none."""
    with pytest.raises(ValueError, match=sentence):
        theory.ratio(*terms)


# ------------------------------------------------------------------------------------------------- the update

# FLOP per parameter. Source: the update equations, op by op, beside theory.UPDATES.
COSTS = {
    "sgd": 2,
    "momentum": 4,
    "nesterov": 6,
    "weight_decay": 4,
    "momentum_weight_decay": 6,
    "nesterov_weight_decay": 8,
    "adam": 13,
    "adam_weight_decay": 15,
    "amsgrad": 14,
    "adamw": 14,
    "rmsprop": 9,
    "adagrad": 7,
    "adamax": 10,
    "nadam": 16,
    "radam": 17,
    "adadelta": 16,
    "rprop": 13,
    "asgd": 3,
}
MOVES = {"clone", "copy_", "detach", "index_put_", "lift_fresh", "_to_copy", "permute", "t", "view", "alias"}


def executed(optimizer: Any, steps: int) -> list[tuple[str, tuple[Any, ...], dict[str, Any], Any]]:
    """(op, arguments, keywords, output) of everything that the last of so many steps runs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    ran = []

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            ran.append((func.overloadpacket.__name__, args, kwargs or {}, out))
            return out

    for _ in range(steps - 1):
        optimizer.step()
    with Listen():
        optimizer.step()
    return ran


def cost(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """FLOP of one element of an element-wise op as it was called."""
    if op.startswith("lerp"):
        return 3
    if op.startswith(("addcmul", "addcdiv")):
        return 2 + (kwargs.get("value", 1) != 1)
    if op in ("add", "add_"):
        return 1 + (kwargs.get("alpha", 1) != 1)
    return 2 if op == "clamp_" and len(args) == 3 else 1


@pytest.mark.parametrize("name", theory.UPDATES)
def test_an_optimizer_runs_the_ops_of_its_derivation(name: str) -> None:
    """In that order, at that cost, and nothing else of a parameter's size, in the seventh step."""
    import torch

    update = theory.UPDATES[name]
    weight = torch.nn.Parameter(torch.ones(5, 3))
    weight.grad = torch.ones(5, 3)
    optimizer = getattr(torch.optim, update.optimizer)([weight], lr=0.1, **update.settings, foreach=False)

    ran = [
        (op, cost(op, args, kwargs))
        for op, args, kwargs, out in executed(optimizer, 7)
        if isinstance(out, torch.Tensor) and out.numel() == 15 and op not in MOVES
    ]

    assert ran == list(update.ops)
    assert theory.UPDATE_COST[name] == COSTS[name]


def test_the_tables_of_the_update_name_the_same_optimizers() -> None:
    """Every cost has its hand value."""
    assert theory.UPDATE_COST == COSTS


def test_adam_as_the_paper_writes_it_is_eighteen() -> None:
    """Of the five equations PyTorch saves the 6 of the bias corrections, and divides by one root of them."""
    assert theory.ADAM_AS_THE_PAPER_WRITES_IT == 18
    assert theory.UPDATE_COST["adam"] == 18 - 6 + 1


@pytest.mark.parametrize(
    "sizes", [(4, 6), (6, 4), (5, 5), (1, 7)], ids=lambda sizes: f"{sizes[0]}x{sizes[1]}"
)
def test_muon_costs_what_it_runs(sizes: tuple[int, int]) -> None:
    """Contractions and all work of one matrix, from the shapes of the ops that ran."""
    import torch

    if not hasattr(torch.optim, "Muon"):
        pytest.skip(f"needs torch.optim.Muon; has torch {torch.__version__}")
    weight = torch.nn.Parameter(torch.ones(sizes))
    weight.grad = torch.ones(sizes)
    contraction = flop = 0
    for op, args, kwargs, out in executed(torch.optim.Muon([weight], lr=0.1), 3):
        if op in ("mm", "addmm"):
            contraction += 2 * out.numel() * args[-1].shape[0]
        if op == "addmm":
            flop += out.numel() * (1 + (kwargs.get("beta", 1) != 1) + (kwargs.get("alpha", 1) != 1))
        elif op == "linalg_vector_norm":
            flop += 2 * args[0].numel()
        elif isinstance(out, torch.Tensor) and op != "mm" and op not in MOVES:
            flop += out.numel() * cost(op, args, kwargs)

    assert theory.muon_contraction(*sizes) == contraction
    assert theory.muon_flop(*sizes) == contraction + flop


def test_muon_of_a_wide_matrix_is_five_rounds_of_three_products() -> None:
    """16x32: XX^T 16384, AA 8192, BX 16384, five times."""
    assert theory.muon_contraction(16, 32) == 204800


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("adamm", 10), "unknown optimizer 'adamm'; have sgd, momentum"),
        (("muon", 10), "use muon_flop"),
        (("sgd", -1), "-1 parameters; give 0 or more"),
    ],
)
def test_an_update_without_a_cost_is_refused(arguments: tuple[str, int], sentence: str) -> None:
    """The name, and what there is."""
    with pytest.raises(ValueError, match=sentence):
        theory.update_flop(*arguments)


# --------------------------------------------------------------------------------------------------- all work


def test_the_study_s_table_row_by_row() -> None:
    """Sizes 24, 16, 12, 10 at batch 8: 2·24·16·8 and so on; ours counts one row otherwise, the loss."""
    table = theory.study_table(24, 16, 12, 10, 8)

    assert [(row.name, row.forward, row.backward) for row in table] == [
        ("Input", 6144, 6144),
        ("ReLU", 128, 128),
        ("Derivative", None, 3072),
        ("Hidden1", 3072, 3072),
        ("ReLU", 96, 96),
        ("Derivative", None, 1920),
        ("Hidden2", 1920, 1920),
        ("ReLU", 80, 80),
        ("Loss", 80, 80),
        ("Update", None, 2 * (24 * 16 + 16 * 12 + 12 * 10)),
    ]
    assert [
        row.name for row in table if (row.forward, row.backward) != (row.exact_forward, row.exact_backward)
    ] == ["Loss"]
    # 8 rows of 10 classes: (5·10 - 1)·8 + 2·8 and (4·10 - 1)·8 + 8.
    assert (table[8].exact_forward, table[8].exact_backward) == (408, 320)


def test_the_study_s_table_sums_to_the_network() -> None:
    """The rows, the loss exact, are all work of the MLP."""
    table = theory.study_table(24, 16, 12, 10, 8)

    work = theory.flop_at(theory.mlp(24, 16, 12, 10), 8)

    assert work.forward == sum(row.exact_forward or 0 for row in table)
    assert work.backward + work.update == sum(row.exact_backward or 0 for row in table)


NETWORKS = {
    "linear_net": theory.linear_net,
    "one_net": theory.one_net,
    "conv_net": theory.conv_net,
    "mlp": theory.mlp,
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_work_holds_the_contractions_and_the_parameters_of_the_model(name: str, batch: int) -> None:
    """As the layers' closed form has them; the update is 2 for each parameter of the model."""
    import torch

    import models

    work = theory.contraction_at(NETWORKS[name](), batch)
    closed = theory.closed_form(rows(name, batch)).contraction
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in models.build(name).parameters())

    assert (work.forward, work.backward, work.update) == (closed.forward, closed.backward, 0)
    assert theory.flop_at(NETWORKS[name](), batch).update == 2 * parameters


@pytest.mark.parametrize("name", NETWORKS)
def test_what_does_not_grow_with_the_batch_has_a_name(name: str) -> None:
    """Sums over the batch lack one addition, its mean has one division, and the update is paid once."""
    terms = NETWORKS[name]()
    fixed = {term.op for term in terms if term.constant}
    biases = set() if name == "mlp" else {"bias"}

    assert fixed == {"sum_over_the_batch", "divide_by_the_batch", "sgd"} | biases
    assert not any(term.constant for term in terms if term.contraction)
    assert sum(term.constant for term in terms if term.op.endswith("the_batch")) == 0


def test_one_net_in_full_by_hand() -> None:
    """All work as a + b·N, every term written out."""
    work = {batch: theory.flop_at(theory.one_net(), batch) for batch in (1, 2, 64)}
    contractions = 2 * (1 * 4096 + 4096 * 128 + 128 * 10)
    outputs, active = 4096 + 128 + 10, 4096 + 128
    forward = contractions + outputs + active + (5 * 10 - 1) + 2
    backward = 2 * contractions - 2 * 4096 + outputs + active + (4 * 10 - 1) + 1
    parameters = 4096 * 2 + 4097 * 128 + 129 * 10

    for batch, flop in work.items():
        assert flop.forward == forward * batch
        assert flop.backward == backward * batch - outputs
        assert flop.update == 2 * parameters


def test_conv_net_in_full_by_hand() -> None:
    """Sides 112, 56, 28 and 14; maxima of 9, a mean of 196, one bias."""
    flop = theory.flop_at(theory.conv_net(optimizer="adam"), 2)
    conv1, conv2, fc1 = 2 * 112**2 * 32 * 147, 2 * 28**2 * 64 * 1568, 2 * 64 * 10
    relus = 112**2 * 32 + 28**2 * 64
    maxima = 56**2 * 32 + 14**2 * 64
    mean = 64 * 14**2

    assert flop.forward == 2 * (conv1 + conv2 + fc1 + relus + 8 * maxima + mean + 10 + 49 + 2)
    assert flop.backward == 2 * (conv1 + 2 * (conv2 + fc1) + relus + maxima + mean + 10 + 39 + 1) - 10
    assert flop.update == 13 * (32 * 147 + 64 * 1568 + 64 * 10 + 10)


def test_no_batch_has_no_cost() -> None:
    """A sum over no samples is not minus one addition."""
    with pytest.raises(ValueError, match="batch 0; give 1 or more"):
        theory.flop_at(theory.one_net(), 0)


def test_the_theory_reads_no_model() -> None:
    """Its source names neither torch's modules nor a counter: only shapes come in."""
    imports = [
        line for line in inspect.getsource(theory).splitlines() if line.startswith(("import ", "from "))
    ]

    assert not [line for line in imports if "torch" in line or "counters" in line or "formulas" in line]
