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

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from measurements.records import Flop, Layer, OpRecord, Phase, Shape, Work

# ------------------------------------------------------------------------------------ contractions of a layer


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


# ------------------------------------------------------------------------------------- the ratio of a network


def first_layer(layers: Iterable[Layer]) -> int:
    """Forward FLOP of the contractions that backward meets once: one of their operands needs a gradient.

    In a network whose weights all train that is the first layer (and a recurrent layer's first step). Where
    nothing is frozen throughout, backward = 2 · forward - first_layer.
    """
    return sum(p.flop for layer in layers for p in products(layer) if p.left + p.right == 1)


def other_layers(layers: Iterable[Layer]) -> int:
    """Forward FLOP of the contractions that backward meets twice: both of their operands need a gradient."""
    return sum(p.flop for layer in layers for p in products(layer) if p.left and p.right)


def ratio(first: int, others: int, update: int = 0) -> Fraction:
    """(Backward + update) / forward of a network, from the forward FLOP of its first layer and of the others.

        (first + 2·others + update) / (first + others)

    Source: Hobbhahn and Sevilla, What's the backward-forward FLOP ratio for neural networks?, section Theory.
    Raises: ValueError where a term is negative or there is no forward work.
    """
    if min(first, others, update) < 0:
        raise ValueError(f"ratio: first {first}, others {others}, update {update}; give FLOP of 0 or more")
    if first + others == 0:
        raise ValueError(
            "ratio: first 0, others 0; a network without contractions has no ratio, give one that has"
        )
    return Fraction(first + 2 * others + update, first + others)


@dataclass(frozen=True, slots=True)
class Regime:
    """A limit of `ratio`.

    how: what makes a network approach it. costs: (first, others, update) of a network that comes closer as
    `scale` grows.
    """

    name: str
    limit: int
    how: str
    costs: Callable[[int], tuple[int, int, int]]


# A large update is one at batch 1 of a network of linear layers: SGD's 2·params equals the forward pass,
# 2·params·batch.
REGIMES: tuple[Regime, ...] = (
    Regime(
        "first layer dominates, update negligible",
        1,
        "one linear layer holds nearly all the work, at a large batch: LinearNet as the batch grows",
        lambda scale: (scale, 1, 0),
    ),
    Regime(
        "first layer dominates, update large",
        2,
        "one linear layer holds nearly all the weights, at batch 1: LinearNet",
        lambda scale: (scale, 1, scale + 1),
    ),
    Regime(
        "other layers dominate, update negligible",
        2,
        "a deep network at a large batch, or with shared weights (convolutions): most networks in use",
        lambda scale: (1, scale, 0),
    ),
    Regime(
        "other layers dominate, update large",
        3,
        "linear layers behind a small input, at batch 1: OneNet",
        lambda scale: (1, scale, scale + 1),
    ),
)

# ------------------------------------------------------------------------------------------ the weight update


@dataclass(frozen=True, slots=True)
class Update:
    """FLOP per parameter of one optimizer in the steady state, op by op as PyTorch runs it on one tensor.

    optimizer: the class in torch.optim. settings: what differs from its defaults; the cost holds for these.
    ops: (ATen op, FLOP per parameter) in the order in which they run.
    each_tensor: FLOP for each parameter tensor, whatever its size (a scalar state that is itself a tensor).
    """

    optimizer: str
    settings: dict[str, object]
    ops: tuple[tuple[str, int], ...]
    each_tensor: int = 0

    @property
    def flop(self) -> int:
        """FLOP per parameter."""
        return sum(flop for _, flop in self.ops)


