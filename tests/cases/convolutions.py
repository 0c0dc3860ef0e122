"""Convolutions, plain, grouped and transposed.

Letters: N samples, C channels in, O out, K taps of the kernel, P positions of the output (of the input where
the convolution is transposed), G groups. Multiply-adds: N · O · C/G · K · P.
"""

from __future__ import annotations

from tests.cases.case import CALFLOPS, DEEPSPEED, FVCORE, PTFLOPS, PYTORCH, THOP, Case

N, C, O, K, P = 2, 3, 4, 3 * 3, 6 * 6  # noqa: E741

CONV = 2 * N * O * C * K * P
X = "(2, 3, 6, 6)"
LAYER = "nn.Conv2d(3, 4, 3, padding=1, bias=False)"

PLAIN = (
    Case("both_gradients", "convolution", LAYER, f"r{X}", CONV, 2 * CONV, f"{PTFLOPS}issues/16"),
    Case("first_layer", "convolution", LAYER, f"d{X}", CONV, CONV, f"{PYTORCH}issues/69782"),
    Case(
        "bias",
        "convolution",
        "nn.Conv2d(3, 4, 3, padding=1)",
        f"r{X}",
        CONV,
        2 * CONV,
        f"{PTFLOPS}issues/98",
    ),
    Case(
        "batch_norm",
        "convolution",
        f"nn.Sequential({LAYER}, nn.BatchNorm2d(4))",
        f"d{X}",
        CONV,
        CONV,
        f"{PTFLOPS}issues/98",
    ),
    Case(
        "batch_norm_eval",
        "convolution",
        f"nn.Sequential({LAYER}, nn.BatchNorm2d(4)).eval()",
        f"d{X}",
        CONV,
        CONV,
        f"{FVCORE}issues/42",
    ),
    Case(  # 9 x 11 becomes (9 + 4 - 5) / 2 + 1 = 5 by (11 + 4 - 5) / 2 + 1 = 6
        "dilated_strided",
        "convolution",
        "nn.Conv2d(3, 4, 3, stride=2, padding=2, dilation=2, bias=False)",
        "r(2, 3, 9, 11)",
        2 * N * O * C * K * 5 * 6,
        4 * N * O * C * K * 5 * 6,
        f"{PYTORCH}pull/51377",
    ),
    Case(
        "padding_same",
        "convolution",
        "nn.Conv2d(3, 4, 3, padding='same', bias=False)",
        f"r{X}",
        CONV,
        2 * CONV,
        f"{DEEPSPEED}pull/3169",
    ),
    Case(
        "padding_reflect",
        "convolution",
        "nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect', bias=False)",
        f"r{X}",
        CONV,
        2 * CONV,
        f"{PTFLOPS}issues/98",
    ),
    Case(  # 9 becomes (9 + 2 - 3) / 2 + 1 = 5
        "one_axis",
        "convolution",
        "nn.Conv1d(3, 4, 3, stride=2, padding=1, bias=False)",
        "r(2, 3, 9)",
        2 * N * O * C * 3 * 5,
        4 * N * O * C * 3 * 5,
        f"{DEEPSPEED}issues/1949",
    ),
    Case(
        "three_axes",
        "convolution",
        "nn.Conv3d(3, 4, 3, padding=1, bias=False)",
        "r(2, 3, 5, 6, 6)",
        2 * N * O * C * (3 * K) * (5 * P),
        4 * N * O * C * (3 * K) * (5 * P),
        f"{THOP}issues/13",
    ),
    Case(
        "channels_last",
        "layout and dtype",
        f"{LAYER}.to(memory_format=torch.channels_last)",
        "r(2, 3, 6, 6, memory_format=torch.channels_last)",
        CONV,
        2 * CONV,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "bfloat16",
        "layout and dtype",
        f"{LAYER}.bfloat16()",
        "r(2, 3, 6, 6, dtype=torch.bfloat16)",
        CONV,
        2 * CONV,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "frozen_weight",
        "frozen",
        f"{LAYER}.requires_grad_(False)",
        f"r{X}",
        CONV,
        CONV,
        f"{CALFLOPS}issues/30",
    ),
)

GROUPED = (
    Case(  # G = C
        "depthwise",
        "grouped convolution",
        "nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False)",
        f"r{X}",
        2 * N * 3 * 1 * K * P,
        4 * N * 3 * 1 * K * P,
        f"{PYTORCH}pull/183405",
    ),
    Case(
        "grouped",
        "grouped convolution",
        "nn.Conv2d(6, 4, 3, padding=1, groups=2, bias=False)",
        "r(2, 6, 6, 6)",
        2 * N * O * (6 // 2) * K * P,
        4 * N * O * (6 // 2) * K * P,
        f"{FVCORE}issues/45",
    ),
)

TRANSPOSED = (
    Case(
        "transposed",
        "transposed convolution",
        "nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1, bias=False)",
        f"r{X}",
        2 * N * C * O * (4 * 4) * P,
        4 * N * C * O * (4 * 4) * P,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "transposed_data",
        "transposed convolution",
        "nn.ConvTranspose2d(3, 8, 2, stride=2, bias=False)",
        f"d{X}",
        2 * N * C * 8 * (2 * 2) * P,
        2 * N * C * 8 * (2 * 2) * P,
        f"{PTFLOPS}issues/149",
    ),
    Case(
        "transposed_groups",
        "transposed convolution",
        "nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2, bias=False)",
        "r(2, 6, 5, 5)",
        2 * N * 6 * (4 // 2) * (2 * 2) * (5 * 5),
        4 * N * 6 * (4 // 2) * (2 * 2) * (5 * 5),
        f"{DEEPSPEED}pull/8323",
    ),
    Case(
        "transposed_one_axis",
        "transposed convolution",
        "nn.ConvTranspose1d(3, 5, 4, stride=2, bias=False)",
        "r(2, 3, 7)",
        2 * N * C * 5 * 4 * 7,
        4 * N * C * 5 * 4 * 7,
        f"{DEEPSPEED}issues/3815",
    ),
)

CASES = (*PLAIN, *GROUPED, *TRANSPOSED)
