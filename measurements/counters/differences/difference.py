"""One explained difference, the versions that it holds for, and several of one package written shortly."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from measurements.counters.differences.amounts import Amount
from measurements.records import Phase


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a counter differs from the theory.

    op: as in OpRecord.op of the dispatch counter on the same step. amount: FLOP of one such operation.
    cause: one sentence. source: where in the package's code it stands, or where it was reported.
    versions: the package and the range that this was read and measured in ("torch>=2.7,<3").
    """

    counter: str
    phase: Phase
    op: str
    amount: Amount
    cause: str
    source: str
    versions: str

    @property
    def package(self) -> str:
        """The distribution whose version decides."""
        return re.split(r"[<>=!]", self.versions, maxsplit=1)[0]


COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def holds(row: Difference, installed: str) -> bool:
    """Whether the installed version is in the row's range."""
    for condition in row.versions.removeprefix(row.package).split(","):
        match = re.fullmatch(r"([<>=!]+)([\w.+]+)", condition.strip())
        if match is None or match[1] not in COMPARE:
            raise ValueError(f"{row.versions!r} names no range of versions; write it like 'torch>=2.7,<3'")
        if not COMPARE[match[1]](_numbers(installed), _numbers(match[2])):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without its local part and last zeros: "0.1.5.post2022" is 0, 1, 5, 2022."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def rows(
    counters: str, versions: str, phase: Phase, *given: tuple[str, Amount, str, str]
) -> tuple[Difference, ...]:
    """Rows (op, amount, cause, source) of each of the counters, whose names are separated by blanks.

    An op that stands for several is written aten.{relu,relu_}.
    """
    return tuple(
        Difference(counter, phase, op, amount, cause, source, versions)
        for counter in counters.split()
        for pattern, amount, cause, source in given
        for op in _ops(pattern)
    )


def _ops(pattern: str) -> list[str]:
    """The operators of a pattern: aten.{relu,relu_} is aten.relu and aten.relu_."""
    before, brace, names = pattern.partition("{")
    return [before + name for name in names.rstrip("}").split(",")] if brace else [pattern]
