"""FLOP of quantized operators: integer products count like floating ones.

All else is work on integers, which is bookkeeping: 0.

Source: torch/ao/nn/quantized and the operators' kernels (aten/src/ATen/native/quantized/cpu).
"""

from __future__ import annotations

import math

from measurements.formulas.contractions import packed_linear, product
from measurements.formulas.cost import NOTHING, Cost, Formula, contraction, elementwise
from measurements.formulas.recurrent import GATES, cells
from measurements.records import Shape, shapes_in


def packed_convolution(*arguments: object, out: Shape) -> Cost:
    """FLOP of a convolution with a packed weight: 2 · out · C/groups · K.

    Shapes: weight (O, C / groups, K…).
    """
    _, weight = list(shapes_in(arguments))[:2]
    return contraction(2 * out.numel * math.prod(weight[1:]))


def packed_transposed_convolution(*arguments: object) -> Cost:
    """FLOP of a transposed one. Shapes: weight (C, O / groups, K…): 2 · x · O/groups · K."""
    x, weight = list(shapes_in(arguments))[:2]
    return contraction(2 * x.numel * math.prod(weight[1:]))


def cell(mode: int) -> Formula:
    """The formula of a recurrent cell with packed weights.

    Shapes: x (B, C), state (B, H): 2 · B · (C + H) · gates · H, and the cell's element-wise work.
    """

    def formula(*arguments: object) -> Cost:
        x, state = list(shapes_in(arguments))[:2]
        gates = GATES[mode] * state[-1]
        work = elementwise(cells(x.numel // x[-1], state[-1], mode, True))
        return contraction(2 * gates * (x.numel + state.numel)) + work

    return formula


def on_integers(*arguments: object) -> Cost:
    """FLOP of work on quantized elements: none."""
    return NOTHING


_LINEAR = """
linear linear_relu linear_leaky_relu linear_tanh linear_dynamic linear_relu_dynamic linear_dynamic_fp16
linear_relu_dynamic_fp16
"""
_ON_INTEGERS = """
add add_relu add_scalar add_scalar_relu mul mul_relu mul_scalar mul_scalar_relu cat cat_relu
hardswish leaky_relu relu6 sigmoid elu celu clamp threshold prelu dropout max_pool1d max_pool2d
batch_norm batch_norm_relu batch_norm1d batch_norm1d_relu batch_norm2d batch_norm2d_relu
batch_norm3d batch_norm3d_relu
"""
_CELLS = {
    "quantized_rnn_relu_cell_dynamic": 0,
    "quantized_rnn_tanh_cell_dynamic": 1,
    "quantized_lstm_cell_dynamic": 2,
    "quantized_gru_cell_dynamic": 3,
}
_CONVOLUTIONS = [
    f"conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_relu", "_dynamic", "_add", "_add_relu")
]

_ROWS: dict[str, Formula] = {
    **dict.fromkeys(_LINEAR.split(), packed_linear),
    **dict.fromkeys(_CONVOLUTIONS, packed_convolution),
    **{f"conv_transpose{rank}d": packed_transposed_convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d_dynamic": packed_transposed_convolution for rank in (1, 2, 3)},
    "matmul": lambda qa, qb: product(qa, qb),
    **{name: cell(mode) for name, mode in _CELLS.items()},
    **dict.fromkeys(_ON_INTEGERS.split(), on_integers),
}

QUANTIZED: dict[str, Formula] = {f"quantized.{name}": formula for name, formula in _ROWS.items()}
