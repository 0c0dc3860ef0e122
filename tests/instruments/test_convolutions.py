"""Convolutions cost their taps.

Whatever the layout, dtype, padding or mode, and whatever needs a gradient.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instruments import oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.records import Work

few = settings(max_examples=10, deadline=None, derandomize=True)

N, C, OUT, K, SIDE = 2, 4, 6, 3, 7
ONE = 2 * N * OUT * SIDE**2 * C * K**2  # with padding 1: as many outputs as inputs


def counted(run: Callable[[], Any]) -> Work:
    """Forward, and backward of the sum of the output where something needs a gradient."""
    from measurements import counting

    with counting() as work:
        out = run()
        if out.requires_grad:
            (out.abs() if out.is_complex() else out).sum().backward()
    return work.frozen()


def products(work: Work) -> tuple[int, int]:
    """Contraction FLOP forward and backward."""
    return work.contraction.forward, work.contraction.backward


def image(needs: bool = True, **options: Any) -> Any:
    """A batch of images."""
    import torch

    return torch.ones(N, C, SIDE, SIDE, requires_grad=needs, **options)


def layer(**options: Any) -> Any:
    """A 3 x 3 convolution that keeps the side."""
    import torch

    return torch.nn.Conv2d(C, OUT, K, **{"padding": 1, "bias": False, **options})


@pytest.mark.parametrize(
    "options",
    [{"padding": "same"}, {"padding_mode": "reflect"}, {"padding_mode": "circular"}, {"bias": True}],
    ids=["same", "reflect", "circular", "bias"],
)
def test_padding_and_bias_change_no_product(options: dict[str, Any]) -> None:
    """Taps on padding count; padding by copies leaves the taps as many."""
    assert products(counted(lambda: layer(**options)(image()))) == (ONE, 2 * ONE)


def test_layout_dtype_and_device_change_no_product() -> None:
    """channels_last, bfloat16 by itself and by autocast, meta; nothing is counted for a cast."""
    import torch

    last = torch.channels_last
    cases = {
        "channels_last": (layer().to(memory_format=last), image().to(memory_format=last), nullcontext()),
        "bfloat16": (layer(dtype=torch.bfloat16), image(dtype=torch.bfloat16), nullcontext()),
        "autocast": (layer(), image(), torch.autocast("cpu", torch.bfloat16)),
        "meta": (layer(device="meta"), image(device="meta"), nullcontext()),
    }
    for name, (conv, x, context) in cases.items():
        with context:
            work = counted(lambda conv=conv, x=x: conv(x))
        assert products(work) == (ONE, 2 * ONE), name
        assert work.forward == ONE + N * OUT * SIDE**2 - 1, name  # and the sum that is the loss


def test_each_operand_that_needs_a_gradient_costs_one_product() -> None:
    """Input, weight, both; of a frozen layer on data nothing."""
    for x_needs, weight_needs in ((True, True), (True, False), (False, True), (False, False)):
        conv = layer().requires_grad_(weight_needs)
        work = counted(lambda conv=conv, needs=x_needs: conv(image(needs)))
        assert products(work) == (ONE, (x_needs + weight_needs) * ONE)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_divide_forward_and_backward_alike(groups: int) -> None:
    """Backward is never more than one product for each operand, depthwise included."""
    import torch

    conv = torch.nn.Conv2d(4, 8, K, padding=1, groups=groups, bias=False)
    one = 2 * N * 8 * SIDE**2 * (4 // groups) * K**2

    assert products(counted(lambda: conv(image()))) == (one, 2 * one)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_transposed_convolution_costs_one_set_of_taps_for_each_input(rank: int, groups: int) -> None:
    """Not for each output; the same in backward."""
    import torch

    conv = getattr(torch.nn, f"ConvTranspose{rank}d")(4, 6, K, stride=2, groups=groups, bias=False)
    x = torch.ones(N, 4, *[5] * rank, requires_grad=True)
    one = 2 * N * 4 * 5**rank * (6 // groups) * K**rank

    assert products(counted(lambda: conv(x))) == (one, 2 * one)


def test_a_single_sample_needs_no_batch_axis() -> None:
    """(C, H, W) costs what a batch of one costs."""
    work = counted(lambda: layer()(image()[0]))

    assert products(work) == (ONE // N, 2 * ONE // N)


def test_a_complex_convolution_is_three_real_ones() -> None:
    """PyTorch multiplies complex numbers by three real products here; what really runs counts."""
    import torch

    conv, x = layer(dtype=torch.complex64), image(dtype=torch.complex64)

    work = counted(lambda: conv(x))

    assert work.contraction.forward == 3 * ONE
    assert work.contraction.backward == 2 * 3 * ONE


@few
@given(sizes=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(2, 4)))
def test_a_bias_is_added_to_each_output_and_its_gradient_is_a_sum(sizes: tuple[int, int, int, int]) -> None:
    """All work of a convolution with bias and of one without differ by what the loops execute."""
    import torch

    n, c, o, side = sizes
    x = torch.ones(n, c, side)
    flop = {}
    for bias in (False, True):
        conv = torch.nn.Conv1d(c, o, 2, bias=bias)
        out = conv(x)
        work = counted(lambda conv=conv: conv(x))
        flop[bias] = work.forward, work.backward
    outputs = oracle.values(out)

    _, added = oracle.plus_bias(outputs, [1.5] * o)
    _, summed = oracle.bias_gradient(outputs)

    assert flop[True][0] - flop[False][0] == added
    assert flop[True][1] - flop[False][1] == summed


def test_a_convolution_by_columns_costs_the_same() -> None:
    """Unfold copies, the matrix product has the same taps."""
    import torch

    x, weight = image(), torch.ones(OUT, C * K * K, requires_grad=True)

    assert products(counted(lambda: weight @ torch.nn.functional.unfold(x, K, padding=1))) == (ONE, 2 * ONE)


def test_the_gradient_of_a_gradient_is_counted_as_work_not_as_repetition() -> None:
    """A penalty on the input's gradient: forward, dgrad, then the products of both backward passes."""
    import torch

    from measurements import counting

    conv, x = layer(), image()
    with counting() as work:
        out = conv(x).square().sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        gradient.square().sum().backward()

    # forward 1; dgrad 1; of dgrad(g, w): to g 1, to w 1; back through the forward: to x 1, to w 1
    assert work.contraction.forward + work.contraction.backward == 6 * ONE
    assert work.contraction.recomputed == 0


