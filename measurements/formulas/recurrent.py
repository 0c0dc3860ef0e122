"""FLOP of recurrent layers in the spelling of fused kernels: the gates' products, and the element-wise cells.

Letters: n tokens (time steps x batch), B batch, C input, H hidden, P projected, G = g·H gates (LSTM g = 4,
GRU 3, RNN 1).
Forward: 2·n·G·(C + H), and 2·n·H·P for a projection. Backward: one product for each operand that needs a
gradient; the gradient of the initial state is not needed where that state is a constant, so the hidden
product has n - B rows there.
Source: the equations in the documentation of nn.LSTM, nn.GRU and nn.RNN.
"""

from __future__ import annotations

from collections.abc import Sequence

from measurements.formulas.cost import Cost, Formula, contraction, elementwise
from measurements.formulas.pointwise import SIGMOID
from measurements.records import Shape

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates by PyTorch's mode number: RNN with ReLU, RNN with tanh, LSTM, GRU."""

CELL = {
    0: 1 + 1,  # add both products, ReLU
    1: 1 + 1,  # add both products, tanh
    2: 4 + 3 * SIGMOID + 1 + 4 + 1,  # add both products in 4 gates, i f o, g; f·c + i·g, tanh, o·tanh(c)
    3: 2 + 2 * SIGMOID + 2 + 1 + 3,  # r z, n = tanh(x + r·h), h' = n + z·(h - n)
}
"""Element-wise FLOP of one cell for each hidden unit, biases left out."""

CELL_BACKWARD = {0: 1, 1: 3, 2: 24, 3: 20}
"""Element-wise FLOP of one cell's gradient for each hidden unit.

tanh 3 (g · (1 - y²)). LSTM: o: g·tanh(c)·o·(1-o) 4; c: g·o·(1-tanh²) 4 and the sum 1; i, f, g: 4 + 4 + 4; to
c' 1; sums of
hidden gradients 2. GRU: z: g·(h-n)·z·(1-z) 5; n: g·(1-z)·(1-n²) 5; r: 4; to h 3; products with r 1; sums 2.
"""


def _layer(n: int, c: int, hidden: int, state: int, gates: int) -> int:
    """Contraction FLOP of one layer in one direction; state is the width that is fed back (P or H)."""
    projection = 2 * n * hidden * state if state != hidden else 0
    return 2 * n * gates * hidden * (c + state) + projection


def cells(n: int, hidden: int, mode: int, biases: bool) -> int:
    """Element-wise FLOP of n cells, biases included."""
    return n * hidden * (CELL[mode] + (2 * GATES[mode] if biases else 0))


def one_layer(
    x: Shape, weight0: Shape, weight1: Shape, mode: int, hidden_size: int, has_biases: bool
) -> Cost:
    """FLOP of one layer in one direction.

    Shapes: x (T, B, C) or packed (n, C), weight0 (G, C), weight1 (G, H).
    """
    n = x.numel // x[-1]
    flop = _layer(n, x[-1], hidden_size, hidden_size, GATES[mode])
    return contraction(flop) + elementwise(cells(n, hidden_size, mode, has_biases))


def one_layer_backward(
    x: Shape, hx_: Shape, mode: int, hidden_size: int, has_biases: bool, needs: Sequence[bool] = ()
) -> Cost:
    """FLOP of the gradients of one layer in one direction: input, two weights, two biases, initial state."""
    n, batch, gates = x.numel // x[-1], hx_.numel // hx_[-1], GATES[mode] * hidden_size
    to_x, to_w, to_u, to_b, _, to_h = (*needs, *(True,) * 6)[:6] if needs else (True,) * 6
    rows_of_state = n if to_h else n - batch
    products = x[-1] * n * (to_x + to_w) + hidden_size * (n * to_u + rows_of_state)
    bias = 2 * (n - 1) * gates if has_biases and to_b else 0
    return contraction(2 * gates * products) + elementwise(n * hidden_size * CELL_BACKWARD[mode] + bias)


