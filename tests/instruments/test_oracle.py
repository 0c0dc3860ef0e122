"""The theory is what executed arithmetic costs: the oracle gives torch's numbers and the same count."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measurements import theory
from tests.instruments import oracle

if TYPE_CHECKING:
    from torch import Tensor, nn

pytestmark = pytest.mark.theory

few = settings(max_examples=25, deadline=None)
small = st.integers(1, 3)


@st.composite
def linears(draw: st.DrawFn) -> dict[str, Any]:
    """A linear layer and the sizes of its input, with no, one or two leading axes."""
    sizes = (*draw(st.lists(small, max_size=2)), draw(st.integers(1, 6)))
    return {"kind": "Linear", "x": sizes, "arguments": (sizes[-1], draw(st.integers(1, 5))), "named": {}}


@st.composite
def convolutions(draw: st.DrawFn, transposed: bool = False) -> dict[str, Any]:
    """A convolution of rank 1, 2 or 3 and the sizes of its input, every setting drawn for each axis."""
    rank = draw(st.integers(1, 3))
    each = st.tuples(*[st.integers(1, 2 if rank == 3 else 3)] * rank)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    padding = draw(st.tuples(*[st.integers(0, 2)] * rank))
    groups = draw(small)
    channels, filters = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    extra = draw(st.tuples(*[st.integers(0, 2)] * rank))
    named = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        # Sides of which something is left when padding crops both ends.
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        sides = [
            max(0, -(-(2 * p + 1 - r) // s)) + 1 + e
            for p, r, s, e in zip(padding, reach, stride, extra, strict=True)
        ]
        largest = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
        named["output_padding"] = draw(st.tuples(*(st.integers(0, top) for top in largest)))
    else:
        sides = [
            max(1, d * (k - 1) + 1 - 2 * p) + e
            for d, k, p, e in zip(dilation, kernel, padding, extra, strict=True)
        ]
    return {
        "kind": f"ConvTranspose{rank}d" if transposed else f"Conv{rank}d",
        "x": (draw(st.integers(1, 2)), channels, *sides),
        "arguments": (channels, filters, kernel),
        "named": named,
    }


layers = st.one_of(linears(), convolutions(), convolutions(transposed=True))


def integers(*sizes: int) -> Tensor:
    """Small whole numbers in float64: their sums are exact in any order. Hypothesis seeds `random`."""
    import torch

    drawn = [random.randint(-3, 3) for _ in range(math.prod(sizes))]
    return torch.tensor(drawn, dtype=torch.float64).reshape(sizes)


def build(case: dict[str, Any], bias: bool = False) -> nn.Module:
    """The layer of torch.nn, with small whole numbers as parameters."""
    import torch

    layer: nn.Module = getattr(torch.nn, case["kind"])(
        *case["arguments"], bias=bias, **case["named"]
    ).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(integers(*parameter.shape))
    return layer


def execute(layer: nn.Module, x: Tensor, gradient: Tensor) -> dict[str, tuple[oracle.Values, int]]:
    """Output and both gradients of the layer by the oracle's loops, each with the operations executed."""
    xs, weight, g = oracle.values(x), oracle.values(layer.weight), oracle.values(gradient)
    sizes, filters, out = tuple(x.shape), tuple(layer.weight.shape), tuple(gradient.shape)
    name = type(layer).__name__
    if name == "Linear":
        taps = oracle.linear(sizes, filters)
        return {
            "out": taps.forward(xs, weight),
            "x": taps.left_gradient(g, weight),
            "weight": taps.right_gradient(g, xs),
        }
    settings_of = (layer.stride, layer.dilation, layer.groups)
    around = layer.padding
    if name.startswith("ConvTranspose"):
        canvas = [side + 2 * p for side, p in zip(out[2:], around, strict=True)]
        taps = oracle.transposed_convolution(sizes, filters, canvas, *settings_of)
        g = oracle.pad(g, taps.out, around)
        result, flop = taps.forward(xs, weight)
        return {
            "out": (oracle.crop(result, out, around), flop),
            "x": taps.left_gradient(g, weight),
            "weight": taps.right_gradient(g, xs),
        }
    padded = (*sizes[:2], *(side + 2 * p for side, p in zip(sizes[2:], around, strict=True)))
    taps = oracle.convolution(padded, filters, *settings_of)
    xs = oracle.pad(xs, padded, around)
    to_x, flop = taps.left_gradient(g, weight)
    return {
        "out": taps.forward(xs, weight),
        "x": (oracle.crop(to_x, sizes, around), flop),
        "weight": taps.right_gradient(g, xs),
    }


