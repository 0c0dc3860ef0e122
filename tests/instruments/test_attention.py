"""Attention costs its dense products, whichever back end runs it and whatever needs a gradient."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.records import Work

BATCH, HEADS, QUERIES, KEYS, WIDTH, VALUE = 2, 4, 5, 7, 3, 3
ONE = 2 * BATCH * HEADS * QUERIES * KEYS * WIDTH  # Q K^T, and A V as much
BACK_ENDS = ("math", "flash", "meta")
NEEDS = [needs for needs in itertools.product((False, True), repeat=3) if any(needs)]


def counted(run: Callable[[], Any]) -> Work:
    """Forward, and backward of the sum of the output where something needs a gradient."""
    from measurements import counting

    with counting() as work:
        out = run()
        out = out[0] if isinstance(out, tuple) else out
        if out.requires_grad:
            out.sum().backward()
    return work.frozen()


def products(work: Work) -> tuple[int, int]:
    """Contraction FLOP forward and backward."""
    return work.contraction.forward, work.contraction.backward


def attend(back_end: str, needs: tuple[bool, ...], heads: int = HEADS, **options: Any) -> Work:
    """Scaled dot product attention in a back end; a mask or values of another width come as options."""
    import torch
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    device = "meta" if back_end == "meta" else "cpu"
    sizes = (HEADS, QUERIES, WIDTH), (heads, KEYS, WIDTH), (heads, KEYS, options.pop("value", VALUE))
    q, k, v = (
        torch.ones(BATCH, *size, device=device, requires_grad=need)
        for size, need in zip(sizes, needs, strict=True)
    )
    if options.pop("masked", False):
        options["attn_mask"] = torch.zeros(QUERIES, KEYS, device=device)
    kernels = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
    with sdpa_kernel(kernels[back_end]) if back_end in kernels else nullcontext():
        return counted(lambda: F.scaled_dot_product_attention(q, k, v, **options))


@pytest.mark.parametrize("needs", NEEDS, ids=lambda needs: "".join("qkv"[i] for i in range(3) if needs[i]))
def test_backward_is_one_product_for_each_operand_that_needs_a_gradient(needs: tuple[bool, ...]) -> None:
    """The gradient of the scores is needed for query and key alike; every back end does the same."""
    q, k, v = needs
    backward = ONE * ((q or k) + v + q + k)

    assert {name: products(attend(name, needs)) for name in BACK_ENDS} == dict.fromkeys(
        BACK_ENDS, (2 * ONE, backward)
    )


@pytest.mark.parametrize(
    "options", [{}, {"masked": True}, {"is_causal": True}], ids=["plain", "mask", "causal"]
)
def test_a_mask_changes_no_product(options: dict[str, Any]) -> None:
    """Dense, also where half of the scores are thrown away."""
    for back_end in BACK_ENDS:
        assert products(attend(back_end, (True,) * 3, **options)) == (2 * ONE, 4 * ONE), back_end


def test_dropout_changes_no_product() -> None:
    """It runs decomposed everywhere."""
    for device in ("cpu", "meta"):
        back_end = "math" if device == "cpu" else device
        assert products(attend(back_end, (True,) * 3, dropout_p=0.5)) == (2 * ONE, 4 * ONE), device


def test_values_of_another_width_cost_their_own_product() -> None:
    """2·B·H·Q·S·(E + V) forward, twice that backward."""
    wide = ONE * 5 // WIDTH

    for back_end in ("math", "meta"):
        assert products(attend(back_end, (True,) * 3, value=5)) == (ONE + wide, 2 * (ONE + wide)), back_end


def test_shared_key_heads_are_multiplied_once_for_each_query_head() -> None:
    """Grouped queries: 4 heads of queries over 2 of keys and values."""
    for back_end in ("math", "any", "meta"):
        work = attend(back_end, (True,) * 3, heads=2, enable_gqa=True)
        assert products(work) == (2 * ONE, 4 * ONE), back_end


def test_a_fused_backward_recomputes_the_scores_beside_its_count() -> None:
    """It keeps no scores: Q K^T runs again, and stands in `recomputed` alone."""
    work = {name: attend(name, (True,) * 3).contraction.recomputed for name in BACK_ENDS}

    assert work == {"math": 0, "flash": ONE, "meta": 0}


def test_a_fused_forward_costs_what_softmax_and_scale_cost() -> None:
    """All work: each score a scale and 5, less 2 a row; the decomposition scales query and key instead."""
    scores = BATCH * HEADS * QUERIES * KEYS
    rows = BATCH * HEADS * QUERIES

    assert attend("flash", (False,) * 3).forward == 2 * ONE + 6 * scores - 2 * rows
    scaled = BATCH * HEADS * (QUERIES + KEYS) * WIDTH
    assert attend("math", (False,) * 3).forward == 2 * ONE + 5 * scores - 2 * rows + scaled


def multi_head(batch_first: bool = True, **options: Any) -> Any:
    """Attention of width 8 in 4 heads."""
    import torch

    return torch.nn.MultiheadAttention(8, 4, batch_first=batch_first, **options)


def test_multi_head_attention_projects_four_times() -> None:
    """4·L·E² and 2·L²·E multiply-adds.

    In backward the input, which is data, owes nothing to the three projections.
    """
    import torch

    n, length, width = 2, 5, 8
    forward = 2 * n * (4 * length * width**2 + 2 * length**2 * width)
    backward = 2 * forward - 2 * n * 3 * length * width**2
    x = torch.ones(n, length, width)

    for weights in (False, True):
        layer = multi_head()
        assert products(counted(lambda layer=layer, w=weights: layer(x, x, x, need_weights=w))) == (
            forward,
            backward,
        )


def test_the_inference_path_of_attention_costs_the_same_products() -> None:
    """One fused operation without gradients, in eval mode.

    With biases or without a fast path, with a mask, on meta.
    """
    import torch

    n, length, width = 2, 5, 8
    forward = 2 * n * (4 * length * width**2 + 2 * length**2 * width)
    for device, mode in itertools.product(("cpu", "meta"), (torch.no_grad, torch.inference_mode)):
        layer, x = multi_head().eval().to(device), torch.ones(n, length, width, device=device)
        mask = torch.zeros(n, length, dtype=torch.bool, device=device)
        with mode():
            fast = counted(lambda layer=layer, x=x: layer(x, x, x, need_weights=False))
            masked = counted(lambda layer=layer, x=x, m=mask: layer(x, x, x, key_padding_mask=m))
        assert (fast.contraction.forward, masked.contraction.forward) == (forward, forward), device


def test_an_encoder_layer_costs_the_same_products_on_its_inference_path() -> None:
    """Attention, and two linear layers of L·E·F multiply-adds each; trained, and as one fused operation."""
    import torch

    n, length, width, inner = 2, 5, 8, 16
    forward = 2 * n * (4 * length * width**2 + 2 * length**2 * width + 2 * length * width * inner)
    layer = torch.nn.TransformerEncoderLayer(width, 4, inner, batch_first=True)
    x = torch.ones(n, length, width)

    trained = counted(lambda: layer(x))
    layer.eval()
    with torch.no_grad():
        fast = counted(lambda: layer(x))

    assert products(trained) == (forward, 2 * forward - 2 * n * 3 * length * width**2)
    assert fast.contraction.forward == forward
    assert "aten._transformer_encoder_layer_fwd" in fast.by_op()


def test_cross_attention_counts_queries_and_keys_by_themselves() -> None:
    """Query and output projection once a query, key and value once a key."""
    import torch

    n, queries, keys, width = 2, 3, 6, 8
    q, kv = torch.ones(n, queries, width), torch.ones(n, keys, width)
    forward = 2 * n * (2 * (queries + keys) * width**2 + 2 * queries * keys * width)

    assert counted(lambda: multi_head()(q, kv, kv)).contraction.forward == forward


def test_packed_sequences_attend_within_themselves() -> None:
    """Layout (tokens, H, E) with the ends of the sequences.

    Each meets its own keys; without ends it is dense.
    """
    from measurements.formulas import FORMULAS
    from measurements.records import Shape

    tokens, ends = Shape((8, 4, 3)), (0, 3, 8)
    batch = Shape((2, 5, 4, 3))  # (B, S, H, E)
    pairs = 4 * (3 * 3 + 5 * 5)
    for name in ("_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward"):
        bias = () if "flash" in name else (None,)
        packed = FORMULAS[f"aten.{name}"](tokens, tokens, tokens, *bias, ends, ends)
        assert packed.contraction == 2 * pairs * (3 + 3), name
    assert FORMULAS["aten._flash_attention_forward"](batch, batch, batch).contraction == 2 * 2 * 4 * 25 * 6


def test_layouts_of_fused_kernels_are_told_apart_on_meta() -> None:
    """The flash kernel takes (B, S, H, E): 16 heads are not 16 places."""
    import torch

    q = torch.empty(2, 12, 3, 8, device="meta", dtype=torch.float16)

    work = counted(
        lambda: torch.ops.aten._flash_attention_forward(q, q, q, None, None, 12, 12, 0.0, False, False)[0]
    )

    assert work.contraction.forward == 2 * 2 * 3 * 12 * 12 * (8 + 8)
