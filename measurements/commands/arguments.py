"""What a command line says: values that argparse understands, errors in one sentence. Imports no torch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import models
from measurements.options import among, whole
from measurements.theory import UPDATE_COST

T = TypeVar("T")

NO_UPDATE = "none"
OPTIMIZERS = (NO_UPDATE, *UPDATE_COST, "adafactor", "lbfgs", "muon")
"""Names that --optimizer takes: no update, a known cost for each parameter, and three of other costs."""


class Parser(argparse.ArgumentParser):
    """A parser whose error is one sentence, without the page of usage."""

    def __init__(self, **settings: Any) -> None:
        """No abbreviations: they would change their meaning with every new option."""
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        """Ends the program with code 2."""
        sentence = re.sub(r"^argument ([^:]+):", lambda match: f"{match[1].split('/')[0]}:", message)
        self.exit(2, f"{self.prog}: {sentence}; see {self.prog} --help\n")


def value(understand: Callable[[str], T]) -> Callable[[str], T]:
    """A type for argparse: its error is the sentence of the function's ValueError."""

    def typed(text: str) -> T:
        try:
            return understand(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


number = value(whole)


def optimizer(text: str) -> str | None:
    """An optimizer's name; None where there shall be no update."""
    name = among("optimizer", text, OPTIMIZERS)
    return None if name == NO_UPDATE else name


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """The sizes of one sample of each input: "3x64x64", or for two inputs "3x64x64,1x64x64"."""
    return tuple(models.parse_shape(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Names in a list "a,b", each once."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if "" in found:
        raise ValueError(f"{text!r} holds an empty name; give names joined by commas")
    return found
