"""The weight update: FLOP per parameter of each optimizer in its steady state."""

from __future__ import annotations

from dataclasses import dataclass


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
