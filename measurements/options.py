"""What a command line says, understood: texts in, values out, one sentence where a text is wrong.

Options go by their names without dashes. Every function raises ValueError with the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import models
from measurements.counters import COUNTERS
from measurements.devices import DTYPES
from measurements.theory import UPDATE_COST
from measurements.utilization import parse_peak

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked for; an empty axis leaves each test its own values."""

    arch: tuple[str, ...] = ()
    batch: tuple[int, ...] = ()
    optimizer: tuple[str, ...] = ()
    counter: tuple[str, ...] = ()
    experiment: tuple[str, ...] = ()
    input_shape: tuple[int, ...] | None = None
    classes: int = 10
    device: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    peak: float | None = None
    rounds: int | None = None
    data: str = "synthetic"
    data_root: str = "data"
    epoch_images: int | None = None
    time_loading: bool = False


DEVICES = ("cpu", "cuda")
DATA = ("synthetic", "cifar10")


def understand(texts: Mapping[str, Sequence[str]]) -> Given:
    """The options, each with its texts in the order in which they were given."""
    classes = one(texts, "classes", whole, 10)
    return Given(
        arch=many(texts, "arch", lambda name: architecture(name, classes)),
        batch=many(texts, "batch", whole),
        optimizer=many(texts, "optimizer", lambda name: among("optimizer", name, UPDATE_COST)),
        counter=many(texts, "counter", lambda name: among("counter", name, COUNTERS)),
        experiment=many(texts, "experiment", str.upper),
        input_shape=one(texts, "input-shape", models.parse_shape, None),
        classes=classes,
        device=many(texts, "device", lambda name: among("device", name, DEVICES)),
        dtype=many(texts, "dtype", lambda name: among("dtype", name, DTYPES)),
        peak=one(texts, "peak", parse_peak, None),
        rounds=one(texts, "rounds", whole, None),
        data=one(texts, "data", lambda name: among("data", name, DATA), "synthetic"),
        data_root=one(texts, "data-root", str, "data"),
        epoch_images=one(texts, "epoch-images", whole, None),
        time_loading="time-loading" in texts,
    )


def many(texts: Mapping[str, Sequence[str]], option: str, value: Callable[[str], T]) -> tuple[T, ...]:
    """The values of an option that takes several, as "a,b" or given again; a repeated value counts once."""
    words = [word.strip() for text in texts.get(option, ()) for word in text.split(",")]
    return tuple(dict.fromkeys(_valued(option, word, value) for word in words))


def one(texts: Mapping[str, Sequence[str]], option: str, value: Callable[[str], T], default: D) -> T | D:
    """The value of an option that takes one, the last that was given."""
    given = texts.get(option)
    return _valued(option, given[-1], value) if given else default


def whole(text: str) -> int:
    """A whole number of 1 or more."""
    if not re.fullmatch("[0-9]+", text) or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def among(what: str, name: str, known: Iterable[str]) -> str:
    """The name, if it is known; else the sentence lists those that are."""
    known = sorted(known)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; have {', '.join(known) or 'none'}")
    return name


def architecture(name: str, classes: int) -> str:
    """The name, if it builds a model; one that is not listed is built to see, on meta; that imports torch."""
    if models.listed(name) is None:
        import torch

        with torch.device("meta"):
            models.build(name, classes)
    return name


def _valued(option: str, text: str, value: Callable[[str], T]) -> T:
    """The value of that text; the sentence about a wrong one names the option."""
    try:
        return value(text)
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from None