def test_a_deformable_convolution_costs_the_dense_product() -> None:
    """And 7 for each bilinear sample: 4 products, 3 additions; the bias that torchvision always adds."""
    import torch
    from torchvision.ops import deform_conv2d

    x, weight = torch.ones(1, C, SIDE, SIDE), torch.ones(OUT, C, K, K)
    offset = torch.zeros(1, 2 * K * K, 5, 5)

    work = counted(lambda: deform_conv2d(x, offset, weight))

    assert work.contraction.forward == 2 * OUT * 25 * C * K * K
    assert work.forward == work.contraction.forward + 7 * C * K * K * 25 + OUT * 25


def test_shapes_that_contradict_each_other_are_refused() -> None:
    """A formula given a weight that cannot make that output says so."""
    from measurements.formulas import FORMULAS
    from measurements.records import Shape

    x, weight, out = Shape((2, 4, 7, 7)), Shape((6, 4, 3, 3)), Shape((2, 5, 7, 7))
    with pytest.raises(ValueError, match=r"weight \(6, 4, 3, 3\) cannot give \(2, 5, 7, 7\)"):
        FORMULAS["aten.convolution"](x, weight, out)
    with pytest.raises(ValueError, match="sums 4 elements with 5"):
        FORMULAS["aten.mm"](Shape((3, 4)), Shape((5, 6)))