def same(counted: oracle.Values, tensor: Tensor, exact: bool = True) -> bool:
    """Whether the oracle computed what torch did."""
    expected = oracle.values(tensor)
    if exact:
        return counted == expected
    return counted.keys() == expected.keys() and all(
        math.isclose(counted[i], expected[i], abs_tol=1e-9) for i in counted
    )


@few
@given(case=layers, x_needs=st.booleans(), weight_needs=st.booleans())
def test_a_layer_costs_what_its_loops_execute(
    case: dict[str, Any], x_needs: bool, weight_needs: bool
) -> None:
    """Forward, and backward for whichever operand needs a gradient; and the loops are torch's layer."""
    from measurements.layers import layers_of

    layer, x = build(case), integers(*case["x"]).requires_grad_()
    out = layer(x)
    gradient = integers(*out.shape)
    out.backward(gradient)
    executed = execute(layer, x, gradient)
    x_gradient, x = x.grad, x.detach().requires_grad_(x_needs)
    weight_gradient = layer.weight.grad
    layer.weight.requires_grad_(weight_needs)

    (row,) = layers_of(layer, (x,))

    assert same(executed["out"][0], out)
    assert same(executed["x"][0], x_gradient)
    assert same(executed["weight"][0], weight_gradient)
    assert theory.forward_flop(row) == executed["out"][1]
    assert theory.backward_flop(row) == x_needs * executed["x"][1] + weight_needs * executed["weight"][1]


@few
@given(case=layers, x_needs=st.booleans(), weight_needs=st.booleans())
def test_theory_and_counter_agree_on_a_layer(case: dict[str, Any], x_needs: bool, weight_needs: bool) -> None:
    """With the oracle, three independent sources of one integer."""
    from measurements import counting
    from measurements.layers import layers_of

    layer, x = build(case), integers(*case["x"]).requires_grad_(x_needs)
    layer.weight.requires_grad_(weight_needs)
    closed = theory.closed_form(layers_of(layer, (x,))).contraction

    with counting() as work:
        out = layer(x).sum()
        if out.requires_grad:
            out.backward()

    assert (work.contraction.forward, work.contraction.backward) == (closed.forward, closed.backward)


@few
@given(sizes=st.tuples(small, small, small, small))
def test_attention_products_cost_twice_forward(sizes: tuple[int, int, int, int]) -> None:
    """QK^T and AV: four gradients of one forward product each, with torch's numbers through the softmax."""
    import torch

    n, queries, keys, width = sizes
    q, v = integers(n, queries, width).requires_grad_(), integers(n, keys, width).requires_grad_()
    k = integers(n, width, keys).requires_grad_()  # K, transposed
    scores, weighted = (
        oracle.bmm((n, queries, width), (n, width, keys)),
        oracle.bmm((n, queries, keys), (n, keys, width)),
    )
    s = (q @ k).detach().requires_grad_()
    a = torch.softmax(s, -1)
    out = torch.softmax(q @ k, -1) @ v
    gradient = integers(*out.shape)
    out.backward(gradient)

    s_counted, s_flop = scores.forward(oracle.values(q), oracle.values(k))
    out_counted, out_flop = weighted.forward(oracle.values(a), oracle.values(v))
    to_a, a_flop = weighted.left_gradient(oracle.values(gradient), oracle.values(v))
    to_v, v_flop = weighted.right_gradient(oracle.values(gradient), oracle.values(a))
    a.backward(
        torch.tensor([float(to_a[i]) for i in oracle.indices(*a.shape)], dtype=a.dtype).reshape(a.shape)
    )
    to_q, q_flop = scores.left_gradient(oracle.values(s.grad), oracle.values(k))
    to_k, k_flop = scores.right_gradient(oracle.values(s.grad), oracle.values(q))

    assert same(s_counted, s)
    assert same(out_counted, out, exact=False)
    assert same(to_q, q.grad, exact=False)
    assert same(to_k, k.grad, exact=False)
    assert same(to_v, v.grad, exact=False)
    assert s_flop + out_flop == 2 * 2 * n * queries * keys * width
    assert a_flop + v_flop + q_flop + k_flop == 2 * (s_flop + out_flop)