# On one element: add, sub, mul, div, sqrt, reciprocal, abs, sign, maximum, a compare: 1.
# add with alpha, a + α·b: 2. lerp, a + w·(b - a): 3. addcmul, a + v·b·c, addcdiv, a + v·b/c: 3 (2 if v is 1).
# clamp between two bounds: 2 compares. Copies and masked writes of a constant move data: 0.
# Step counters and bias corrections are scalars, computed once: 0 per parameter.
_ADD, _ADD_ALPHA, _ADD_SCALED = ("add_", 1), ("add_", 2), ("add", 2)
_MUL, _DIV, _SQRT, _LERP = ("mul_", 1), ("div", 1), ("sqrt", 1), ("lerp_", 3)
_ADDCMUL, _ADDCDIV = ("addcmul_", 3), ("addcdiv_", 3)
# m += (1-β1)(g - m);  v = β2·v + (1-β2)·g·g
_MOMENTS = (_LERP, _MUL, _ADDCMUL)
# w -= α·m / (sqrt(v)/c + ε)
_ADAM = (*_MOMENTS, _SQRT, _DIV, _ADD, _ADDCDIV)
_MOMENTUM = (_MUL, _ADD)  # buf = μ·buf + g (dampening 0, so alpha is 1)
_NESTEROV = (*_MOMENTUM, _ADD_SCALED)  # g + μ·buf
_DECAY = (_ADD_SCALED,)  # g + λ·w

UPDATES: dict[str, Update] = {
    "sgd": Update("SGD", {}, (_ADD_ALPHA,)),
    "momentum": Update("SGD", {"momentum": 0.9}, (*_MOMENTUM, _ADD_ALPHA)),
    "nesterov": Update("SGD", {"momentum": 0.9, "nesterov": True}, (*_NESTEROV, _ADD_ALPHA)),
    "weight_decay": Update("SGD", {"weight_decay": 1e-4}, (*_DECAY, _ADD_ALPHA)),
    "momentum_weight_decay": Update(
        "SGD", {"momentum": 0.9, "weight_decay": 1e-4}, (*_DECAY, *_MOMENTUM, _ADD_ALPHA)
    ),
    "nesterov_weight_decay": Update(
        "SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}, (*_DECAY, *_NESTEROV, _ADD_ALPHA)
    ),
    "adam": Update("Adam", {}, _ADAM),
    "adam_weight_decay": Update("Adam", {"weight_decay": 1e-4}, (*_DECAY, *_ADAM)),
    "amsgrad": Update("Adam", {"amsgrad": True}, (*_MOMENTS, ("maximum", 1), _SQRT, _DIV, _ADD, _ADDCDIV)),
    "adamw": Update("AdamW", {}, (_MUL, *_ADAM)),  # w *= 1 - α·λ, λ = 1e-2
    # v = α·v + (1-α)·g·g;  w -= lr·g / (sqrt(v) + ε)
    "rmsprop": Update("RMSprop", {}, (_MUL, _ADDCMUL, _SQRT, _ADD, _ADDCDIV)),
    # s += 1·g·g;  w -= lr·g / (sqrt(s) + ε)
    "adagrad": Update("Adagrad", {}, (("addcmul_", 2), _SQRT, _ADD, _ADDCDIV)),
    # m as Adam;  u = max(β2·u, |g| + ε);  w -= c·m / u
    "adamax": Update("Adamax", {}, (_LERP, _MUL, ("abs", 1), _ADD, ("maximum", 1), _ADDCDIV)),
    # as Adam, and a second addcdiv for the gradient's own share; the product of all μ is a tensor of one
    # element
    "nadam": Update("NAdam", {}, (*_MOMENTS, _DIV, _SQRT, _ADD, _ADDCDIV, _ADDCDIV), each_tensor=1),
    # m and v as Adam;  w -= m/c1 · lr · (c2 / (sqrt(v) + ε)) · r, the quotient as reciprocal and mul
    "radam": Update(
        "RAdam",
        {},
        (
            *_MOMENTS,
            _DIV,
            *(("mul", 1), _SQRT, _ADD, ("reciprocal", 1), ("mul", 1)),
            *(("mul", 1), ("mul", 1), _ADD_ALPHA),  # alpha is -1
        ),
    ),
    # v = ρ·v + (1-ρ)·g·g;  d = sqrt(a + ε) / sqrt(v + ε) · g;  a = ρ·a + (1-ρ)·d·d;  w -= lr·d
    "adadelta": Update(
        "Adadelta",
        {},
        (
            *(_MUL, _ADDCMUL, ("add", 1), ("sqrt_", 1), ("add", 1), ("sqrt_", 1)),
            *(("div_", 1), _MUL, _MUL, _ADDCMUL, _ADD_ALPHA),
        ),
    ),
    # s = sign(g·previous), by three compares η+, η- or 1;  step = clamp(step·s);  g = 0 where s is η-;
    # w -= sign(g)·step, by addcmul with value -1
    "rprop": Update(
        "Rprop",
        {},
        (
            *(("mul", 1), ("sign", 1), ("gt", 1), ("lt", 1), ("eq", 1), _MUL, ("clamp_", 2)),
            *(("eq", 1), ("sign", 1), _ADDCMUL),
        ),
    ),
    # w = (1 - λη)·w - η·g; the average only copies until step t0 = 10^6, and costs 3 more from there on
    "asgd": Update("ASGD", {}, (_MUL, _ADD_ALPHA)),
}