def stack(
    x: Shape,
    hx: Shape,
    mode: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    weight: Sequence[Shape] = (),
    proj_size: int = 0,
) -> Cost:
    """FLOP of all layers and directions in one kernel. Shapes: x (T, B, C), (B, T, C) or packed (n, C)."""
    n, directions, state = x.numel // x[-1], 2 if bidirectional else 1, proj_size or hidden_size
    widths = [x[-1]] + [directions * state] * (num_layers - 1)
    flop = sum(directions * _layer(n, width, hidden_size, state, GATES[mode]) for width in widths)
    biases = len(weight) > (2 + (proj_size > 0)) * directions * num_layers
    return contraction(flop) + elementwise(num_layers * directions * cells(n, hidden_size, mode, biases))


def stack_backward(
    x: Shape,
    weight: Sequence[Shape],
    hx: Shape,
    mode: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    output_mask: Sequence[bool],
    proj_size: int = 0,
) -> Cost:
    """FLOP of the gradients of all layers and directions.

    Input, initial states, weights, as the mask asks.
    """
    n, directions, state = x.numel // x[-1], 2 if bidirectional else 1, proj_size or hidden_size
    batch, gates = hx.numel // (hx[-1] * num_layers * directions), GATES[mode] * hidden_size
    to_x, to_h, _, to_w = (bool(wanted) for wanted in output_mask)
    flop = 0
    for layer in range(num_layers):
        width = directions * state if layer else x[-1]
        rows_of_state = n if to_h else n - batch
        products = width * n * ((to_x or layer > 0) + to_w) + state * (n * to_w + rows_of_state)
        projection = 2 * n * hidden_size * state * (1 + to_w) if proj_size else 0
        flop += directions * (2 * gates * products + projection)
    cells = num_layers * directions * n * hidden_size * CELL_BACKWARD[mode]
    biases = len(weight) > (2 + (proj_size > 0)) * directions * num_layers
    bias = 2 * num_layers * directions * (n - 1) * gates if biases and to_w else 0
    return contraction(flop) + elementwise(cells + bias)


def fused_cell(mode: int) -> Formula:
    """The formula of the element-wise part of a cell, its two products done before. Shape: gates (B, G)."""

    def formula(input_gates: Shape, hidden_gates: Shape, input_bias: Shape | None = None) -> Cost:
        rows, gates = input_gates[0], input_gates[-1]
        return elementwise(cells(rows, gates // GATES[mode], mode, input_bias is not None))

    return formula


def quantized_lstm(
    x: Shape, params: Sequence[object], out: Shape, num_layers: int, bidirectional: bool
) -> Cost:
    """FLOP of a quantized LSTM. Shapes: x (T, B, C), out (T, B, directions · H)."""
    directions = 2 if bidirectional else 1
    return stack(x, x, 2, out[-1] // directions, num_layers, bidirectional)


def quantized_gru(
    x: Shape, params: Sequence[object], out: Shape, num_layers: int, bidirectional: bool
) -> Cost:
    """FLOP of a quantized GRU."""
    directions = 2 if bidirectional else 1
    return stack(x, x, 3, out[-1] // directions, num_layers, bidirectional)


RECURRENT: dict[str, Formula] = {
    "mkldnn_rnn_layer": one_layer,
    "mkldnn_rnn_layer_backward": one_layer_backward,
    "_cudnn_rnn": stack,
    "_cudnn_rnn_backward": stack_backward,
    "miopen_rnn": stack,
    "miopen_rnn_backward": stack_backward,
    "_thnn_fused_lstm_cell": fused_cell(2),
    "_thnn_fused_gru_cell": fused_cell(3),
    "_thnn_fused_lstm_cell_backward_impl": lambda grad_hy, grad_cy, cx: elementwise(
        cx.numel * CELL_BACKWARD[2]
    ),
    "_thnn_fused_gru_cell_backward": lambda grad_hy: elementwise(grad_hy.numel * CELL_BACKWARD[3]),
    "quantized_lstm": quantized_lstm,
    "quantized_gru": quantized_gru,
}