@few
@given(sizes=st.tuples(small, small, small, small), x_needs=st.booleans())
def test_a_recurrent_layer_owes_no_gradient_to_its_first_state(
    sizes: tuple[int, int, int, int], x_needs: bool
) -> None:
    """Through time: every product, and every gradient but that of the state before the first step."""
    import torch

    from measurements.layers import layers_of

    steps, n, features, hidden = sizes
    rnn = torch.nn.RNN(features, hidden, nonlinearity="relu", bias=False).double()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.copy_(integers(*parameter.shape))
    x = integers(steps, n, features).requires_grad_(x_needs)
    out, _ = rnn(x)
    gradient = integers(*out.shape)
    out.backward(gradient)

    ih, hh = rnn.weight_ih_l0, rnn.weight_hh_l0
    unrolled = oracle.Recurrent(
        oracle.values(ih),
        oracle.values(hh),
        oracle.linear((n, features), tuple(ih.shape)),
        oracle.linear((n, hidden), tuple(hh.shape)),
    )
    xs = [oracle.values(step) for step in x]
    states, forward = unrolled.forward(xs)
    to_ih, to_hh, to_x, backward = unrolled.backward(
        xs, states, [oracle.values(g) for g in gradient], x_needs
    )
    (row,) = layers_of(rnn, (x,))

    assert all(same(*pair) for pair in zip(states[1:], out, strict=True))
    assert same(to_ih, ih.grad)
    assert same(to_hh, hh.grad)
    assert not x_needs or all(same(*pair) for pair in zip(to_x, x.grad, strict=True))
    assert theory.forward_flop(row) == forward
    assert theory.backward_flop(row) == backward


@few
@given(sizes=st.tuples(st.integers(1, 4), st.integers(2, 5)))
def test_cross_entropy_costs_what_its_loops_execute(sizes: tuple[int, int]) -> None:
    """Forward and backward, all work: (5C - 1)N + 2N and (4C - 1)N + N by the theory's units."""
    import torch
    from torch.nn import functional as F

    n, classes = sizes
    logits, targets = (
        integers(n, classes).requires_grad_(),
        torch.tensor([random.randrange(classes) for _ in range(n)]),
    )
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    units = ("negative_log_likelihood", "sum_over_the_batch", "divide_by_the_batch")

    logs, mean, forward = oracle.cross_entropy(oracle.values(logits), targets.tolist())
    to_logits, backward = oracle.cross_entropy_gradient(
        oracle.values(torch.ones(()))[()], logs, targets.tolist()
    )

    assert same(mean, loss, exact=False)
    assert same(to_logits, logits.grad, exact=False)
    assert forward == unit("log_softmax", n, classes)[0] + sum(unit(name, n)[0] for name in units)
    assert backward == unit("log_softmax", n, classes)[1] + sum(unit(name, n)[1] for name in units)


@few
@given(sizes=st.tuples(small, small, st.integers(3, 6)))
def test_element_wise_units_cost_what_their_loops_execute(sizes: tuple[int, int, int]) -> None:
    """Bias, ReLU, maximum and mean, forward and backward, with torch's numbers."""
    import torch
    from torch.nn import functional as F

    n, channels, side = sizes
    x = integers(n, channels, side).requires_grad_()
    bias = integers(channels)
    pooled = F.max_pool1d(F.relu(x + bias[:, None]), 3, 1)
    mean = pooled.mean()
    mean.backward()
    places = {(i, c, p): tuple((i, c, p + k) for k in range(3)) for i, c, p in oracle.indices(*pooled.shape)}

    biased, bias_flop = oracle.plus_bias(oracle.values(x), [float(b) for b in bias])
    active, relu_flop = oracle.relu(biased)
    largest, where, pool_flop = oracle.max_pool(active, places)
    average, mean_flop = oracle.mean(largest)
    g, mean_back = oracle.mean_gradient(oracle.values(torch.ones(()))[()], largest)
    g, pool_back = oracle.max_pool_gradient(g, where, active)
    g, relu_back = oracle.relu_gradient(g, active)
    _, bias_back = oracle.bias_gradient(g)

    assert same(average, mean, exact=False)
    assert same(largest, pooled)
    assert same(g, x.grad, exact=False)
    elements, outputs = x.numel(), pooled.numel()
    # A bias of the theory is summed over N samples; here each channel is summed over n·side.
    assert (bias_flop, bias_back) == unit("bias", n * side, count=channels)
    assert (relu_flop, relu_back) == unit("relu", elements)
    assert (pool_flop, pool_back) == unit("max_pool", outputs, 3)
    assert (mean_flop, mean_back) == unit("average_pool", 1, outputs)


def unit(name: str, samples: int, extent: int = 1, count: int = 1) -> tuple[int, int]:
    """Forward and backward FLOP of `count` units at that many samples."""
    rule = theory.UNITS[name]
    forward, backward = rule.forward(extent), rule.backward(extent)
    return count * (forward[0] + forward[1] * samples), count * (backward[0] + backward[1] * samples)
