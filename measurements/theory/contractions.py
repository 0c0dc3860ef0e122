"""The closed form: what the contractions of a layer cost, forward and backward, by the law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from measurements.records import Layer, OpRecord, Phase, Shape, Work


@dataclass(frozen=True, slots=True)
class Product:
    """FLOP of one contraction of two operands, and which of the two need a gradient."""

    flop: int
    left: bool
    right: bool

    @property
    def backward(self) -> int:
        """FLOP of the gradients, by the law."""
        return self.flop * (self.left + self.right)


def linear(layer: Layer) -> Iterator[Product]:
    """Product of a linear layer.

    Shapes: x *I, weight OI, out *O; * is any number of leading sizes, none included.
    Count: 2 · *·I·O.
    """
    _same(layer, "features of x", layer.x[-1], "columns of weight", layer.weight[1])
    yield _product(
        layer, math.prod(layer.x) * layer.weight[0], layer.input_needs_gradient, layer.weight_needs_gradient
    )


def convolution(layer: Layer) -> Iterator[Product]:
    """Product of a convolution of any rank, stride, padding, dilation and groups.

    Shapes: x NC*, weight OI* with I = C / groups, out NO*; N may be missing.
    Count: 2 · numel(out) · numel(one filter). Dense: taps that fall on padding count as if they multiplied.
    """
    rank = len(layer.weight) - 2
    _same(layer, "channels of out", layer.out[-rank - 1], "filters of weight", layer.weight[0])
    _same(
        layer,
        "channels of x",
        layer.x[-rank - 1],
        "groups x channels of weight",
        layer.groups * layer.weight[1],
    )
    products = math.prod(layer.out) * math.prod(layer.weight[1:])
    yield _product(layer, products, layer.input_needs_gradient, layer.weight_needs_gradient)


def transposed_convolution(layer: Layer) -> Iterator[Product]:
    """Product of a transposed convolution: the input gradient of a convolution, run forward.

    Shapes: x NC*, weight CI* with I = O / groups, out NO*; N may be missing.
    Count: 2 · numel(x) · numel(one filter): one set of taps for each element of the *input*, whatever is
    cropped.
    """
    rank = len(layer.weight) - 2
    _same(layer, "channels of x", layer.x[-rank - 1], "filters of weight", layer.weight[0])
    _same(
        layer,
        "channels of out",
        layer.out[-rank - 1],
        "groups x channels of weight",
        layer.groups * layer.weight[1],
    )
    products = math.prod(layer.x) * math.prod(layer.weight[1:])
    yield _product(layer, products, layer.input_needs_gradient, layer.weight_needs_gradient)


def bilinear(layer: Layer) -> Iterator[Product]:
    """Products of nn.Bilinear, out[o] = sum of x[i]·weight[o, i, j]·x2[j]: first with x, then with x2.

    Shapes: x *I, weight OIJ, x2 *J. Settings: x2_needs_gradient.
    Count: 2 · *·O·I·J, then 2 · *·O·J; backward by the chain of the two. PyTorch executes each gradient as a
    product of three operands of its own, which shares nothing with the others and differs.
    """
    o, i, j = layer.weight
    _same(layer, "features of x", layer.x[-1], "middle size of weight", i)
    rows = math.prod(layer.x[:-1])
    x, weight = layer.input_needs_gradient, layer.weight_needs_gradient
    yield _product(layer, rows * o * i * j, x, weight)
    yield _product(layer, rows * o * j, x or weight, _flag(layer, "x2_needs_gradient"))


def embedding(layer: Layer) -> Iterator[Product]:
    """No product: an embedding reads rows."""
    yield from ()


def recurrent(gates: int) -> Callable[[Layer], Iterator[Product]]:
    """Products of an LSTM (4 gates), GRU (3) or RNN (1): a function of the layer.

    Letters: G gates, H hidden_size, R size of the state that recurs (proj_size if there is one, else H), P
    positions (steps x sequences; for packed sequences the sum of their lengths), N sequences, I features of
    the layer's input (of the layers above the first: R x directions).
    Count, for each layer and direction: input 2·P·GH·I, hidden 2·P·GH·R, projection 2·P·H·R where there is
    one.
    Backward: the state before the first step is a constant unless the caller says otherwise, so that N of the
    hidden product's P state gradients are owed to nobody; its weight gradient has all P.
    Settings: hidden_size, layers, directions, proj_size, positions, sequences, trainable (names of the
    parameters that need a gradient), state_needs_gradient, cell_needs_gradient.
    """

    def products(layer: Layer) -> Iterator[Product]:
        hidden, projected = _int(layer, "hidden_size"), _int(layer, "proj_size", 0)
        positions, sequences = _int(layer, "positions"), _int(layer, "sequences")
        directions, state = _int(layer, "directions", 1), projected or hidden
        width, x = layer.x[-1], layer.input_needs_gradient
        for depth in range(_int(layer, "layers", 1)):
            out = False
            for suffix in ("", "_reverse")[:directions]:
                names = {
                    name: _trains(layer, f"{name}_l{depth}{suffix}")
                    for name in ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")
                }
                initial, cell = _flag(layer, "state_needs_gradient"), _flag(layer, "cell_needs_gradient")
                w_ih, w_hh, w_hr = names["weight_ih"], names["weight_hh"], names["weight_hr"]
                # whether the gates' output depends on anything that trains: in the first step, and later
                gated = x or initial or cell or any(names[n] for n in names if n != "weight_hr")
                later = gated or w_hr
                yield _product(layer, positions * gates * hidden * width, x, w_ih)
                yield _product(layer, sequences * gates * hidden * state, initial, w_hh)
                yield _product(layer, (positions - sequences) * gates * hidden * state, later, w_hh)
                if projected:
                    yield _product(layer, sequences * hidden * state, gated, w_hr)
                    yield _product(layer, (positions - sequences) * hidden * state, later, w_hr)
                out = out or later
            width, x = state * directions, out

    return products


def recurrent_cell(gates: int) -> Callable[[Layer], Iterator[Product]]:
    """Products of an LSTMCell (4 gates), GRUCell (3) or RNNCell (1): a function of the layer.

    Shapes: x *I, weight GH,I. Settings: trainable, state_needs_gradient.
    Count: input 2 · *·GH·I, hidden 2 · *·GH·H; a state that is not given is zeros, multiplied all the same.
    """

    def products(layer: Layer) -> Iterator[Product]:
        rows, columns = layer.weight
        _same(layer, "features of x", layer.x[-1], "columns of weight", columns)
        batch = math.prod(layer.x[:-1])
        yield _product(layer, batch * rows * columns, layer.input_needs_gradient, _trains(layer, "weight_ih"))
        state = _flag(layer, "state_needs_gradient")
        yield _product(layer, batch * rows * (rows // gates), state, _trains(layer, "weight_hh"))

    return products


def multihead_attention(layer: Layer) -> Iterator[Product]:
    """Products of nn.MultiheadAttention: three projections in, scores, weighted values, one projection out.

    Letters: N batch, L queries, S keys (and E' = extra_keys that bias_kv and zero_attn append), E embedding,
    K and V widths of key and value. The number of heads cancels.
    Count: 2·N·L·E·E + 2·N·S·K·E + 2·N·S·V·E, then 2·N·L·(S+E')·E for QK^T, as much for AV, then 2·N·L·E·E.
    Dense, causal or not.
    Settings: batch, queries, keys, extra_keys, key_width, value_width, key_needs_gradient,
    value_needs_gradient, trainable.
    """
    n, q, k = (_int(layer, name) for name in ("batch", "queries", "keys"))
    e = layer.x[-1]
    extra = _int(layer, "extra_keys", 0)
    packed, bias = _trains(layer, "in_proj_weight"), _trains(layer, "in_proj_bias")
    w_q, w_k, w_v = (packed or _trains(layer, f"{name}_proj_weight") for name in "qkv")
    x_q = layer.input_needs_gradient
    x_k, x_v = _flag(layer, "key_needs_gradient"), _flag(layer, "value_needs_gradient")
    yield _product(layer, n * q * e * e, x_q, w_q)
    yield _product(layer, n * k * _int(layer, "key_width", e) * e, x_k, w_k)
    yield _product(layer, n * k * _int(layer, "value_width", e) * e, x_v, w_v)
    query = x_q or w_q or bias
    key = x_k or w_k or bias or _trains(layer, "bias_k")
    value = x_v or w_v or bias or _trains(layer, "bias_v")
    yield _product(layer, n * q * (k + extra) * e, query, key)
    yield _product(layer, n * q * (k + extra) * e, query or key, value)
    yield _product(layer, n * q * e * e, query or key or value, _trains(layer, "out_proj.weight"))


PRODUCTS: dict[str, Callable[[Layer], Iterator[Product]]] = {
    "Linear": linear,
    "Conv1d": convolution,
    "Conv2d": convolution,
    "Conv3d": convolution,
    "ConvTranspose1d": transposed_convolution,
    "ConvTranspose2d": transposed_convolution,
    "ConvTranspose3d": transposed_convolution,
    "Bilinear": bilinear,
    "LSTM": recurrent(4),
    "GRU": recurrent(3),
    "RNN": recurrent(1),
    "LSTMCell": recurrent_cell(4),
    "GRUCell": recurrent_cell(3),
    "RNNCell": recurrent_cell(1),
    "MultiheadAttention": multihead_attention,
    "Embedding": embedding,
}


def products(layer: Layer) -> tuple[Product, ...]:
    """The contractions of one call of a layer.

    Raises: ValueError where the kind has no closed form, or where its shapes disagree.
    """
    if layer.kind not in PRODUCTS:
        raise ValueError(
            f"products: no closed form for a layer of kind {layer.kind!r} ({layer.name}); "
            f"have {', '.join(PRODUCTS)}: add a row to theory.PRODUCTS"
        )
    return tuple(PRODUCTS[layer.kind](layer))


def forward_flop(layer: Layer) -> int:
    """Contraction FLOP of one forward call of a layer."""
    return sum(product.flop for product in products(layer))


def backward_flop(layer: Layer) -> int:
    """Contraction FLOP of the gradients that one call of a layer owes, by the law."""
    return sum(product.backward for product in products(layer))


def closed_form(layers: Iterable[Layer], update: int = 0) -> Work:
    """Contraction FLOP of a training step, one row a layer call and phase.

    update: the FLOP of the step's update, from `update_flop`.
    Supposes that every layer's output reaches the loss.
    """
    layers = tuple(layers)
    forward = tuple(_record(Phase.FORWARD, layer, forward_flop(layer)) for layer in layers)
    backward = tuple(_record(Phase.BACKWARD, layer, backward_flop(layer)) for layer in reversed(layers))
    step = (OpRecord(Phase.UPDATE, "closed_form.update", flop=update),) if update else ()
    return Work(forward + backward + step)


def _record(phase: Phase, layer: Layer, flop: int) -> OpRecord:
    arguments = (Shape(layer.x), Shape(layer.weight))
    op = f"closed_form.{layer.kind}"
    return OpRecord(phase, op, layer.name, arguments, (Shape(layer.out),), flop=flop, contraction=flop)


def _product(layer: Layer, multiply_adds: int, left: bool, right: bool) -> Product:
    """A multiply-add is 2; a complex one is 4 multiplications and 4 additions."""
    return Product(multiply_adds * (8 if _flag(layer, "complex") else 2), left, right)


def _setting(layer: Layer, name: str, default: object = None) -> object:
    value = dict(layer.settings).get(name, default)
    if value is None:
        raise ValueError(
            f"{layer.kind} {layer.name}: its closed form needs the setting {name!r}; add it to the Layer"
        )
    return value


def _int(layer: Layer, name: str, default: int | None = None) -> int:
    return cast(int, _setting(layer, name, default))


def _flag(layer: Layer, name: str) -> bool:
    return bool(_setting(layer, name, False))


def _trains(layer: Layer, parameter: str) -> bool:
    """Whether that parameter needs a gradient; where the layer does not list them, all weights do or none."""
    fallback = (parameter,) if layer.weight_needs_gradient and "bias" not in parameter else ()
    return parameter in cast(tuple[str, ...], _setting(layer, "trainable", fallback))


def _same(layer: Layer, left: str, a: int, right: str, b: int) -> None:
    if a != b:
        raise ValueError(f"{layer.kind} {layer.name}: {left} {a}, {right} {b}; give shapes that agree")
