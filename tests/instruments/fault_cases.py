"""Small programs, each of a kind that some FLOP counter was reported to count wrongly, and what is right.

Contraction FLOP, a multiply-add 2, dense; backward one product for each operand that needs a gradient. The
right value is hand arithmetic, written out. In a program `f` is what `make` made (uncounted), d(…) is data,
r(…) needs a gradient.
Source: where the fault, or the reason of the right value, was reported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PYTORCH = "https://github.com/pytorch/pytorch/"
BENCHMARK = "https://github.com/pytorch/benchmark/"
FVCORE = "https://github.com/facebookresearch/fvcore/issues/"
PTFLOPS = "https://github.com/sovrasov/flops-counter.pytorch/issues/"
THOP = "https://github.com/Lyken17/pytorch-OpCounter/issues/"
ULTRALYTICS = "https://github.com/ultralytics/thop/pull/"
CALFLOPS = "https://github.com/MrYxJ/calculate-flops.pytorch/issues/"
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed/"
LITGPT = "https://github.com/Lightning-AI/litgpt/"
MMENGINE = "https://github.com/open-mmlab/mmengine/pull/970"
RATIO = "https://www.lesswrong.com/posts/fnjKpBoWJXcSDwhZk/what-s-the-backward-forward-flop-ratio-for-neural-networks"


class Case(NamedTuple):
    """One program; backward None: none is meant."""

    name: str
    kind: str
    make: str
    program: str
    forward: int
    backward: int | None
    source: str


CONV = 2 * 2 * 4 * 3 * 9 * 36  # 2 · N O I K² P², N = 2, 3 -> 4 channels, 3 x 3 taps, 6 x 6 outputs
LINEAR = 2 * 5 * 6 * 8  # 5 rows, 6 -> 8
HEADS = 2 * 2 * 3 * 6 * 6 * 4  # Q K^T: N = 2, 3 heads, 6 queries and keys, width 4
GATES = 2 * 3 * 4 * 7  # one step of an LSTM for each feature: 3 sequences, 4 gates of 7
NET = 2 * 5 * (6 * 8 + 8 * 6)  # 6 -> 8 -> 6 on 5 rows
NET_BACK = 2 * 5 * (6 * 8 + 2 * 8 * 6)

_C = "nn.Conv2d(3, 4, 3, padding=1, bias=False)"
_L = "nn.Linear(6, 8, bias=False)"
_X = "(2, 3, 6, 6)"

CASES = (
    # convolution
    Case("both_gradients", "convolution", _C, f"f(r{_X})", CONV, 2 * CONV, f"{PTFLOPS}16"),
    Case("first_layer", "convolution", _C, f"f(d{_X})", CONV, CONV, f"{PYTORCH}issues/69782"),
    Case("bias", "convolution", "nn.Conv2d(3, 4, 3, padding=1)", f"f(r{_X})", CONV, 2 * CONV, f"{PTFLOPS}98"),
    Case(
        "batch_norm",
        "convolution",
        f"nn.Sequential({_C}, nn.BatchNorm2d(4))",
        f"f(d{_X})",
        CONV,
        CONV,
        f"{PTFLOPS}98",
    ),
    Case(
        "batch_norm_eval",
        "convolution",
        f"nn.Sequential({_C}, nn.BatchNorm2d(4)).eval()",
        f"f(d{_X})",
        CONV,
        CONV,
        f"{FVCORE}42",
    ),
    Case(
        "depthwise",
        "grouped convolution",
        "nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False)",
        f"f(r{_X})",
        2 * 2 * 3 * 1 * 9 * 36,
        4 * 2 * 3 * 1 * 9 * 36,
        f"{PYTORCH}pull/183405",
    ),
    Case(
        "grouped",
        "grouped convolution",
        "nn.Conv2d(6, 4, 3, padding=1, groups=2, bias=False)",
        "f(r(2, 6, 6, 6))",
        2 * 2 * 4 * 3 * 9 * 36,
        4 * 2 * 4 * 3 * 9 * 36,
        f"{FVCORE}45",
    ),
    Case(
        "dilated_strided",
        "convolution",
        "nn.Conv2d(3, 4, 3, stride=2, padding=2, dilation=2, bias=False)",
        "f(r(2, 3, 9, 11))",
        2 * 2 * 4 * 3 * 9 * 5 * 6,
        4 * 2 * 4 * 3 * 9 * 5 * 6,
        f"{PYTORCH}pull/51377",
    ),
    Case(
        "padding_same",
        "convolution",
        "nn.Conv2d(3, 4, 3, padding='same', bias=False)",
        f"f(r{_X})",
        CONV,
        2 * CONV,
        f"{DEEPSPEED}pull/3169",
    ),
    Case(
        "padding_reflect",
        "convolution",
        "nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect', bias=False)",
        f"f(r{_X})",
        CONV,
        2 * CONV,
        f"{PTFLOPS}98",
    ),
    Case(
        "one_axis",
        "convolution",
        "nn.Conv1d(3, 4, 3, stride=2, padding=1, bias=False)",
        "f(r(2, 3, 9))",
        2 * 2 * 4 * 3 * 3 * 5,
        4 * 2 * 4 * 3 * 3 * 5,
        f"{DEEPSPEED}issues/1949",
    ),
    Case(
        "conv_function",
        "functional",
        "r(4, 3, 3, 3)",
        f"F.conv2d(r{_X}, f, padding=1)",
        CONV,
        2 * CONV,
        f"{FVCORE}49",
    ),
    Case(
        "channels_last",
        "layout and dtype",
        f"{_C}.to(memory_format=torch.channels_last)",
        f"f(r{_X}.to(memory_format=torch.channels_last))",
        CONV,
        2 * CONV,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "bfloat16",
        "layout and dtype",
        f"{_C}.bfloat16()",
        f"f(r{_X}.bfloat16())",
        CONV,
        2 * CONV,
        f"{PYTORCH}issues/119806",
    ),
    Case("frozen_weight", "frozen", f"{_C}.requires_grad_(False)", f"f(r{_X})", CONV, CONV, f"{CALFLOPS}30"),
    Case(
        "frozen_backbone",
        "frozen",
        "nn.Sequential(nn.Linear(6, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 6))",
        "f(d(5, 6))",
        NET,
        2 * 5 * 8 * 6,
        f"{LITGPT}pull/404",
    ),
    Case(
        "unfolded",
        "functional",
        "r(4, 27)",
        f"f @ F.unfold(r{_X}, 3, padding=1)",
        CONV,
        2 * CONV,
        f"{FVCORE}49",
    ),
    Case(
        "deformable",
        "torchvision",
        "r(4, 3, 3, 3)",
        "deform(d(1, 3, 6, 6), d(1, 18, 4, 4), f)",
        2 * 4 * 3 * 9 * 16,
        None,
        "https://github.com/sovrasov/flops-counter.pytorch",
    ),
    # transposed convolution: one set of taps for each input element
    Case(
        "transposed",
        "transposed convolution",
        "nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1, bias=False)",
        f"f(r{_X})",
        2 * 2 * 3 * 4 * 16 * 36,
        4 * 2 * 3 * 4 * 16 * 36,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "transposed_data",
        "transposed convolution",
        "nn.ConvTranspose2d(3, 8, 2, stride=2, bias=False)",
        f"f(d{_X})",
        2 * 2 * 3 * 8 * 4 * 36,
        2 * 2 * 3 * 8 * 4 * 36,
        f"{PTFLOPS}149",
    ),
    Case(
        "transposed_groups",
        "transposed convolution",
        "nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2, bias=False)",
        "f(r(2, 6, 5, 5))",
        2 * 2 * 6 * 2 * 4 * 25,
        4 * 2 * 6 * 2 * 4 * 25,
        f"{DEEPSPEED}pull/8323",
    ),
    Case(
        "transposed_one_axis",
        "transposed convolution",
        "nn.ConvTranspose1d(3, 5, 4, stride=2, bias=False)",
        "f(r(2, 3, 7))",
        2 * 2 * 3 * 5 * 4 * 7,
        4 * 2 * 3 * 5 * 4 * 7,
        f"{DEEPSPEED}issues/3815",
    ),
    # products
    Case("linear", "linear", _L, "f(r(5, 6))", LINEAR, 2 * LINEAR, f"{THOP}217"),
    Case("linear_bias", "linear", "nn.Linear(6, 8)", "f(r(5, 1, 6))", LINEAR, 2 * LINEAR, f"{PTFLOPS}28"),
    Case("linear_vector", "vector", _L, "f(r(6))", 2 * 6 * 8, 4 * 6 * 8, MMENGINE),
    Case(
        "linear_function",
        "functional",
        "r(8, 6)",
        "F.linear(r(5, 6), f)",
        LINEAR,
        2 * LINEAR,
        f"{DEEPSPEED}issues/1467",
    ),
    Case("operator", "functional", "r(6, 8)", "r(5, 6) @ f", LINEAR, 2 * LINEAR, f"{DEEPSPEED}issues/4723"),
    Case(
        "bmm",
        "functional",
        "r(3, 4, 5)",
        "torch.bmm(r(3, 2, 4), f)",
        2 * 3 * 2 * 4 * 5,
        4 * 3 * 2 * 4 * 5,
        f"{PYTORCH}pull/66636",
    ),
    Case(
        "baddbmm",
        "functional",
        "r(3, 4, 5)",
        "torch.baddbmm(r(3, 2, 5), r(3, 2, 4), f)",
        240,
        480,
        f"{FVCORE}117",
    ),
    Case(
        "addmm",
        "functional",
        "r(6, 8)",
        "torch.addmm(r(5, 8), r(5, 6), f)",
        LINEAR,
        2 * LINEAR,
        f"{PYTORCH}pull/61895",
    ),
    Case(
        "addmm_in_place",
        "functional",
        "r(6, 8)",
        "d(5, 8).addmm_(r(5, 6), f)",
        LINEAR,
        2 * LINEAR,
        f"{PYTORCH}pull/123768",
    ),
    Case(
        "mm_out",
        "functional",
        "d(6, 8)",
        "torch.mm(d(5, 6), f, out=torch.empty(5, 8))",
        LINEAR,
        None,
        f"{BENCHMARK}issues/2383",
    ),
    Case("mv", "vector", "r(6)", "torch.mv(r(5, 6), f)", 2 * 5 * 6, 4 * 5 * 6, MMENGINE),
    Case("dot", "vector", "r(6)", "torch.dot(r(6), f)", 2 * 6, 0, MMENGINE),  # backward scales by a scalar
    Case(
        "einsum",
        "functional",
        "r(2, 3, 5, 4)",
        "torch.einsum('bhid,bhjd->bhij', r(2, 3, 6, 4), f)",
        2 * 6 * 6 * 5 * 4,
        4 * 6 * 6 * 5 * 4,
        f"{DEEPSPEED}pull/8320",
    ),
    Case(
        "broadcast",
        "functional",
        "r(3, 4, 5)",
        "r(2, 1, 6, 4) @ f",
        2 * 6 * 6 * 4 * 5,
        4 * 6 * 6 * 4 * 5,
        "https://github.com/facebookresearch/fvcore/pull/54",
    ),
    Case(
        "tensordot",
        "functional",
        "r(3, 4, 5)",
        "torch.tensordot(r(2, 6, 3, 4), f, dims=2)",
        2 * 12 * 12 * 5,
        4 * 12 * 12 * 5,
        f"{FVCORE}117",
    ),
    Case(
        "bilinear",
        "functional",
        "nn.Bilinear(3, 4, 5, bias=False)",
        "f(d(6, 3), d(6, 4))",
        2 * 6 * 5 * (3 + 1) * 4,
        None,
        f"{ULTRALYTICS}158",
    ),
    Case(
        "complex",
        "layout and dtype",
        "r(6, 8).cfloat().detach().requires_grad_()",
        "r(5, 6).cfloat().detach().requires_grad_() @ f",
        4 * LINEAR,
        8 * LINEAR,
        f"{PYTORCH}issues/93121",
    ),
    Case(
        "sparse",
        "sparse",
        "d(4, 4).tril().to_sparse()",
        "torch.sparse.mm(f, r(4, 3))",
        2 * 10 * 3,
        2 * 10 * 3,
        f"{PYTORCH}issues/123800",
    ),
    Case(
        "quantized",
        "quantized",
        "quantized(nn.Sequential(nn.Linear(6, 8, bias=False)))",
        "f(d(5, 6))",
        LINEAR,
        None,
        f"{THOP}202",
    ),
    # the same weights again
    Case("twice", "reuse", "r(6, 6)", "(d(5, 6) @ f) @ f", 2 * 2 * 180, 2 * 180 * 3, f"{PTFLOPS}98"),
    Case(
        "module_twice",
        "reuse",
        "nn.Linear(6, 6, bias=False)",
        "f(torch.relu(f(d(5, 6))))",
        720,
        1080,
        f"{THOP}30",
    ),
    Case(
        "loop",
        "reuse",
        "Loop(4)",
        "f(d(2, 3, 6, 6), 4)",
        4 * 2 * 2 * 3 * 3 * 9 * 36,
        7 * 2 * 2 * 3 * 3 * 9 * 36,
        RATIO,
    ),
    Case(
        "depth_is_data",
        "control flow",
        "Loop(4)",
        "f(d(2, 3, 6, 6), torch.tensor(2))",
        2 * 2 * 2 * 3 * 3 * 9 * 36,
        3 * 2 * 2 * 3 * 3 * 9 * 36,
        "https://github.com/zhijian-liu/torchprofile/issues/10",
    ),
    Case("names", "names", "Named()", "f(d(5, 6))", NET, NET_BACK, f"{PYTORCH}issues/124196"),
    Case("named_global", "names", "Global()", "f(d(5, 6))", NET, NET_BACK, f"{PYTORCH}issues/134242"),
    Case("direct_forward", "hooks", _L, "f.forward(r(5, 6))", LINEAR, 2 * LINEAR, f"{FVCORE}76"),
    Case(
        "relu_in_place",
        "in place",
        "nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 6))",
        "f(d(5, 6))",
        NET,
        NET_BACK,
        f"{THOP}142",
    ),
    # attention
    Case(
        "attention",
        "attention",
        "r(2, 3, 6, 4)",
        "F.scaled_dot_product_attention(r(2, 3, 6, 4), f, r(2, 3, 6, 4))",
        2 * HEADS,
        4 * HEADS,
        f"{PYTORCH}issues/195460",
    ),
    Case(
        "attention_math",
        "attention",
        "r(2, 3, 6, 4)",
        "math_attention(r(2, 3, 6, 4), f, r(2, 3, 6, 4))",
        2 * HEADS,
        4 * HEADS,
        f"{PYTORCH}issues/134804",
    ),
    Case(
        "attention_causal",
        "attention",
        "r(2, 3, 6, 4)",
        "F.scaled_dot_product_attention(r(2, 3, 6, 4), f, r(2, 3, 6, 4), is_causal=True)",
        2 * HEADS,
        4 * HEADS,
        "https://github.com/karpathy/nanoGPT/issues/456",
    ),
    Case(
        "attention_meta",
        "meta",
        "r(2, 3, 6, 4, device='meta')",
        "F.scaled_dot_product_attention(f, f, f)",
        2 * HEADS,
        4 * HEADS,
        f"{FVCORE}129",
    ),
    Case(
        "flash_layout",
        "meta",
        "d(2, 6, 3, 4, device='meta')",
        "torch.ops.aten._flash_attention_forward(f, f, f, None, None, 6, 6, 0.0, False, False)[0]",
        2 * HEADS,
        None,
        f"{PYTORCH}pull/184348",
    ),
    Case(
        "multi_head",
        "attention",
        "nn.MultiheadAttention(8, 2, batch_first=True)",
        "f(*[d(2, 5, 8)] * 3, need_weights=False)[0]",
        2 * 2 * (4 * 5 * 64 + 2 * 25 * 8),
        2 * 2 * 2 * (4 * 5 * 64 + 2 * 25 * 8) - 2 * 2 * 3 * 5 * 64,
        f"{PTFLOPS}65",
    ),
    Case(
        "multi_head_eval",
        "attention",
        "nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)",
        "f(*[d(2, 5, 8)] * 3, need_weights=False)[0]",
        2 * 2 * (4 * 5 * 64 + 2 * 25 * 8),
        None,
        f"{PTFLOPS}101",
    ),
    Case(
        "encoder_layer",
        "attention",
        "nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)",
        "f(d(2, 5, 8))",
        2 * 2 * (4 * 5 * 64 + 2 * 25 * 8 + 2 * 5 * 8 * 16),
        2 * 2 * 2 * (4 * 5 * 64 + 2 * 25 * 8 + 2 * 5 * 8 * 16) - 2 * 2 * 3 * 5 * 64,
        "https://github.com/allenai/olmoearth_pretrain/pull/605",
    ),
    Case(
        "jagged",
        "nested",
        _L,
        "f(torch.nested.nested_tensor([d(2, 6), d(3, 6)], layout=torch.jagged)).values()",
        LINEAR,
        LINEAR,
        f"{PYTORCH}pull/125712",
    ),
    # recurrent: 5 steps of 3 sequences, 4 -> 7; the first state is a constant
    Case(
        "lstm",
        "recurrent",
        "nn.LSTM(4, 7, bias=False)",
        "f(d(5, 3, 4))[0]",
        5 * GATES * 11,
        5 * GATES * 11 + 4 * GATES * 7,
        f"{FVCORE}98",
    ),
    Case(
        "lstm_meta",
        "meta",
        "nn.LSTM(4, 7, bias=False, device='meta')",
        "f(d(5, 3, 4, device='meta'))[0]",
        5 * GATES * 11,
        5 * GATES * 11 + 4 * GATES * 7,
        f"{FVCORE}98",
    ),
    Case(
        "gru",
        "recurrent",
        "nn.GRU(4, 7, batch_first=True, bias=False)",
        "f(d(3, 5, 4))[0]",
        5 * GATES * 11 * 3 // 4,
        None,
        f"{CALFLOPS}55",
    ),
    Case(
        "lstm_cell",
        "recurrent",
        "nn.LSTMCell(4, 7, bias=False)",
        "f(d(3, 4))[0]",
        GATES * 11,
        GATES * 11,
        f"{PTFLOPS}100",
    ),
    # training
    Case(
        "compiled",
        "compiled",
        "torch.compile(Named(), backend='aot_eager')",
        "f(d(5, 6))",
        NET,
        NET_BACK,
        f"{PTFLOPS}110",
    ),
    Case(
        "compiled_twice",
        "compiled",
        "warm(torch.compile(Named(), backend='eager'))",
        "f(d(5, 6))",
        NET,
        NET_BACK,
        f"{PYTORCH}issues/140909",
    ),
    Case(
        "autocast",
        "layout and dtype",
        "Named()",
        "autocast(f)(d(5, 6))",
        NET,
        NET_BACK,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "no_grad",
        "no gradient",
        "torch.no_grad()(Named())",
        "f(d(5, 6))",
        NET,
        None,
        f"{PYTORCH}issues/126268",
    ),
    Case(
        "inference_mode",
        "no gradient",
        "torch.inference_mode()(Named())",
        "f(d(5, 6))",
        NET,
        None,
        f"{PYTORCH}issues/126268",
    ),
    Case(
        "accumulation",
        "accumulation",
        "Named()",
        "sum(f(d(5, 6)).sum() for _ in range(3))",
        3 * NET,
        3 * NET_BACK,
        f"{LITGPT}issues/403",
    ),
    Case(
        "adapter",
        "frozen",
        "Adapted()",
        "f(d(5, 6))",
        2 * 5 * (48 + 12 + 16),
        2 * 5 * (12 + 2 * 16),
        "https://github.com/NVIDIA-NeMo/Automodel/pull/786",
    ),
    Case(
        "scripted",
        "scripted",
        "torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)))",
        "f(d(5, 6))",
        NET,
        NET_BACK,
        f"{FVCORE}69",
    ),
    Case(
        "mapped",
        "transformed",
        "r(3, 6, 8)",
        "torch.vmap(lambda w: d(5, 6) @ w)(f)",
        3 * LINEAR,
        3 * LINEAR,
        f"{PYTORCH}issues/93121",
    ),
    Case("empty_batch", "empty", "nn.Linear(6, 8)", "f(d(0, 6))", 0, 0, f"{PTFLOPS}69"),
    Case(
        "spectral_norm",
        "reparametrized",
        "nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8, bias=False))",
        "f(d(5, 6))",
        LINEAR + 2 * 2 * 48 + 2 * 48 + 2 * 8,
        None,
        f"{PYTORCH}issues/93121",
    ),  # a power iteration 2 mv, sigma mv and dot
    # no contraction at all
    Case(
        "embedding", "no contraction", "nn.Embedding(9, 4)", "f(torch.arange(5))", 0, 0, f"{ULTRALYTICS}172"
    ),
    Case(
        "interpolate",
        "no contraction",
        "None",
        "F.interpolate(r(1, 2, 4, 4), scale_factor=2, mode='bilinear')",
        0,
        0,
        f"{PTFLOPS}144",
    ),
    Case(
        "upsample",
        "no contraction",
        "nn.Upsample(scale_factor=2)",
        "f(r(1, 2, 4, 4))",
        0,
        0,
        f"{DEEPSPEED}pull/8394",
    ),
    Case(
        "adaptive_pool",
        "no contraction",
        "nn.AdaptiveAvgPool2d((None, 1))",
        "f(r(1, 2, 4, 4))",
        0,
        0,
        f"{THOP}97",
    ),
    Case("subtract", "no contraction", "r(2, 3)", "r(2, 3) - f", 0, 0, f"{PYTORCH}issues/82951"),
    Case("add", "no contraction", "r(2, 3)", "r(2, 3) + f", 0, 0, f"{FVCORE}143"),
    # networks of the published ratio: backward is twice forward less the first layer
    Case(
        "one_net",
        "ratio",
        "nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))",
        "f(d(2, 1))",
        2 * 2 * (64 + 512 + 24),
        2 * 2 * (64 + 2 * 512 + 2 * 24),
        RATIO,
    ),
    Case(
        "conv_net",
        "ratio",
        "nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.Flatten(), "
        "nn.Linear(32, 3))",
        "f(d(1, 3, 8, 8))",
        2 * (4 * 27 * 16 + 8 * 36 * 4 + 96),
        2 * (4 * 27 * 16 + 2 * 8 * 36 * 4 + 2 * 96),
        RATIO,
    ),
)


def names(torch: Any) -> dict[str, Any]:
    """What the programs may use."""
    from torch import nn
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torchvision.ops import deform_conv2d

    class Loop(nn.Module):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 3, padding=1, bias=False)

        def forward(self, x: Any, times: Any) -> Any:
            for _ in range(int(times)):
                x = self.layer(x)
            return x

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"x-1": nn.ModuleList([nn.Linear(6, 8, bias=False)])})
            self.parts["Global"] = nn.Linear(8, 6, bias=False)

        def forward(self, x: Any) -> Any:
            return self.parts["Global"](torch.tanh(self.parts["x-1"][0](x)))

    class Global(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [nn.Linear(6, 8, bias=False)]  # no child: a root of its own
            self.head = nn.Linear(8, 6, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.hidden[0](x))

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(6, 8, bias=False).requires_grad_(False)
            self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x))

    def math_attention(*operands: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(*operands)

    def warm(model: Any) -> Any:
        model(torch.ones(5, 6)).sum().backward()
        return model

    return {
        **{kind.__name__: kind for kind in (Loop, Named, Global, Adapted)},
        "torch": torch,
        "nn": nn,
        "F": F,
        "math_attention": math_attention,
        "warm": warm,
        "d": lambda *sizes, **options: torch.ones(*sizes, **options),
        "r": lambda *sizes, **options: torch.ones(*sizes, requires_grad=True, **options),
        "deform": deform_conv2d,
        "autocast": torch.autocast("cpu", torch.bfloat16),
        "quantized": lambda net: torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8),
    }
