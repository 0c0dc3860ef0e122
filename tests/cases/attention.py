"""Attention and recurrent layers.

Letters: N samples, H heads, L positions, D width of a head, E = H · D width of all heads, F width of the
feed-forward part. Scores and their use: 2 · 2 · N · H · L · L · D, dense, causal or not.
"""

from __future__ import annotations

from tests.cases.case import CALFLOPS, FVCORE, PTFLOPS, PYTORCH, Case

N, H, L, D = 2, 3, 6, 4
HEADS = 2 * (2 * N * H * L * L * D)
QKV = ", ".join(["r(2, 3, 6, 4)"] * 3)
ATTEND = "F.scaled_dot_product_attention"

E, F, S = 8, 16, 5  # a layer of 2 heads of 4, on 5 positions
PROJECTIONS = 2 * N * 4 * S * E * E  # query, key, value and out
LAYER = PROJECTIONS + 2 * (2 * N * S * S * E)
FEED = 2 * N * 2 * S * E * F
FIRST = 2 * N * 3 * S * E * E  # gradients in the input of query, key and value, which are data

ATTENTION = (
    Case(
        "attention",
        "attention",
        f"function(lambda q, k, v: {ATTEND}(q, k, v))",
        QKV,
        HEADS,
        2 * HEADS,
        f"{PYTORCH}issues/195460",
    ),
    Case(
        "attention_math",
        "attention",
        "function(lambda q, k, v: math_attention(q, k, v))",
        QKV,
        HEADS,
        2 * HEADS,
        f"{PYTORCH}issues/134804",
    ),
    Case(
        "attention_causal",
        "attention",
        f"function(lambda q, k, v: {ATTEND}(q, k, v, is_causal=True))",
        QKV,
        HEADS,
        2 * HEADS,
        "https://github.com/karpathy/nanoGPT/issues/456",
    ),
    Case(  # six heads of queries, three of keys and values: each of the latter serves two
        "attention_grouped",
        "attention",
        f"function(lambda q, k, v: {ATTEND}(q, k, v, enable_gqa=True))",
        "r(2, 6, 6, 4), r(2, 3, 6, 4), r(2, 3, 6, 4)",
        2 * (2 * N * 6 * L * L * D),
        4 * (2 * N * 6 * L * L * D),
        f"{PYTORCH}pull/177188",
    ),
    Case(
        "attention_meta",
        "meta",
        f"function(lambda q, k, v: {ATTEND}(q, k, v))",
        ", ".join(["r(2, 3, 6, 4, device='meta')"] * 3),
        HEADS,
        2 * HEADS,
        f"{FVCORE}issues/129",
    ),
    Case(  # this one kernel has positions before heads
        "flash_layout",
        "meta",
        "function(lambda q, k, v: flash_attention(q, k, v))",
        ", ".join(["d(2, 6, 3, 4, device='meta')"] * 3),
        HEADS,
        None,
        f"{PYTORCH}pull/184348",
    ),
    Case(
        "multi_head",
        "attention",
        "SelfAttention(8, 2)",
        "d(2, 5, 8)",
        LAYER,
        2 * LAYER - FIRST,
        f"{PTFLOPS}issues/65",
    ),
    Case(
        "multi_head_eval",
        "attention",
        "SelfAttention(8, 2).eval().requires_grad_(False)",
        "d(2, 5, 8)",
        LAYER,
        None,
        f"{PTFLOPS}issues/101",
    ),
    Case(
        "encoder_layer",
        "attention",
        "nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)",
        "d(2, 5, 8)",
        LAYER + FEED,
        2 * (LAYER + FEED) - FIRST,
        "https://github.com/allenai/olmoearth_pretrain/pull/605",
    ),
    Case(  # 2 and 3 rows, which are 5, not 2 of 3
        "jagged",
        "nested",
        "Then(nn.Linear(6, 8, bias=False), lambda y: y.values())",
        "torch.nested.nested_tensor([d(2, 6), d(3, 6)], layout=torch.jagged)",
        2 * (2 + 3) * 6 * 8,
        2 * (2 + 3) * 6 * 8,
        f"{PYTORCH}pull/125712",
    ),
)

T, B, IN, OUT = 5, 3, 4, 7  # 5 steps of 3 sequences, 4 -> 7 features
GATES = 2 * B * 4 * OUT  # of an LSTM, in one step, for each feature that comes in
# The gradient in the state before the first step is not needed: that state is a constant.

RECURRENT = (
    Case(
        "lstm",
        "recurrent",
        "nn.LSTM(4, 7, bias=False)",
        "d(5, 3, 4)",
        T * GATES * (IN + OUT),
        T * GATES * (IN + OUT) + (T - 1) * GATES * OUT,
        f"{FVCORE}issues/98",
    ),
    Case(
        "lstm_meta",
        "meta",
        "nn.LSTM(4, 7, bias=False, device='meta')",
        "d(5, 3, 4, device='meta')",
        T * GATES * (IN + OUT),
        T * GATES * (IN + OUT) + (T - 1) * GATES * OUT,
        f"{FVCORE}issues/98",
    ),
    Case(  # three gates where the LSTM has four
        "gru",
        "recurrent",
        "nn.GRU(4, 7, batch_first=True, bias=False)",
        "d(3, 5, 4)",
        T * (2 * B * 3 * OUT) * (IN + OUT),
        None,
        f"{CALFLOPS}issues/55",
    ),
    Case(
        "lstm_cell",
        "recurrent",
        "nn.LSTMCell(4, 7, bias=False)",
        "d(3, 4)",
        GATES * (IN + OUT),
        GATES * (IN + OUT),
        f"{PTFLOPS}issues/100",
    ),
)

CASES = (*ATTENTION, *RECURRENT)
