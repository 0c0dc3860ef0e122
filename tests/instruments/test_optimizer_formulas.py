"""Every optimizer in torch.optim is counted; its single, foreach and fused streams cost the same."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from measurements.records import Work

SINGLE, FOREACH, FUSED = "single", "foreach", "fused"

# FLOP for each parameter in the steady state, from the update rules in PyTorch's documentation. The same for
# every stream:
# sgd: w -= lr·g 2; momentum μ·b + g 2, with dampening 3; ahead g + μ·b 2; weight decay g + λ·w 2; maximize -g
# 1
# adam: lerp 3, β·v 1, addcmul 3, sqrt, divide, add ε, addcdiv 3; amsgrad: maximum 1; AdamW's decay: w·(1 -
# lr·λ) 1
# rmsprop: α·v 1, addcmul 3, sqrt, add, addcdiv 3; momentum: μ·b 1, b + g/avg 2, step 2; centered: lerp 3, v -
# ḡ·ḡ 3
SAME: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("SGD", {}, 2),
    ("SGD", {"momentum": 0.9}, 2 + 2),
    ("SGD", {"momentum": 0.9, "dampening": 0.5}, 3 + 2),
    ("SGD", {"momentum": 0.9, "nesterov": True}, 2 + 2 + 2),
    ("SGD", {"weight_decay": 0.1}, 2 + 2),
    ("SGD", {"maximize": True}, 1 + 2),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "maximize": True}, 1 + 2 + 2 + 2),
    ("SGD", {"lr": "tensor"}, 2),
    ("Adam", {}, 13),
    ("Adam", {"amsgrad": True}, 14),
    ("Adam", {"weight_decay": 0.1}, 15),
    ("Adam", {"maximize": True}, 14),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}, 17),
    ("Adam", {"lr": "tensor"}, 13),
    ("AdamW", {}, 14),
    ("AdamW", {"weight_decay": 0.0}, 13),
    ("AdamW", {"amsgrad": True, "maximize": True}, 16),
    ("AdamW", {"lr": "tensor"}, 14),
    ("Adagrad", {}, 7),  # s + 1·g·g 2, sqrt, add ε, addcdiv 3
    ("Adagrad", {"weight_decay": 0.1}, 9),
    ("Adagrad", {"maximize": True}, 8),
    ("RMSprop", {}, 9),
    ("RMSprop", {"momentum": 0.9}, 6 + 3 + 2),
    ("RMSprop", {"centered": True}, 9 + 6),
    ("RMSprop", {"weight_decay": 0.1}, 11),
    ("RMSprop", {"maximize": True}, 10),
    ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}, 11 + 6 + 2),
    (
        "Adadelta",
        {},
        16,
    ),  # ρ·v 1, addcmul 3, sqrt(v + ε) 2, sqrt(a + ε) 2, divide, times g, ρ·a 1, addcmul 3, step 2
    ("Adadelta", {"weight_decay": 0.1}, 18),
    ("Adadelta", {"maximize": True}, 17),
    ("Adamax", {}, 10),  # lerp 3, β·u 1, abs, add ε, maximum, addcdiv 3
    ("Adamax", {"weight_decay": 0.1}, 12),
    ("Adamax", {"maximize": True}, 11),
    ("Adamax", {"lr": "tensor"}, 10),
    ("NAdam", {}, 16),  # lerp 3, β·v 1, addcmul 3, divide, sqrt, add ε, addcdiv 3 for g and 3 for m
    ("NAdam", {"weight_decay": 0.1}, 18),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}, 17),
    ("NAdam", {"maximize": True}, 17),
    ("Rprop", {}, 13),  # g·previous, sign, three compares, product, clamp 2, compare, sign, addcmul 3
)

# Streams that run other arithmetic for the same result: (single, foreach) for each parameter, and why
DIFFERENT: dict[str, tuple[dict[str, Any], int, int]] = {
    # single: (1 - λ·η)·w 1, w - η·g 2; it copies the averages until step t0 = 10^6.
    # foreach: g + λ·w 2, w - η·(…) 3, and always averages: w - ax 1, ax + μ·(…) 2
    "ASGD": ({}, 3, 8),
    # single from t0 on: and w - ax 1, its product with μ 1, ax + (…) 1
    "ASGD_averaging": ({"t0": 0}, 6, 8),
    # foreach folds both branches of the rectification into factors: lerp 3, β·v 1, addcmul 3, then 7
    "RAdam": ({}, 17, 14),
    # foreach negates the gradients once more, to keep the previous ones
    "Rprop": ({"maximize": True}, 14, 15),
}


def ways(kind: str, options: dict[str, Any]) -> tuple[str, ...]:
    """The streams that the optimizer has with these options."""
    import torch

    takes = inspect.signature(getattr(torch.optim, kind)).parameters
    found = (SINGLE, *(way for way in (FOREACH, FUSED) if way in takes))
    if (
        "lr" in options and kind.startswith("Adam") and kind != "Adamax"
    ):  # refused, unless captured in a graph
        found = tuple(way for way in found if way != FOREACH)
    return found


def step(kind: str, options: dict[str, Any], way: str, sizes: tuple[int, ...], steps: int = 2) -> Work:
    """The work of the last of so many steps over parameters of these sizes."""
    import torch

    from measurements import counting

    takes = inspect.signature(getattr(torch.optim, kind)).parameters
    streams = {name: name == way for name in (FOREACH, FUSED) if name in takes}
    options = {name: torch.tensor(0.01) if value == "tensor" else value for name, value in options.items()}
    parameters = [torch.nn.Parameter(torch.rand(size)) for size in sizes]
    optimizer = getattr(torch.optim, kind)(parameters, **options, **streams)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.rand_like(parameter) + 0.1
        with counting() as work:
            optimizer.step()
    assert (work.forward, work.backward, work.contraction.total) == (0, 0, 0)
    return work.frozen()


def for_each_parameter(kind: str, options: dict[str, Any], way: str) -> int:
    """FLOP that one more parameter costs: scalars, the same for all, cancel."""
    steps = 6 if kind in ("RAdam", "ASGD") else 2
    small, large = (step(kind, options, way, sizes, steps).update for sizes in ((8, 4), (40, 68)))
    units, rest = divmod(large - small, 96)
    assert rest == 0
    return units


IDS = ["_".join((kind.lower(), *options)) for kind, options, _ in SAME]


@pytest.mark.parametrize(("kind", "options", "units"), SAME, ids=IDS)
def test_every_stream_of_an_optimizer_costs_the_same(kind: str, options: dict[str, Any], units: int) -> None:
    """One operation at a time, on lists of tensors, or in one kernel."""
    counted = {way: for_each_parameter(kind, options, way) for way in ways(kind, options)}

    assert counted == dict.fromkeys(ways(kind, options), units)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_stream_with_other_arithmetic_is_counted_as_it_runs(name: str) -> None:
    """The reason stands beside its row."""
    options, single, foreach = DIFFERENT[name]
    kind = name.partition("_")[0]

    assert for_each_parameter(kind, options, SINGLE) == single
    assert for_each_parameter(kind, options, FOREACH) == foreach


def test_momentum_only_copies_in_its_first_step() -> None:
    """B = g: nothing to add yet, in every stream."""
    for way in (SINGLE, FOREACH, FUSED):
        first, second = (step("SGD", {"momentum": 0.9}, way, (8,), steps).update for steps in (1, 2))
        assert (first, second) == (2 * 8, 4 * 8), way


def test_radam_leaves_out_its_adaptive_part_for_five_steps() -> None:
    """Until the approximated simple moving average is long enough.

    No sqrt, add, two products, reciprocal, scale.
    """
    fifth, sixth = (step("RAdam", {}, SINGLE, (8,), steps).update for steps in (5, 6))

    assert (fifth, sixth) == (11 * 8, 17 * 8)


def test_every_optimizer_of_torch_is_counted() -> None:
    """None raises UnknownOp, LBFGS with its closure and SparseAdam with sparse gradients among them."""
    import torch

    from measurements import counting

    kinds = [
        name for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
    ]  # fmt: skip
    for name in kinds:
        layer = torch.nn.Embedding(6, 5, sparse=name == "SparseAdam")
        optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.01)

        def closure(layer: Any = layer, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = layer(torch.tensor([1, 2, 4])).square().sum()
            loss.backward()
            return loss

        with counting() as work:
            optimizer.step(closure)

        assert work.forward >= 2 * 15 - 1, name  # the closure keeps its phases
        assert work.backward > 0, name
        assert work.update > 0, name
    assert len(kinds) >= 13


def test_a_sparse_gradient_updates_its_rows_alone() -> None:
    """SparseAdam over a table of 600 rows costs as much as over one of 6.

    Where the same 3 rows have a gradient.
    """
    import torch

    from measurements import counting

    costs = []
    for rows in (6, 600):
        layer = torch.nn.Embedding(rows, 5, sparse=True)
        optimizer = torch.optim.SparseAdam(layer.parameters())
        layer(torch.tensor([1, 2, 4])).sum().backward()
        with counting() as work:
            optimizer.step()
        costs.append(work.update)

    assert costs[0] == costs[1] > 0


def test_muon_multiplies_matrices_in_its_update() -> None:
    """Five Newton-Schulz rounds, X X^T, A A and B X, wide or tall; the longer side never squared."""
    import torch

    from measurements import counting

    if not hasattr(torch.optim, "Muon"):
        pytest.skip(f"needs torch.optim.Muon; has torch {torch.__version__}")
    for sizes in ((3, 8), (8, 3)):
        weight = torch.nn.Parameter(torch.rand(sizes))
        weight.grad = torch.rand(sizes)
        optimizer = torch.optim.Muon([weight])
        with counting() as work:
            optimizer.step()

        assert work.contraction.update == 5 * (2 * 3 * 3 * 8 + 2 * 3 * 3 * 3 + 2 * 3 * 3 * 8)


def test_clipping_and_unscaling_belong_to_the_update() -> None:
    """The norm, and a product with the factor, of every gradient; unscaling is a product and a compare."""
    import torch

    from measurements import counting

    layer = torch.nn.Linear(4, 3)
    layer(torch.ones(2, 4)).sum().backward()
    scaler = torch.amp.GradScaler("cpu")
    with counting() as clipping:
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
    with counting() as unscaling:
        scaler.scale(torch.ones(()))
        optimizer = torch.optim.SGD(layer.parameters())
        scaler.unscale_(optimizer)

    assert clipping.forward == clipping.backward == 0
    assert clipping.update > 3 * 15
    assert unscaling.by_op()["aten._amp_foreach_non_finite_check_and_unscale_"].update == 2 * 15
