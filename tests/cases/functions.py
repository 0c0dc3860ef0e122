"""Layers written as functions, the same weight again, and what is no contraction at all."""

from __future__ import annotations

from tests.cases.case import DEEPSPEED, FVCORE, PTFLOPS, PYTORCH, THOP, ULTRALYTICS, Case
from tests.cases.convolutions import CONV, X
from tests.cases.products import LINEAR

FUNCTIONS = (
    Case(
        "conv_function",
        "functional",
        "Weighted(lambda x, w: F.conv2d(x, w, padding=1), 4, 3, 3, 3)",
        f"r{X}",
        CONV,
        2 * CONV,
        f"{FVCORE}issues/49",
    ),
    Case(
        "unfolded",
        "functional",
        "Weighted(lambda x, w: w @ F.unfold(x, 3, padding=1), 4, 27)",
        f"r{X}",
        CONV,
        2 * CONV,
        f"{FVCORE}issues/49",
    ),
    Case(  # the first use owes the weight a gradient, the second the weight and the first
        "twice",
        "reuse",
        "Weighted(lambda x, w: (x @ w) @ w, 6, 6)",
        "d(5, 6)",
        2 * (2 * 5 * 6 * 6),
        3 * (2 * 5 * 6 * 6),
        f"{PTFLOPS}issues/98",
    ),
    Case(  # three members, each with a weight of its own; warm: the first vmap of a process tries itself out
        "mapped",
        "transformed",
        "warm(Weighted(lambda x, w: torch.vmap(lambda one: x @ one)(w), 3, 6, 8), 5, 6)",
        "d(5, 6)",
        3 * LINEAR,
        3 * LINEAR,
        f"{PYTORCH}issues/93121",
    ),
)

NO_CONTRACTION = (
    Case(
        "embedding",
        "no contraction",
        "nn.Embedding(9, 4)",
        "torch.arange(5)",
        0,
        0,
        f"{ULTRALYTICS}pull/172",
    ),
    Case(
        "interpolate",
        "no contraction",
        "function(lambda x: F.interpolate(x, scale_factor=2, mode='bilinear'))",
        "r(1, 2, 4, 4)",
        0,
        0,
        f"{PTFLOPS}issues/144",
    ),
    Case(
        "upsample",
        "no contraction",
        "nn.Upsample(scale_factor=2)",
        "r(1, 2, 4, 4)",
        0,
        0,
        f"{DEEPSPEED}pull/8394",
    ),
    Case(
        "adaptive_pool",
        "no contraction",
        "nn.AdaptiveAvgPool2d((None, 1))",
        "r(1, 2, 4, 4)",
        0,
        0,
        f"{THOP}issues/97",
    ),
    Case(
        "subtract",
        "no contraction",
        "function(lambda a, b: a - b)",
        "r(2, 3), r(2, 3)",
        0,
        0,
        f"{PYTORCH}issues/82951",
    ),
    Case(
        "add",
        "no contraction",
        "function(lambda a, b: a + b)",
        "r(2, 3), r(2, 3)",
        0,
        0,
        f"{FVCORE}issues/143",
    ),
)

CASES = (*FUNCTIONS, *NO_CONTRACTION)
