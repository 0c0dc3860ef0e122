"""By kind of operation layers are 2:1 and ReLU 1:1; pooling and dropout are not the 1:1 of the study.

All work of the operation, on a feature map whose gradient is asked for. The study's ratio stands beside ours
in the saved run, with the reason for ours.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest

from measurements.counters import COUNTERS
from measurements.records import OpRecord, Phase, Work

pytestmark = [pytest.mark.theory, pytest.mark.experiment("A6")]

SIZES = (2, 4, 14, 14)
ELEMENTS = 2 * 4 * 14 * 14
HALVED = 2 * 4 * 7 * 7  # elements where the sides are halved


class Kind(NamedTuple):
    """A kind of operation on SIZES.

    module: its class in torch.nn and its arguments. forward, backward: FLOP by hand. study: study A's ratio.
    reason: why ours is what it is.
    """

    module: tuple
    forward: int
    backward: int
    study: int
    reason: str


PRODUCTS = {  # multiply-adds forward
    "conv2d": (("Conv2d", 4, 6, 3, 1, 1), 2 * 6 * 14 * 14 * (4 * 3 * 3)),
    "conv2d_strided": (("Conv2d", 4, 6, 3, 2, 1), 2 * 6 * 7 * 7 * (4 * 3 * 3)),
    "conv2d_dilated": (("Conv2d", 4, 6, 3, 1, 2, 2), 2 * 6 * 14 * 14 * (4 * 3 * 3)),
    "conv2d_grouped": (("Conv2d", 4, 8, 3, 1, 1, 1, 2), 2 * 8 * 14 * 14 * (2 * 3 * 3)),
    "conv2d_depthwise": (("Conv2d", 4, 4, 3, 1, 1, 1, 4), 2 * 4 * 14 * 14 * (1 * 3 * 3)),
    "conv_transpose2d": (("ConvTranspose2d", 4, 6, 2, 2), ELEMENTS * (6 * 2 * 2)),
    "linear": (("Linear", 14, 5), 2 * 4 * 14 * 14 * 5),
}

KINDS = {
    **{
        name: Kind(module, 2 * n, 4 * n, 2, "the products meet again in each of two gradients")
        for name, (module, n) in PRODUCTS.items()
    },
    "relu": Kind(("ReLU",), ELEMENTS, ELEMENTS, 1, "a compare, and a compare of what came out"),
    "max_pool_3x3": Kind(
        ("MaxPool2d", 3, 2, 1), 8 * HALVED, HALVED, 1, "8 compares against 1 add, where the maximum was"
    ),
    "avg_pool_3x3": Kind(
        ("AvgPool2d", 3, 2, 1), 9 * HALVED, 10 * HALVED, 1, "8 adds, 1 division; 1 division, 9 adds"
    ),
    "adaptive_avg_pool_1x1": Kind(
        ("AdaptiveAvgPool2d", 1), ELEMENTS, ELEMENTS, 1, "a mean: n - 1 adds, 1 division; n divisions"
    ),
    "dropout": Kind(
        ("Dropout", 0.5), 2 * ELEMENTS, ELEMENTS, 1, "mask / (1 - p), x · mask; g · mask, scaled already"
    ),
}


def step_of(*modules, device="cpu"):
    """A step of the modules on a feature map of SIZES whose gradient is asked for."""
    import torch
    from torch import nn

    from measurements.step import Step

    with torch.device(device):
        upstream = nn.Conv2d(3, 4, 1)  # a weight in front of them, so that their input has a gradient
        layers = [
            getattr(nn, kind)(*sizes, **({"bias": False} if "Conv" in kind or kind == "Linear" else {}))
            for kind, *sizes in modules
        ]
        return Step(nn.Sequential(upstream, *layers), (torch.ones(2, 3, 14, 14),))


def work_of(module):
    """Work of one module, on meta."""
    return COUNTERS["dispatch"](step_of(module, device="meta")).by_module()["Sequential.1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_operation_costs_what_a_hand_says(kind, record_work):
    """Forward and backward; beside it the study's ratio of the same forward, and the reason for ours."""
    row = KINDS[kind]
    work = record_work(work_of(row.module), reason=row.reason)
    backward = OpRecord(Phase.BACKWARD, kind, flop=row.study * row.forward)
    record_work(Work((OpRecord(Phase.FORWARD, kind, flop=row.forward), backward)), counter="study_a")

    assert (work.forward, work.backward) == (row.forward, row.backward)


