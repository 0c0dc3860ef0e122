"""Amounts: what a counter reports above or below the theory for one operation, as formulas of shapes.

Every amount takes the operation's record and the class of the module that it ran in ("ReLU"; "AlexNet" where
the model itself called a function), and gives FLOP: MACs are doubled here.

Letters: x the operation's input, w its weight, out its output, N the batch (x's first size), g the groups,
|x| the elements of x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from measurements.records import OpRecord, Shape

Amount = Callable[[OpRecord, str], int]
"""FLOP of one operation that ran in a module of that class."""


# What the formulas read from a record.


def _tensor(record: OpRecord, place: int) -> Shape:
    """The tensor that is the operation's argument number `place`."""
    return cast("Shape", record.arguments[place])


def _given(record: OpRecord, place: int) -> bool:
    """Whether the optional tensor number `place` was given."""
    return record.arguments[place] is not None


def _averages_all(record: OpRecord) -> bool:
    """Whether this mean is adaptive average pooling to 1 x 1: ATen's mean of the dimensions -1 and -2."""
    return len(record.arguments) > 2 and record.arguments[1:3] == ((-1, -2), True)


# Amounts made of others.


def only_in(kind: str, amount: Amount) -> Amount:
    """The amount in a module of this class, 0 elsewhere: packages that hook modules see no functions."""

    def in_module(record: OpRecord, found: str) -> int:
        return amount(record, found) if found == kind else 0

    in_module.__name__ = f"{amount.__name__}_in_{kind}"
    return in_module


def not_in(kind: str, amount: Amount) -> Amount:
    """The amount everywhere but in a module of this class."""

    def outside(record: OpRecord, found: str) -> int:
        return 0 if found == kind else amount(record, found)

    outside.__name__ = f"{amount.__name__}_not_in_{kind}"
    return outside


def times_batch(amount: Amount) -> Amount:
    """N times the amount: counted for the whole batch, in a report for one sample."""

    def of_all(record: OpRecord, kind: str) -> int:
        return _tensor(record, 0)[0] * amount(record, kind)

    of_all.__name__ = f"{amount.__name__}_of_all"
    return of_all


def if_pooling(amount: Amount) -> Amount:
    """The amount where the mean is adaptive average pooling to 1 x 1."""

    def pooling(record: OpRecord, kind: str) -> int:
        return amount(record, kind) if _averages_all(record) else 0

    pooling.__name__ = f"{amount.__name__}_if_pooling"
    return pooling


# By elements.


def macs_in(record: OpRecord, kind: str) -> int:
    """1 MAC for each element of x: 2·|x|."""
    return 2 * _tensor(record, 0).numel


def flop_in(record: OpRecord, kind: str) -> int:
    """1 FLOP for each element of the first argument, whatever it is broadcast to: |x|."""
    first = record.arguments[0]
    return first.numel if isinstance(first, Shape) else 0


def macs_out(record: OpRecord, kind: str) -> int:
    """1 MAC for each element of the output: 2·|out|."""
    return 2 * record.outputs[0].numel


def two_macs_out(record: OpRecord, kind: str) -> int:
    """2 MACs for each element of the output: 4·|out|."""
    return 4 * record.outputs[0].numel


# By layers.


def missed(record: OpRecord, kind: str) -> int:
    """All of the operation's contraction, which counts 0."""
    return -record.contraction


def convolution_bias(record: OpRecord, kind: str) -> int:
    """1 MAC for each output where there is a bias: 2·|out|."""
    return macs_out(record, kind) if _given(record, 2) else 0


def bias_once(record: OpRecord, kind: str) -> int:
    """1 MAC for each number of the bias, whatever the batch: 2·|b|."""
    return 2 * record.outputs[0][-1]


def batch_norm_by_mode(record: OpRecord, kind: str) -> int:
    """MACs for each element of x: 5 in training, 4 without weight; in evaluation 2, 1 without weight."""
    training, affine = bool(record.arguments[5]), _given(record, 1)
    return (4 * training + affine if training else 1 + affine) * macs_in(record, kind)


def batch_norm(record: OpRecord, kind: str) -> int:
    """2 MACs for each element of x, 1 without weight, in either mode."""
    return (1 + _given(record, 1)) * macs_in(record, kind)


def batch_norm_twice(record: OpRecord, kind: str) -> int:
    """4 MACs for each element of x, 2 without weight, in either mode."""
    return 2 * batch_norm(record, kind)


def batch_norm_if_affine(record: OpRecord, kind: str) -> int:
    """1 MAC for each element of x where there is a weight."""
    return macs_in(record, kind) if _given(record, 1) else 0


def batch_norm_parameters(record: OpRecord, kind: str) -> int:
    """1 MAC for each parameter and sample: 2·N·(|w| + |b|)."""
    parameters = [_tensor(record, place).numel for place in (1, 2) if _given(record, place)]
    return 2 * _tensor(record, 0)[0] * sum(parameters)


def window_less_one(record: OpRecord, kind: str) -> int:
    """A window of K elements takes K - 1 MACs: 2·(K - 1)·|out|."""
    window = cast("tuple[int, ...]", record.arguments[1])
    taps = window[0] ** 2 if len(window) == 1 else math.prod(window)
    return (taps - 1) * macs_out(record, kind)


def image_for_each_out(record: OpRecord, kind: str) -> int:
    """The whole image for each element of the output: 2·H·W·|out|."""
    return math.prod(_tensor(record, 0)[-2:]) * macs_out(record, kind)


def average_by_ratio(record: OpRecord, kind: str) -> int:
    """For each output one MAC, and H/P·W/Q for its window of an H x W image that becomes P x Q.

    In double precision, its last bit included, as the package computes it.
    """
    x, out = _tensor(record, 0), record.outputs[0]
    window = (x[-2] / out[-2]) * (x[-1] / out[-1])
    return 2 * int((window + 1) * out.numel)


def average_by_windows(record: OpRecord, kind: str) -> int:
    """For each output one MAC, and one for each element of its window; windows overlap where P divides not H.

    Window j of P on H elements: from floor(j·H / P) to ceil((j + 1)·H / P).
    """
    x, out = _tensor(record, 0), record.outputs[0]
    sizes = [sum(-(-(j + 1) * h // p) - j * h // p for j in range(p)) for h, p in zip(x, out, strict=True)]
    return 2 * (math.prod(sizes) + out.numel)


def weight_gradient_of_all_groups(record: OpRecord, kind: str) -> int:
    """The weight gradient g - 1 times more: (g - 1) · 2·N·positions·|w|; 0 where the weight needs none.

    The theory asks for 2·N·positions·|w|, as forward does; w has C/g inputs for each output, so that |w| is
    divided by g. positions: the spatial sizes of the output, of the input where the convolution is
    transposed. Hence 1 + g instead of 2 times forward, and g instead of 1 for a first layer, whose input
    needs no gradient.
    """
    out, x, w = (_tensor(record, place) for place in range(3))
    transposed, groups, wanted = record.arguments[7], cast("int", record.arguments[9]), record.arguments[10]
    if not cast("tuple[bool, ...]", wanted)[1]:
        return 0
    positions = math.prod((x if transposed else out)[2:])
    return (groups - 1) * 2 * x[0] * positions * w.numel
