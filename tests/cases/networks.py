"""Whole networks of published ratios: backward is twice forward, less the first layer."""

from __future__ import annotations

from tests.cases.case import PYTORCH, RATIO, Case

CONV_1, CONV_2 = 4 * 3 * 9 * 4 * 4, 8 * 4 * 9 * 2 * 2  # 8 x 8 -> 4 x 4 -> 2 x 2


def stage(c: int, side: int) -> int:
    """Multiply-adds of a stage of resnet18 that doubles c channels and comes out as side x side.

    A convolution c -> 2c, three 2c -> 2c, and the shortcut, c -> 2c with one tap.
    """
    return (2 * c * c * 9 + 3 * (2 * c) * (2 * c) * 9 + 2 * c * c) * side**2


STEM = 64 * 3 * 49 * 32**2  # 64 x 64 -> 32 x 32, pooled to 16 x 16
STAGES = 4 * 64 * 64 * 9 * 16**2 + stage(64, 8) + stage(128, 4) + stage(256, 2)
RESNET = 2 * 2 * (STEM + STAGES + 512 * 10)  # two images

CASES = (
    Case(
        "one_net",
        "ratio",
        "nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))",
        "d(2, 1)",
        2 * 2 * (1 * 64 + 64 * 8 + 8 * 3),
        2 * 2 * (1 * 64 + 2 * (64 * 8 + 8 * 3)),
        RATIO,
    ),
    Case(
        "conv_net",
        "ratio",
        "nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.Flatten(), "
        "nn.Linear(32, 3))",
        "d(1, 3, 8, 8)",
        2 * (CONV_1 + CONV_2 + 32 * 3),
        2 * (CONV_1 + 2 * (CONV_2 + 32 * 3)),
        RATIO,
    ),
    Case(
        "resnet18",
        "ratio",
        "resnet18(num_classes=10)",
        "d(2, 3, 64, 64)",
        RESNET,
        2 * RESNET - 2 * 2 * STEM,
        f"{PYTORCH}issues/69782",
    ),
)