def test_only_pooling_by_windows_and_dropout_are_not_as_the_study_says():
    """Layers 2:1 and ReLU 1:1 are exact; a mean over everything is 1:1 as well."""
    ratios = {name: Fraction(row.backward, row.forward) for name, row in KINDS.items()}

    assert {name: ratio for name, ratio in ratios.items() if ratio != KINDS[name].study} == {
        "max_pool_3x3": Fraction(1, 8),
        "avg_pool_3x3": Fraction(10, 9),
        "dropout": Fraction(1, 2),
    }


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_layer_is_contraction_alone(name):
    """Without bias there is no element-wise work in it."""
    work = work_of(PRODUCTS[name][0])

    assert (work.contraction.forward, work.contraction.backward) == (work.forward, work.backward)
    assert work.backward == 2 * work.forward


SEES_BACKWARD = tuple(name for name, row in COUNTERS.items() if row.package and Phase.BACKWARD in row.phases)
TIMES = {  # counter, kind: how many times the right forward it counts forward and backward; else 1 and 2
    ("flop_counter_mode", "conv2d_grouped"): (1, 1 + 2),
    ("flop_counter_mode", "conv2d_depthwise"): (1, 1 + 4),
    **{
        (profiler, kind): (0 if "transpose" in kind else 1, 0)
        for profiler in ("torch_profiler", "autograd_profiler")
        for kind in PRODUCTS
        if kind != "linear"
    },
}
"""FlopCounterMode counts the weight gradient once for each group; the profilers have formulas for the forward
of a convolution that is not transposed, and for no backward but a linear layer's."""


@pytest.mark.counters
@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.axes(counter=SEES_BACKWARD)
def test_another_counter_sees_a_layer_so_many_times(kind, counter, record_work):
    """Less what the layer in front of it costs."""
    alone, both = counter(step_of()), counter(step_of(PRODUCTS[kind][0]))
    record_work(both, kind=kind)
    forward = both.contraction.forward - alone.contraction.forward
    backward = both.contraction.backward - alone.contraction.backward

    right = 2 * PRODUCTS[kind][1]
    times = TIMES.get((counter.name, kind), (1, 2))
    assert (forward, backward) == (times[0] * right, times[1] * right)


@pytest.mark.parametrize("side", [2, 3, 5, 7], ids=lambda side: f"{side}x{side}")
def test_pooling_depends_on_the_window(side):
    """With k = side² the maximum is k - 1 compares against 1 add, the mean k against k adds, 1 division."""
    k = side * side
    maximum, mean = (work_of((kind, side)) for kind in ("MaxPool2d", "AvgPool2d"))

    assert Fraction(maximum.backward, maximum.forward) == Fraction(1, k - 1)
    assert Fraction(mean.backward, mean.forward) == Fraction(k + 1, k)


def test_dropout_is_one_to_one_in_the_fused_kernel_that_a_gpu_runs():
    """Two products forward, two backward, where the composed form scales its mask once and keeps it."""
    import torch

    from measurements import counting

    x = torch.ones(SIZES, device="meta", requires_grad=True)
    with counting() as work:
        out, _ = torch.native_dropout(x, 0.5, True)
        out.backward(torch.ones_like(out))

    ops = {op: part.total for op, part in work.by_op().items() if part.total}
    assert ops == {"aten.native_dropout": 2 * ELEMENTS, "aten.native_dropout_backward": 2 * ELEMENTS}


def test_dropout_costs_nothing_where_nothing_is_dropped():
    """In eval mode it is not there."""
    import torch
    from torch import nn

    from measurements import counting

    x = torch.ones(SIZES, device="meta", requires_grad=True)
    with counting() as work:
        nn.Dropout(0.5).eval()(x).backward(torch.ones_like(x))

    assert work.total == 0