UPDATE_COST: dict[str, int] = {name: update.flop for name, update in UPDATES.items()}

# m = β1·m + (1-β1)·g                          2 mul, 1 add                          3
# v = β2·v + (1-β2)·g²                         3 mul (one the square), 1 add         4
# m̂ = m / (1 - β1^t)                           1 power, 1 sub, 1 div                 3
# v̂ = v / (1 - β2^t)                           1 power, 1 sub, 1 div                 3
# w = w - α·m̂ / (sqrt(v̂) + ε)                  sqrt, add, div, mul, sub              5
# The two bias corrections are scalars, the same for all parameters: PyTorch computes them once.
# Source: Kingma and Ba, arXiv:1412.6980, algorithm 1; counted so by Hobbhahn and Sevilla, appendix B.
ADAM_AS_THE_PAPER_WRITES_IT = 3 + 4 + 3 + 3 + 5


def update_flop(optimizer: str, parameters: int, tensors: int = 0) -> int:
    """FLOP of one weight update in the steady state: cost per parameter x parameters that have a gradient.

    tensors: how many tensors the parameters are; it matters to NAdam alone, by 1 FLOP each.
    Steady: momentum's first step only copies, RAdam's first five skip the adaptive part.
    Raises: ValueError where the optimizer's cost is not a number per parameter.
    """
    if parameters < 0:
        raise ValueError(f"update_flop: {parameters} parameters; give 0 or more")
    if optimizer == "muon":
        raise ValueError(
            "update_flop: Muon's cost depends on the shape of each matrix; use muon_flop(rows, columns)"
        )
    if optimizer not in UPDATE_COST:
        raise ValueError(f"update_flop: unknown optimizer {optimizer!r}; have {', '.join(UPDATE_COST)}")
    return UPDATE_COST[optimizer] * parameters + UPDATES[optimizer].each_tensor * tensors


def muon_contraction(rows: int, columns: int) -> int:
    """Contraction FLOP of one Muon update of one matrix.

    Letters: m = min(rows, columns), n = max. X is m x n.
    Count: five Newton-Schulz rounds of A = X·X^T (2·m²n), A·A (2·m³), B·X (2·m²n).
    Source: torch/optim/_muon.py, _zeropower_via_newtonschulz, torch 2.14.1.
    """
    m, n = min(rows, columns), max(rows, columns)
    return 5 * (4 * m * m * n + 2 * m * m * m)


