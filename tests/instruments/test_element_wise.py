"""Element-wise work.

Reductions, softmax, pooling, normalization and losses cost what scalar loops execute.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from counted_float import CountedFloat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instruments import oracle
from tests.instruments.oracle import total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

few = settings(max_examples=10, deadline=None, derandomize=True)
Row = list[float]


def number(value: float) -> float:
    """A constant whose operations count."""
    return CountedFloat(value)


def largest(row: Sequence[float]) -> float:
    """The maximum by a compare for each element after the first."""
    best = row[0]
    for value in row[1:]:
        best = value if value > best else best
    return best


def mean(row: Sequence[float]) -> float:
    """The sum and a division."""
    return total(row) / number(float(len(row)))


def variance(row: Row, correction: float = 0.0) -> float:
    """Mean, centre, square, sum, divide."""
    middle = mean(row)
    centred = [x - middle for x in row]
    return total([x * x for x in centred]) / number(len(row) - correction)


def softmax(row: Row) -> Row:
    """Less the maximum, exp, by their sum."""
    top = largest(row)
    exps = [math.exp(x - top) for x in row]
    whole = total(exps)
    return [x / whole for x in exps]


def log_softmax(row: Row) -> Row:
    """Less the maximum, less the log of the sum of exp."""
    top = largest(row)
    shifted = [x - top for x in row]
    log = math.log(total([math.exp(x) for x in shifted]))
    return [x - log for x in shifted]


def logsumexp(row: Row) -> float:
    """The maximum, plus the log of the sum of exp."""
    top = largest(row)
    return math.log(total([math.exp(x - top) for x in row])) + top


def running(row: Row) -> Row:
    """Each sum from the one before it."""
    return list(itertools.accumulate(row))


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))."""
    return number(1.0) / (number(1.0) + math.exp(-x))


ROWS: dict[str, tuple[str, Callable[[Row], Any]]] = {  # of each row of a matrix: torch, and the loop
    "sum": ("x.sum(-1)", total),
    "prod": ("x.prod(-1)", lambda row: math.prod(row[1:], start=row[0])),
    "mean": ("x.mean(-1)", mean),
    "amax": ("x.amax(-1)", largest),
    "argmax": ("x.max(-1).values", largest),
    "var": ("x.var(-1, correction=0)", variance),
    "std": ("x.std(-1, correction=0)", lambda row: math.sqrt(variance(row))),
    "norm": ("torch.linalg.vector_norm(x, dim=-1)", lambda row: math.sqrt(total([x * x for x in row]))),
    "cumsum": ("x.cumsum(-1)", running),
    "softmax": ("x.softmax(-1)", softmax),
    "log_softmax": ("x.log_softmax(-1)", log_softmax),
    "logsumexp": ("x.logsumexp(-1)", logsumexp),
    "layer_norm": ("F.layer_norm(x, x.shape[-1:], w, w)", list),
    "rms_norm": ("F.rms_norm(x, x.shape[-1:], w, 1e-5)", list),
}

ELEMENTS: dict[
    str, tuple[str, Callable[[float, float], float]]
] = {  # of elements x and y: torch, and the loop
    "add": ("x + y", lambda x, y: x + y),
    "add_scaled": ("torch.add(x, y, alpha=2.5)", lambda x, y: x + number(2.5) * y),
    "sub": ("x - y", lambda x, y: x - y),
    "mul": ("x * y", lambda x, y: x * y),
    "div": ("x / y", lambda x, y: x / y),
    "neg": ("-x", lambda x, y: -x),
    "exp": ("x.exp()", lambda x, y: math.exp(x)),
    "sqrt": ("x.sqrt()", lambda x, y: math.sqrt(x)),
    "rsqrt": ("x.rsqrt()", lambda x, y: number(1.0) / math.sqrt(x)),
    "log": ("x.log()", lambda x, y: math.log(x)),
    "maximum": ("torch.maximum(x, y)", lambda x, y: x if x > y else y),
    "relu": ("F.relu(x)", lambda x, y: x if x > number(0.0) else number(0.0)),
    "lerp": ("torch.lerp(x, y, 0.5)", lambda x, y: x + number(0.5) * (y - x)),
    "addcmul": ("torch.addcmul(x, x, y, value=2.5)", lambda x, y: x + number(2.5) * (x * y)),
    "addcmul_once": ("torch.addcmul(x, x, y)", lambda x, y: x + x * y),
    "addcdiv": ("torch.addcdiv(x, x, y, value=2.5)", lambda x, y: x + number(2.5) * (x / y)),
    "sigmoid": ("x.sigmoid()", lambda x, y: sigmoid(x)),
    "silu": ("F.silu(x)", lambda x, y: x * sigmoid(x)),
    "dropout": ("F.dropout(x, 0.5)", lambda x, y: x * number(1.0) * number(2.0)),
}

