"""What a counter that walks modules may stumble over: names, hooks, the same module again, wrappers."""

from __future__ import annotations

from tests.cases.case import FVCORE, LITGPT, PYTORCH, RATIO, THOP, TORCHPROFILE, Case
from tests.cases.convolutions import C, K, N, P, X
from tests.cases.products import LINEAR

FIRST, SECOND = 2 * 5 * 6 * 8, 2 * 5 * 8 * 6  # 6 -> 8 -> 6 on 5 rows
NET, NET_BACK = FIRST + SECOND, FIRST + 2 * SECOND
NETWORK = "nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))"
SQUARE = 2 * N * C * C * K * P
CONV = "nn.Conv2d(3, 3, 3, padding=1, bias=False)"

CASES = (
    Case("names", "names", "Named()", "d(5, 6)", NET, NET_BACK, f"{PYTORCH}issues/124196"),
    Case("named_global", "names", "Hiding()", "d(5, 6)", NET, NET_BACK, f"{PYTORCH}issues/134242"),
    Case("direct_forward", "hooks", "Direct()", "r(5, 6)", LINEAR, 2 * LINEAR, f"{FVCORE}issues/76"),
    Case(  # all gradients but that in the input
        "module_twice",
        "reuse",
        "Again(nn.Sequential(nn.Linear(6, 6, bias=False), nn.ReLU()), 2)",
        "d(5, 6)",
        2 * (2 * 5 * 6 * 6),
        (2 * 2 - 1) * (2 * 5 * 6 * 6),
        f"{THOP}issues/30",
    ),
    Case("loop", "reuse", f"Again({CONV}, 4)", f"d{X}", 4 * SQUARE, (2 * 4 - 1) * SQUARE, RATIO),
    Case(
        "depth_is_data",
        "control flow",
        f"AsOftenAs({CONV})",
        f"d{X}, torch.tensor(2)",
        2 * SQUARE,
        (2 * 2 - 1) * SQUARE,
        f"{TORCHPROFILE}issues/10",
    ),
    Case(
        "relu_in_place",
        "in place",
        "nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 6))",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{THOP}issues/142",
    ),
    Case(  # only the head's weight needs a gradient
        "frozen_backbone",
        "frozen",
        "nn.Sequential(nn.Linear(6, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 6))",
        "d(5, 6)",
        NET,
        SECOND,
        f"{LITGPT}pull/404",
    ),
    Case(  # 6 -> 2 -> 8 beside 6 -> 8: gradients of both weights, and what the second owes the first
        "adapter",
        "frozen",
        "Adapted()",
        "d(5, 6)",
        2 * 5 * (6 * 8 + 6 * 2 + 2 * 8),
        2 * 5 * (6 * 2 + 2 * (2 * 8)),
        "https://github.com/NVIDIA-NeMo/Automodel/pull/786",
    ),
    Case(  # optimized, it would run other operations from its second call on
        "scripted",
        "scripted",
        f"torch.jit.script({NETWORK})",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{FVCORE}issues/69",
        within="torch.jit.optimized_execution(False)",
    ),
    Case(
        "data_parallel",
        "wrapped",
        "parallel(Named())",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{FVCORE}issues/109",
        needs="torch.distributed with gloo",
        within="one_process()",
    ),
    Case(  # the layer; a power iteration of two products with a vector; sigma of another, and a dot
        "spectral_norm",
        "reparametrized",
        "nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8, bias=False))",
        "d(5, 6)",
        LINEAR + 2 * (2 * 6 * 8) + 2 * 6 * 8 + 2 * 8,
        None,
        f"{PYTORCH}issues/93121",
    ),
)