def muon_flop(rows: int, columns: int) -> int:
    """FLOP of one Muon update of one matrix, all work, with torch's default settings.

    Letters: m = min(rows, columns), n = max.
    Count, besides the contractions:
      momentum and Nesterov: lerp 3·mn, lerp 3·mn
      X / max(|X|, ε): squares mn, their sum mn - 1, sqrt 1, one compare 1, div mn
      five rounds: b·A + c·A·A is 3 on each of m² (two scalings and an addition), a·X + B·X is 2 on each of mn
      decay: mul mn; step: add with alpha 2·mn
    """
    m, n = min(rows, columns), max(rows, columns)
    normalized = m * n + (m * n - 1) + 1 + 1 + m * n
    return muon_contraction(rows, columns) + 6 * m * n + normalized + 5 * (3 * m * m + 2 * m * n) + 3 * m * n


# --------------------------------------------------------------------------------------------------- all work


@dataclass(frozen=True, slots=True)
class Unit:
    """All-work FLOP of one element-wise op as (a, b) of a + b·N, N the batch.

    per: what one unit is. forward, backward: functions of its extent k (elements reduced; 1 where there is
    nothing to reduce).
    """

    per: str
    forward: Callable[[int], tuple[int, int]]
    backward: Callable[[int], tuple[int, int]]


# A sum of n elements is n - 1; add, mul, div, exp, log, compare, negate are 1 each; reading, copying and
# spreading are 0.
UNITS: dict[str, Unit] = {
    # forward: 1 add. backward: the sum over the batch, N - 1 adds.
    "bias": Unit("an output of the layer", lambda k: (0, 1), lambda k: (-1, 1)),
    # forward: max(x, 0), 1 compare. backward: g where out > 0, 1 compare.
    "relu": Unit("an element", lambda k: (0, 1), lambda k: (0, 1)),
    # forward: the maximum of k taps, k - 1 compares. backward: g added where the maximum was, 1 add.
    "max_pool": Unit("an output", lambda k: (0, k - 1), lambda k: (0, 1)),
    # forward: a sum of k, k - 1 adds, and 1 div. backward: g / k for each of k elements, 1 div each.
    "average_pool": Unit("an output", lambda k: (0, k), lambda k: (0, k)),
    # a row of k classes. forward: maximum k - 1, sub k, exp k, sum k - 1, log 1, sub k.
    # backward: g - exp(out)·sum(g): sum k - 1, exp k, mul k, sub k.
    "log_softmax": Unit("a row", lambda k: (0, 5 * k - 1), lambda k: (0, 4 * k - 1)),
    # forward: the loss of a row is minus its target's log probability, 1 negate. backward: see the division.
    "negative_log_likelihood": Unit("a row", lambda k: (0, 1), lambda k: (0, 0)),
    # the mean of N rows, forward: the sum, N - 1 adds; backward: the gradient is spread, 0.
    "sum_over_the_batch": Unit("a loss", lambda k: (-1, 1), lambda k: (0, 0)),
    # forward: 1 div. backward: g / -N for each row, N divs; the sign goes into the divisor.
    "divide_by_the_batch": Unit("a loss", lambda k: (1, 0), lambda k: (0, 1)),
}


@dataclass(frozen=True, slots=True)
class Term:
    """FLOP of one op of a network at batch N: constant + per_sample · N."""

    phase: Phase
    module: str
    op: str
    constant: int
    per_sample: int
    contraction: bool = False

    def at(self, batch: int) -> int:
        """FLOP at that batch.

        Raises: ValueError where the batch is below 1.
        """
        if batch < 1:
            raise ValueError(f"Term.at: batch {batch}; give 1 or more")
        return self.constant + self.per_sample * batch


def flop_at(terms: Iterable[Term], batch: int) -> Flop:
    """All-work FLOP of a training step at that batch, by phase."""
    sums = dict.fromkeys(Phase, 0)
    for term in terms:
        sums[term.phase] += term.at(batch)
    return Flop(sums[Phase.FORWARD], sums[Phase.BACKWARD], sums[Phase.UPDATE])


