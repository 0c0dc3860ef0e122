"""FLOP of attention, in every back end's spelling: dense, whatever the mask.

Letters: B batch, H heads, Q queries, S keys, E width of query and key, V width of value.
Forward: scores QK^T and their product with the values, 2·B·H·Q·S·(E + V). Backward: one product for each
operand that needs a gradient; the gradient of the scores is needed for query and key alike. A fused kernel
keeps no scores: its backward computes them again, which is kept apart.
Source: Vaswani et al. 2017, section 3.2.1; Dao et al. 2022 (FlashAttention), appendix B, for what backward
recomputes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from measurements.formulas.cost import Cost, Formula, contraction, elementwise
from measurements.formulas.pointwise import GELU
from measurements.records import Shape

Lengths = tuple[int, ...] | None


def attention(
    query: Shape, key: Shape, value: Shape, mask: Shape | None = None, dropout: float = 0.0
) -> Cost:
    """FLOP of attention forward.

    Shapes: query (…, Q, E), key (…, S, E), value (…, S, V); fewer key heads are shared.

    Element-wise for each score: scale 1, softmax 5 less 2 a row, an additive mask 1, dropout 2.
    """
    return _forward(_scores(query, key), query, value, mask, dropout)


def _scores(query: Shape, key: Shape) -> tuple[int, int]:
    """Rows of scores, and scores."""
    if query[-1] != key[-1]:
        raise ValueError(f"attention of queries {tuple(query)} over keys {tuple(key)}: their widths differ")
    rows = math.prod(query[:-1])
    return rows, rows * key[-2]


def _forward(scores: tuple[int, int], query: Shape, value: Shape, mask: Shape | None, dropout: float) -> Cost:
    rows, count = scores
    each = 1 + 5 + (mask is not None) + 2 * (dropout > 0)
    return contraction(2 * count * (query[-1] + value[-1])) + elementwise(each * count - 2 * rows)


def attention_backward(
    query: Shape,
    key: Shape,
    value: Shape,
    needs: Sequence[bool] = (),
    mask: Shape | None = None,
    dropout: float = 0.0,
) -> Cost:
    """FLOP of the gradients of attention; what the kernel computes again stands apart.

    Products: dV = P^T dO; dP = dO V^T where query or key needs a gradient; dQ = dS K; dK = dS^T Q; again:
    QK^T. Element-wise for each score: softmax backward 4 (less 1 a row), scale 1, dropout 2; again: scale,
    subtract, exp.
    """
    return _backward(_scores(query, key), query, value, needs, mask, dropout)


def _backward(
    scores: tuple[int, int],
    query: Shape,
    value: Shape,
    needs: Sequence[bool],
    mask: Shape | None,
    dropout: float,
) -> Cost:
    rows, count = scores
    need_q, need_k, need_v = (bool(need) for need in (*needs, True, True, True)[:3]) if needs else (True,) * 3
    width, through = query[-1], need_q or need_k
    products = value[-1] * (need_v + through) + width * (need_q + need_k)
    each = (5 + 2 * (dropout > 0)) * count - rows if through else 0
    again = 3 + (mask is not None)
    return Cost(2 * count * products, each, 2 * count * width, again * count)


def _heads_before_length(*shapes: Shape) -> list[Shape]:
    """(B, S, H, E) as (B, H, S, E)."""
    return [Shape((x[0], x[2], x[1], x[3]), x.dtype) for x in shapes]


def _ragged_scores(query: Shape, ends_q: Lengths, ends_k: Lengths) -> tuple[int, int]:
    """Rows of scores, and scores, of packed sequences.

    Shapes: query (…, tokens, H, E); the ends of the sequences are (0, l1, l1 + l2, …).
    """
    if not isinstance(ends_q, tuple) or not isinstance(ends_k, tuple) or isinstance(ends_q, Shape):
        raise ValueError("the lengths of packed sequences are data, and a meta tensor has none")
    heads = query[-2]
    lengths = [[after - before for before, after in itertools.pairwise(ends)] for ends in (ends_q, ends_k)]
    return heads * sum(lengths[0]), heads * sum(q * k for q, k in zip(*lengths, strict=True))


def _flash_scores(query: Shape, key: Shape, ends_q: Lengths, ends_k: Lengths) -> tuple[int, int]:
    if ends_q is not None:
        return _ragged_scores(query, ends_q, ends_k)
    return _scores(*_heads_before_length(query, key))


def flash_forward(
    query: Shape,
    key: Shape,
    value: Shape,
    cum_seq_q: Lengths = None,
    cum_seq_k: Lengths = None,
    dropout_p: float = 0.0,
) -> Cost:
    """FLOP of attention in the layout of the flash kernel.

    Shapes: (B, S, H, E), or packed (tokens, H, E) with the ends of the sequences.
    """
    return _forward(_flash_scores(query, key, cum_seq_q, cum_seq_k), query, value, None, dropout_p)


def flash_backward(
    grad_out: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    cum_seq_q: Lengths = None,
    cum_seq_k: Lengths = None,
    dropout_p: float = 0.0,
    needs: Sequence[bool] = (),
) -> Cost:
    """FLOP of the gradients of attention in the layout (B, S, H, E), or packed."""
    return _backward(_flash_scores(query, key, cum_seq_q, cum_seq_k), query, value, needs, None, dropout_p)


def efficient_forward(
    query: Shape,
    key: Shape,
    value: Shape,
    bias: Shape | None = None,
    cu_seqlens_q: Lengths = None,
    cu_seqlens_k: Lengths = None,
    dropout_p: float = 0.0,
) -> Cost:
    """FLOP of the memory-efficient back end, layout (B, S, H, E), or packed in a batch of one."""
    return _forward(_flash_scores(query, key, cu_seqlens_q, cu_seqlens_k), query, value, bias, dropout_p)


def efficient_backward(
    grad_out_: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    bias: Shape | None = None,
    cu_seqlens_q: Lengths = None,
    cu_seqlens_k: Lengths = None,
    dropout_p: float = 0.0,
    needs: Sequence[bool] = (),
) -> Cost:
    """FLOP of the gradients in the memory-efficient back end."""
    return _backward(
        _flash_scores(query, key, cu_seqlens_q, cu_seqlens_k), query, value, needs, bias, dropout_p
    )


def dot_product(
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None = None,
    attn_mask: Shape | None = None,
    dropout_p: float = 0.0,
) -> Cost:
    """FLOP of F.scaled_dot_product_attention, layout (B, H, S, E)."""
    mask = attn_bias if attn_bias is not None else attn_mask
    return attention(query, key, value, mask, dropout_p)


def dot_product_backward(
    grad_out: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None = None,
    attn_mask: Shape | None = None,
    dropout_p: float = 0.0,
    needs: Sequence[bool] = (),
) -> Cost:
    """FLOP of the gradients of F.scaled_dot_product_attention, layout (B, H, S, E)."""
    mask = attn_bias if attn_bias is not None else attn_mask
    return attention_backward(query, key, value, needs, mask, dropout_p)


def cudnn_forward(
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None = None,
    cum_seq_q: Lengths = None,
    cum_seq_k: Lengths = None,
    dropout_p: float = 0.0,
) -> Cost:
    """FLOP of cuDNN's attention.

    Layout (B, H, S, E), or packed (tokens, H, E) with the ends of the sequences.
    """
    return _forward(_cudnn_scores(query, key, cum_seq_q, cum_seq_k), query, value, attn_bias, dropout_p)


def cudnn_backward(
    grad_out: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None = None,
    cum_seq_q: Lengths = None,
    cum_seq_k: Lengths = None,
    dropout_p: float = 0.0,
    needs: Sequence[bool] = (),
) -> Cost:
    """FLOP of the gradients of cuDNN's attention."""
    scores = _cudnn_scores(query, key, cum_seq_q, cum_seq_k)
    return _backward(scores, query, value, needs, attn_bias, dropout_p)