LOSSES: dict[str, tuple[str, Callable[[Row, Row], float]]] = {  # of all elements
    "mse": ("F.mse_loss(x, y)", lambda x, y: mean([square(a - b) for a, b in zip(x, y, strict=True)])),
    "mse_sum": (
        "F.mse_loss(x, y, reduction='sum')",
        lambda x, y: total([square(a - b) for a, b in zip(x, y, strict=True)]),
    ),
    "l1": ("F.l1_loss(x, y)", lambda x, y: mean([abs(a - b) for a, b in zip(x, y, strict=True)])),
}


def square(x: float) -> float:
    """One product."""
    return x * x


def drawn(*sizes: int) -> Tensor:
    """Numbers between 1 and 3 in float64. Hypothesis seeds `random`."""
    import torch

    numbers = [random.uniform(1, 3) for _ in range(torch.Size(sizes).numel())]
    return torch.tensor(numbers, dtype=torch.float64).reshape(sizes)


def by_torch(text: str, **names: Any) -> tuple[Any, int]:
    """What torch gives for an expression, and the FLOP that the counter sees."""
    import torch
    from torch.nn import functional as F

    from measurements import counting

    with counting() as work:
        out = eval(text, {"torch": torch, "F": F, **names})
    assert work.contraction.forward == 0
    return out, work.forward


def near(values: Any, tensor: Tensor) -> bool:
    """Whether the loop computed what torch did."""
    import torch

    return torch.allclose(torch.tensor(values, dtype=torch.float64).flatten(), tensor.flatten())


@pytest.mark.parametrize("name", ROWS)
def test_work_along_an_axis_costs_what_its_loop_executes(name: str) -> None:
    """Every row by itself."""
    text, loop = ROWS[name]

    @few
    @given(sizes=st.tuples(st.integers(1, 3), st.integers(2, 6)))
    def check(sizes: tuple[int, int]) -> None:
        x, w = drawn(*sizes), drawn(sizes[1])
        rows = [[number(v) for v in row] for row in x.tolist()]
        weights = [number(v) for v in w.tolist()]

        def run() -> Any:
            if "norm" in name and name != "norm":  # each column has its weight
                return [weighted(name, row, weights) for row in rows]
            return [loop(row) for row in rows]

        values, executed = oracle.counted(run)
        out, counted = by_torch(text, x=x, w=w)

        assert near(values, out)
        assert counted == executed

    check()


def weighted(name: str, row: Row, weights: Row) -> Row:
    """A row normalized, its statistics once, then a weight (and a bias) for each element."""
    if name == "rms_norm":
        factor = number(1.0) / math.sqrt(mean([x * x for x in row]) + number(1e-5))
        return [x * factor * w for x, w in zip(row, weights, strict=True)]
    middle = mean(row)
    centred = [x - middle for x in row]
    factor = number(1.0) / math.sqrt(mean([x * x for x in centred]) + number(1e-5))
    return [x * factor * w + w for x, w in zip(centred, weights, strict=True)]


@pytest.mark.parametrize("name", ELEMENTS)
def test_element_wise_work_costs_what_its_loop_executes(name: str) -> None:
    """One element after the other; a mask of dropout multiplies, and the rest is scaled."""
    text, loop = ELEMENTS[name]
    x, y = drawn(3, 4), drawn(3, 4)
    pairs = list(zip(map(number, x.flatten().tolist()), map(number, y.flatten().tolist()), strict=True))

    values, executed = oracle.counted(lambda: [loop(a, b) for a, b in pairs])
    out, counted = by_torch(text, x=x, y=y)

    assert name == "dropout" or near(values, out)
    assert counted == executed


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_costs_what_its_loop_executes(name: str) -> None:
    """Its terms, and their sum or mean."""
    text, loop = LOSSES[name]
    x, y = drawn(3, 4), drawn(3, 4)
    columns = [[number(v) for v in tensor.flatten().tolist()] for tensor in (x, y)]

    value, executed = oracle.counted(lambda: loop(*columns))
    out, counted = by_torch(text, x=x, y=y)

    assert near([value], out)
    assert counted == executed


@few
@given(
    sides=st.tuples(st.integers(4, 6), st.integers(4, 6)), kernel=st.integers(1, 3), stride=st.integers(1, 2)
)
def test_pooling_costs_what_its_loops_execute(sides: tuple[int, int], kernel: int, stride: int) -> None:
    """Each window: k - 1 compares for a maximum; k - 1 additions and a division for an average."""
    x = drawn(1, 2, *sides)
    for name, loop in (("max_pool2d", largest), ("avg_pool2d", mean)):
        out, counted = by_torch(f"F.{name}(x, {kernel}, {stride})", x=x)
        windows = [
            [number(v) for v in x[0, c, i * stride :, j * stride :][:kernel, :kernel].flatten().tolist()]
            for _, c, i, j in oracle.indices(*out.shape)
        ]

        values, executed = oracle.counted(
            lambda windows=windows, loop=loop: [loop(window) for window in windows]
        )

        assert near(values, out)
        assert counted == executed