def contraction_at(terms: Iterable[Term], batch: int) -> Flop:
    """Contraction FLOP of a training step at that batch, by phase."""
    return flop_at((term for term in terms if term.contraction), batch)


def linear_net(classes: int = 10, optimizer: str = "sgd", inputs: int = 3 * 224 * 224) -> tuple[Term, ...]:
    """All work of LinearNet and mean cross entropy: three layers with bias, ReLU behind the first two."""
    return _three_layers("LinearNet", inputs, classes, optimizer)


def one_net(classes: int = 10, optimizer: str = "sgd") -> tuple[Term, ...]:
    """All work of OneNet and mean cross entropy: LinearNet behind a single input."""
    return _three_layers("OneNet", 1, classes, optimizer)


def mlp(
    inputs: int = 24, hidden1: int = 16, hidden2: int = 12, outputs: int = 10, optimizer: str = "sgd"
) -> tuple[Term, ...]:
    """All work of B1's network and mean cross entropy: three layers without bias, ReLU behind each."""
    sizes = (inputs, hidden1, hidden2, outputs)
    parameters = inputs * hidden1 + hidden1 * hidden2 + hidden2 * outputs
    return (
        *_dense("MLP.fc1", *sizes[0:2], first=True, bias=False),
        *_terms("relu", "MLP", hidden1),
        *_dense("MLP.fc2", *sizes[1:3], bias=False),
        *_terms("relu", "MLP", hidden2),
        *_dense("MLP.fc3", *sizes[2:4], bias=False),
        *_terms("relu", "MLP", outputs),
        *_cross_entropy(outputs),
        _update(optimizer, parameters),
    )


