"""Linear layers, and the products of two tensors, by every name that they have.

Of m x k and k x n: 2 · m · k · n forward, and as much again for each operand that needs a gradient.
"""

from __future__ import annotations

from tests.cases.case import BENCHMARK, DEEPSPEED, FVCORE, MMENGINE, PTFLOPS, PYTORCH, THOP, ULTRALYTICS, Case

LINEAR = 2 * 5 * 6 * 8  # 5 rows, 6 -> 8
LAYER = "nn.Linear(6, 8, bias=False)"

LAYERS = (
    Case("linear", "linear", LAYER, "r(5, 6)", LINEAR, 2 * LINEAR, f"{THOP}issues/217"),
    Case(
        "linear_bias",
        "linear",
        "nn.Linear(6, 8)",
        "r(5, 7, 6)",
        2 * (5 * 7) * 6 * 8,
        4 * (5 * 7) * 6 * 8,
        f"{PTFLOPS}issues/28",
    ),
    Case("linear_vector", "vector", LAYER, "r(6)", 2 * 6 * 8, 4 * 6 * 8, f"{MMENGINE}pull/970"),
    Case("empty_batch", "empty", "nn.Linear(6, 8)", "d(0, 6)", 0, 0, f"{PTFLOPS}issues/69"),
    Case(  # one operand, then the other: 3 · 4 multiply-adds, and 4 more, for each row and output
        "bilinear",
        "linear",
        "nn.Bilinear(3, 4, 5, bias=False).requires_grad_(False)",
        "d(6, 3), d(6, 4)",
        2 * 6 * 5 * (3 * 4 + 4),
        None,
        f"{ULTRALYTICS}pull/158",
    ),
)

FUNCTIONS = (
    Case(
        "linear_function",
        "functional",
        "Weighted(lambda x, w: F.linear(x, w), 8, 6)",
        "r(5, 6)",
        LINEAR,
        2 * LINEAR,
        f"{DEEPSPEED}issues/1467",
    ),
    Case(
        "operator",
        "functional",
        "Weighted(lambda x, w: x @ w, 6, 8)",
        "r(5, 6)",
        LINEAR,
        2 * LINEAR,
        f"{DEEPSPEED}issues/4723",
    ),
    Case(
        "bmm",
        "functional",
        "function(lambda a, b: torch.bmm(a, b))",
        "r(3, 2, 4), r(3, 4, 5)",
        2 * 3 * 2 * 4 * 5,
        4 * 3 * 2 * 4 * 5,
        f"{PYTORCH}pull/66636",
    ),
    Case(
        "baddbmm",
        "functional",
        "function(lambda c, a, b: torch.baddbmm(c, a, b))",
        "r(3, 2, 5), r(3, 2, 4), r(3, 4, 5)",
        2 * 3 * 2 * 4 * 5,
        4 * 3 * 2 * 4 * 5,
        f"{FVCORE}issues/117",
    ),
    Case(
        "addmm",
        "functional",
        "function(lambda c, a, b: torch.addmm(c, a, b))",
        "r(5, 8), r(5, 6), r(6, 8)",
        LINEAR,
        2 * LINEAR,
        f"{PYTORCH}pull/61895",
    ),
    Case(
        "addmm_in_place",
        "functional",
        "function(lambda a, b: torch.zeros(5, 8).addmm_(a, b))",
        "r(5, 6), r(6, 8)",
        LINEAR,
        2 * LINEAR,
        f"{PYTORCH}pull/123768",
    ),
    Case(
        "mm_out",
        "functional",
        "function(lambda a, b: torch.mm(a, b, out=torch.empty(5, 8)))",
        "d(5, 6), d(6, 8)",
        LINEAR,
        None,
        f"{BENCHMARK}issues/2383",
    ),
    Case(
        "mv",
        "vector",
        "function(lambda a, v: torch.mv(a, v))",
        "r(5, 6), r(6)",
        2 * 5 * 6,
        4 * 5 * 6,
        f"{MMENGINE}pull/970",
    ),
    Case(  # backward scales a vector by a number, twice: no contraction
        "dot",
        "vector",
        "function(lambda a, b: torch.dot(a, b))",
        "r(6), r(6)",
        2 * 6,
        0,
        f"{MMENGINE}pull/970",
    ),
    Case(
        "einsum",
        "functional",
        "function(lambda a, b: torch.einsum('bhid,bhjd->bhij', a, b))",
        "r(2, 3, 6, 4), r(2, 3, 5, 4)",
        2 * (2 * 3) * 6 * 4 * 5,
        4 * (2 * 3) * 6 * 4 * 5,
        f"{DEEPSPEED}pull/8320",
    ),
    Case(  # 2 x 1 and 3 make 2 x 3 products
        "broadcast",
        "functional",
        "function(lambda a, b: torch.matmul(a, b))",
        "r(2, 1, 6, 4), r(3, 4, 5)",
        2 * (2 * 3) * 6 * 4 * 5,
        4 * (2 * 3) * 6 * 4 * 5,
        f"{FVCORE}pull/54",
    ),
    Case(
        "tensordot",
        "functional",
        "function(lambda a, b: torch.tensordot(a, b, dims=2))",
        "r(2, 6, 3, 4), r(3, 4, 5)",
        2 * (2 * 6) * (3 * 4) * 5,
        4 * (2 * 6) * (3 * 4) * 5,
        f"{FVCORE}issues/117",
    ),
)

CASES = (*LAYERS, *FUNCTIONS)
