"""FLOP of fused optimizers, and the rule for operations on lists of tensors.

Each fused kernel does what the same optimizer runs one operation at a time, so it costs the same for each
parameter.
Source: torch/optim/adam.py, adamw.py, sgd.py, adagrad.py: the single-tensor functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from measurements.formulas.cost import Cost, Formula, elementwise
from measurements.records import Shape


def _update(parameters: Sequence[Shape], units: int) -> Cost:
    return elementwise(units * sum(parameter.numel for parameter in parameters))


def _prelude(maximize: bool, grad_scale: object) -> int:
    """Units before the update: negate the gradient, divide it by its scale."""
    return int(bool(maximize)) + (grad_scale is not None)


def adam(
    parameters: Sequence[Shape], weight_decay: float, amsgrad: bool, maximize: bool, grad_scale: object = None
) -> Cost:
    """FLOP of fused Adam.

    Lerp 3, mul 1, addcmul 3, sqrt 1, div 1, add 1, addcdiv 3 = 13; weight decay 2, amsgrad 1.
    """
    return _update(parameters, 13 + 2 * (weight_decay != 0) + bool(amsgrad) + _prelude(maximize, grad_scale))


def adamw(
    parameters: Sequence[Shape], weight_decay: float, amsgrad: bool, maximize: bool, grad_scale: object = None
) -> Cost:
    """FLOP of fused AdamW: as Adam; its weight decay is one product."""
    return _update(parameters, 13 + (weight_decay != 0) + bool(amsgrad) + _prelude(maximize, grad_scale))


def sgd(
    parameters: Sequence[Shape],
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: object = None,
) -> Cost:
    """FLOP of fused SGD.

    2; weight decay 2; momentum 2 (3 with dampening), its first step a copy; Nesterov 2.
    """
    buffer = 0 if momentum == 0 or is_first_step else 2 + (dampening != 0)
    ahead = 2 if momentum != 0 and nesterov else 0
    return _update(parameters, 2 + 2 * (weight_decay != 0) + buffer + ahead + _prelude(maximize, grad_scale))


def adagrad(
    parameters: Sequence[Shape], weight_decay: float, maximize: bool, grad_scale: object = None
) -> Cost:
    """FLOP of fused Adagrad: addcmul with factor 1 2, sqrt 1, add 1, addcdiv 3 = 7; weight decay 2."""
    return _update(parameters, 7 + 2 * (weight_decay != 0) + _prelude(maximize, grad_scale))


def unscale(gradients: Sequence[Shape]) -> Cost:
    """FLOP of unscaling gradients and looking for infinities: a product and a compare for each element."""
    return _update(gradients, 2)


OPTIMIZERS: dict[str, Formula] = {
    "_fused_adam": adam,
    "_fused_adamw": adamw,
    "_fused_sgd": sgd,
    "_fused_adagrad": adagrad,
    "_amp_foreach_non_finite_check_and_unscale": unscale,
}