def _cudnn_scores(query: Shape, key: Shape, ends_q: Lengths, ends_k: Lengths) -> tuple[int, int]:
    return _scores(query, key) if ends_q is None else _ragged_scores(query, ends_q, ends_k)


def multi_head(
    query: Shape,
    key: Shape,
    value: Shape,
    num_head: int,
    qkv_weight: Shape,
    proj_weight: Shape,
    mask: Shape | None = None,
) -> Cost:
    """FLOP of the inference path of nn.MultiheadAttention.

    Three projections in, attention, one out, each with a bias.

    Shapes: query (B, Q, E), key and value (B, S, E), qkv_weight (3E, E), proj_weight (E, E).
    """
    width = proj_weight[0]
    q, k, v = (Shape((x[0], num_head, x[1], width // num_head)) for x in (query, key, value))
    rows = sum(math.prod(x[:-1]) for x in (query, key, value, query))
    projections = contraction(2 * rows * width * width) + elementwise(rows * width)
    return projections + attention(q, k, v, mask)


def encoder_layer(
    src: Shape,
    num_heads: int,
    qkv_weight: Shape,
    proj_weight: Shape,
    use_gelu: bool,
    ffn_weight_1: Shape,
    mask: Shape | None = None,
) -> Cost:
    """FLOP of the inference path of nn.TransformerEncoderLayer.

    Attention, two linear layers, two norms, two sums.

    Shapes: src (B, S, E), ffn_weight_1 (F, E). Layer norm 7 for each element and 3 a row, activation ReLU 1
    or GELU 5.
    """
    rows, width, inner = math.prod(src[:-1]), src[-1], ffn_weight_1[0]
    feed_forward = contraction(2 * 2 * rows * width * inner) + elementwise(rows * (width + inner))
    activation = elementwise(rows * inner * (GELU if use_gelu else 1))
    norms_and_sums = elementwise(2 * (7 * rows * width + 3 * rows) + 2 * rows * width)
    heads = multi_head(src, src, src, num_heads, qkv_weight, proj_weight, mask)
    return heads + feed_forward + activation + norms_and_sums


ATTENTION: dict[str, Formula] = {
    "_scaled_dot_product_flash_attention": dot_product,
    "_scaled_dot_product_flash_attention_for_cpu": dot_product,
    "_scaled_dot_product_efficient_attention": dot_product,
    "_scaled_dot_product_cudnn_attention": dot_product,
    "_scaled_dot_product_fused_attention_overrideable": dot_product,
    "_scaled_dot_product_attention_math_for_mps": dot_product,
    "_triton_scaled_dot_attention": lambda q, k, v, dropout_p=0.0: attention(q, k, v, None, dropout_p),
    "_scaled_dot_product_flash_attention_backward": dot_product_backward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": dot_product_backward,
    "_scaled_dot_product_efficient_attention_backward": dot_product_backward,
    "_scaled_dot_product_cudnn_attention_backward": dot_product_backward,
    "_scaled_dot_product_fused_attention_overrideable_backward": dot_product_backward,
    "_flash_attention_forward": flash_forward,
    "_flash_attention_forward_no_dropout_inplace": flash_forward,
    "_flash_attention_backward": flash_backward,
    "_efficient_attention_forward": efficient_forward,
    "_efficient_attention_backward": efficient_backward,
    "_cudnn_attention_forward": cudnn_forward,
    "_cudnn_attention_backward": cudnn_backward,
    "_native_multi_head_attention": multi_head,
    "_triton_multi_head_attention": multi_head,
    "_transformer_encoder_layer_fwd": encoder_layer,
}