def conv_net(classes: int = 10, optimizer: str = "sgd", side: int = 224) -> tuple[Term, ...]:
    """All work of ConvNet and mean cross entropy.

    Sizes: a 7x7 convolution of stride 2 and padding 3, and a 3x3 maximum of stride 2 and padding 1, each
    halve the side, rounded up.
    """
    conv1, pool1, conv2, pool2 = (-(-side // 2**halvings) for halvings in (1, 2, 3, 4))
    filter1, filter2 = 3 * 7 * 7, 32 * 7 * 7
    return (
        *_contraction("ConvNet.conv1", "convolution", 2 * 32 * conv1**2 * filter1, first=True),
        *_terms("relu", "ConvNet.relu", 32 * conv1**2),
        *_terms("max_pool", "ConvNet.maxpool", 32 * pool1**2, 3 * 3),
        *_contraction("ConvNet.conv2", "convolution", 2 * 64 * conv2**2 * filter2),
        *_terms("relu", "ConvNet.relu", 64 * conv2**2),
        *_terms("max_pool", "ConvNet.maxpool", 64 * pool2**2, 3 * 3),
        *_terms("average_pool", "ConvNet.avgpool", 64, pool2**2),
        *_dense("ConvNet.fc1", 64, classes),
        *_cross_entropy(classes),
        _update(optimizer, 32 * filter1 + 64 * filter2 + 64 * classes + classes),
    )


def _three_layers(name: str, inputs: int, classes: int, optimizer: str) -> tuple[Term, ...]:
    return (
        *_dense(f"{name}.fc1", inputs, 4096, first=True),
        *_terms("relu", name, 4096),
        *_dense(f"{name}.fc2", 4096, 128),
        *_terms("relu", name, 128),
        *_dense(f"{name}.fc3", 128, classes),
        *_cross_entropy(classes),
        _update(optimizer, (inputs + 1) * 4096 + (4096 + 1) * 128 + (128 + 1) * classes),
    )


def _contraction(module: str, op: str, flop: int, first: bool = False) -> Iterator[Term]:
    yield Term(Phase.FORWARD, module, op, 0, flop, contraction=True)
    yield Term(Phase.BACKWARD, module, f"{op}, weight gradient", 0, flop, contraction=True)
    if not first:
        yield Term(Phase.BACKWARD, module, f"{op}, input gradient", 0, flop, contraction=True)


def _dense(module: str, inputs: int, outputs: int, first: bool = False, bias: bool = True) -> Iterator[Term]:
    yield from _contraction(module, "linear", 2 * inputs * outputs, first)
    if bias:
        yield from _terms("bias", module, outputs)


def _terms(unit: str, module: str, count: int, extent: int = 1) -> Iterator[Term]:
    """Forward and backward of `count` units of that extent for each sample; a term that is 0 is left out."""
    rule = UNITS[unit]
    for phase, cost in ((Phase.FORWARD, rule.forward(extent)), (Phase.BACKWARD, rule.backward(extent))):
        if any(cost):
            yield Term(phase, module, unit, count * cost[0], count * cost[1])


def _cross_entropy(classes: int) -> Iterator[Term]:
    """Mean cross entropy of N rows: forward (5·classes - 1)·N + 2·N, backward (4·classes - 1)·N + N."""
    yield from _terms("log_softmax", "", 1, classes)
    for unit in ("negative_log_likelihood", "sum_over_the_batch", "divide_by_the_batch"):
        yield from _terms(unit, "", 1)


def _update(optimizer: str, parameters: int) -> Term:
    return Term(Phase.UPDATE, "", optimizer, update_flop(optimizer, parameters), 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of study B's table: what it computes and its FLOP; None where the table has an empty cell.

    exact_forward, exact_backward: this module's own all-work count; it differs from the study's in the loss
    row alone.
    """

    name: str
    forward_formula: str
    forward: int | None
    backward_formula: str
    backward: int | None
    exact_forward: int | None
    exact_backward: int | None


def study_table(inputs: int, hidden1: int, hidden2: int, outputs: int, batch: int) -> tuple[Row, ...]:
    """FLOP of each row of study B's table: a network of two hidden layers, no bias, ReLU behind all layers.

    The study writes its loss row as outputs·batch, an order of magnitude; mean cross entropy is derived in
    UNITS.
    Source: Hobbhahn and Sevilla, What's the backward-forward FLOP ratio for neural networks?, section Theory.
    """
    i, h1, h2, o, n = inputs, hidden1, hidden2, outputs, batch
    loss = flop_at(_cross_entropy(o), n)
    update = update_flop("sgd", i * h1 + h1 * h2 + h2 * o)

    def row(name: str, forward: str, f: int | None, backward: str, b: int | None) -> Row:
        return Row(name, forward, f, backward, b, f, b)

    return (
        row("Input", "A1=W1@X", 2 * i * h1 * n, "dL/dW1=δ1@X", 2 * i * h1 * n),
        row("ReLU", "A1R=ReLU(A1)", h1 * n, "δ1=dδ1R/dA1", h1 * n),
        row("Derivative", "", None, "δ1R=dL/dA2=W2@δ2", 2 * h1 * h2 * n),
        row("Hidden1", "A2=W2@A1R", 2 * h1 * h2 * n, "dL/dW2=δ2@A1R", 2 * h1 * h2 * n),
        row("ReLU", "A2R=ReLU(A2)", h2 * n, "δ2=dδ2R/dA2", h2 * n),
        row("Derivative", "", None, "δ2R=dL/dA3=W3@δ3", 2 * h2 * o * n),
        row("Hidden2", "A3=W3@A2R", 2 * h2 * o * n, "dL/dW3=δ3@A2R", 2 * h2 * o * n),
        row("ReLU", "A3R=ReLU(A3)", o * n, "δ3=dδ3R/dA3", o * n),
        Row("Loss", "L=loss(A3R,Y)", o * n, "δ3R=dL/dA3R", o * n, loss.forward, loss.backward),
        row("Update", "", None, "W+=lr*δW", update),
    )
