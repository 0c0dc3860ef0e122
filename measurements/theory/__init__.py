"""What a training step costs on paper: the law, its regimes, the closed form by layer, the weight update.

Nothing here runs a model or is shared with the counters: the two agree, or one of them is wrong.

The law. A contraction is a sum of products over a set T of index triples,

    out[o] = sum of a[i] * b[j]  over (i, j, o) in T,

be it a linear layer, a convolution of any stride, padding, dilation or groups, a transposed convolution, an
einsum or an attention product: they differ in T alone. By the product rule, with g = dL/dout,

    dL/da[i] = sum of g[o] * b[j],   dL/db[j] = sum of g[o] * a[i]   over the same (i, j, o) in T.

Each forward product is met exactly once in the gradient of `a` and exactly once in the gradient of `b`: 2
FLOP each (a multiplication and an addition, sums starting from zero). Hence, for every contraction,

    backward FLOP = forward FLOP x number of its operands that need a gradient.

The first layer's input is data and needs none: 1:1. Later layers: 2:1. Frozen weights: 1:1. Nothing upstream
to train: 0.

Unit: FLOP, integers, exact; a multiply-add is 2, a complex one 8.
"""

from __future__ import annotations

from measurements.theory.all_work import (
    UNITS,
    Row,
    Term,
    Unit,
    contraction_at,
    conv_net,
    flop_at,
    linear_net,
    mlp,
    one_net,
    study_table,
)
from measurements.theory.contractions import (
    PRODUCTS,
    Product,
    backward_flop,
    bilinear,
    closed_form,
    convolution,
    embedding,
    forward_flop,
    linear,
    multihead_attention,
    products,
    recurrent,
    recurrent_cell,
    transposed_convolution,
)
from measurements.theory.ratio import REGIMES, Regime, first_layer, other_layers, ratio
from measurements.theory.update import (
    ADAM_AS_THE_PAPER_WRITES_IT,
    UPDATE_COST,
    UPDATES,
    Update,
    muon_contraction,
    muon_flop,
    update_flop,
)

__all__ = [
    "ADAM_AS_THE_PAPER_WRITES_IT",
    "PRODUCTS",
    "REGIMES",
    "UNITS",
    "UPDATES",
    "UPDATE_COST",
    "Product",
    "Regime",
    "Row",
    "Term",
    "Unit",
    "Update",
    "backward_flop",
    "bilinear",
    "closed_form",
    "contraction_at",
    "conv_net",
    "convolution",
    "embedding",
    "first_layer",
    "flop_at",
    "forward_flop",
    "linear",
    "linear_net",
    "mlp",
    "multihead_attention",
    "muon_contraction",
    "muon_flop",
    "one_net",
    "other_layers",
    "products",
    "ratio",
    "recurrent",
    "recurrent_cell",
    "study_table",
    "transposed_convolution",
    "update_flop",
]
