"""The ratio of a whole net, and its four regimes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from measurements.records import Layer
from measurements.theory.contractions import products


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