@few
@given(
    sides=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    places=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_adaptive_pooling_covers_windows_that_may_overlap(
    sides: tuple[int, int], places: tuple[int, int]
) -> None:
    """Window i of m over n elements: from floor(i·n/m) up to ceil((i + 1)·n/m)."""
    x = drawn(1, 2, *sides)
    for name, loop in (("adaptive_max_pool2d", largest), ("_adaptive_avg_pool2d", mean)):
        room = "torch.ops.aten" if name.startswith("_") else "F"
        out, counted = by_torch(f"{room}.{name}(x, {list(places)})", x=x)
        windows = []
        for _, c, *at in oracle.indices(*out.shape):
            ends = [(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, sides, places, strict=True)]
            (a, b), (d, e) = ends
            windows.append([number(v) for v in x[0, c, a:b, d:e].flatten().tolist()])

        values, executed = oracle.counted(
            lambda windows=windows, loop=loop: [loop(window) for window in windows]
        )

        assert near(values, out)
        assert counted == executed


@few
@given(sizes=st.tuples(st.integers(2, 3), st.integers(1, 3), st.integers(1, 3)), affine=st.booleans())
def test_batch_normalization_costs_what_its_loops_execute(sizes: tuple[int, int, int], affine: bool) -> None:
    """Statistics of a channel over the batch, and the running ones.

    A lerp each, and a variance over n - 1.
    """
    x = drawn(*sizes)
    w = drawn(sizes[1]) if affine else None
    start = drawn(sizes[1]), drawn(sizes[1])
    running = [tensor.clone() for tensor in start]

    def run() -> list[Row]:
        outs = []
        for c in range(sizes[1]):
            row = [number(v) for v in x[:, c].flatten().tolist()]
            middle = mean(row)
            centred = [v - middle for v in row]
            spread = mean([v * v for v in centred])
            factor = number(1.0) / math.sqrt(spread + number(1e-5))
            out = [v * factor for v in centred]
            if w is not None:
                weight = number(w[c].item())
                out = [v * weight + weight for v in out]
            unbiased = spread * number(len(row) / (len(row) - 1))
            for old, new in ((start[0][c], middle), (start[1][c], unbiased)):
                old = number(old.item())
                outs.append([old + number(0.1) * (new - old)])
            outs.append(out)
        return outs

    values, executed = oracle.counted(run)
    out, counted = by_torch(
        "F.batch_norm(x, m, v, w, w, training=True)", x=x, w=w, m=running[0], v=running[1]
    )

    expected = [part for c in range(sizes[1]) for part in (running[0][c], running[1][c], out[:, c])]
    assert all(near(value, tensor) for value, tensor in zip(values, expected, strict=True))
    assert counted == executed


@few
@given(sizes=st.tuples(st.integers(1, 3), st.integers(2, 5)))
def test_the_gradient_of_softmax_costs_what_its_loops_execute(sizes: tuple[int, int]) -> None:
    """Y · (g - Σ g·y), and for log softmax g - exp(y) · Σ g."""
    x, gradient = drawn(*sizes), drawn(*sizes)
    rows = [[number(v) for v in row] for row in gradient.tolist()]
    for kind in ("_softmax", "_log_softmax"):
        y = x.softmax(-1) if kind == "_softmax" else x.log_softmax(-1)
        ys = [[number(v) for v in row] for row in y.tolist()]

        def run(kind: str = kind, ys: list[Row] = ys) -> list[Row]:
            out = []
            for g, y in zip(rows, ys, strict=True):
                if kind == "_softmax":
                    whole = total([a * b for a, b in zip(g, y, strict=True)])
                    out.append([b * (a - whole) for a, b in zip(g, y, strict=True)])
                else:
                    whole = total(g)
                    out.append([a - math.exp(b) * whole for a, b in zip(g, y, strict=True)])
            return out

        values, executed = oracle.counted(run)
        text = f"torch.ops.aten.{kind}_backward_data(g, y, -1, torch.float64)"
        out, counted = by_torch(text, g=gradient, y=y)

        assert near(values, out)
        assert counted == executed


def test_integers_are_not_counted() -> None:
    """Sums, compares and windows over integers are bookkeeping."""
    import torch

    x = torch.arange(16).reshape(1, 1, 4, 4)
    for text in ("x + 1", "x * x", "x.sum()", "x.amax(-1)", "x > 3", "x.sort().values", "F.max_pool2d(x, 2)"):
        assert by_torch(text, x=x)[1] == 0, text
