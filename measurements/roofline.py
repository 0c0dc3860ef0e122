"""The roofline: the least time of every operation on a device, and the bound of utilization that follows.

An operation does W floating-point operations and moves B bytes. A device does at most P FLOP and moves at
most b bytes in a second, at best both at once, so that the operation takes t >= max(W / P, B / b). Operations
run one after the other. With C the contraction FLOP of forward and backward, utilization of the whole is

    C / (P · Σ t)  <=  C / (P · Σ max(W / P, B / b))  <=  1

W is all that the operation executes: its contractions, its element-wise work and what it does again; each
takes its time on units that do no more than P. C is the contractions alone, since that is what utilization
counts; it is a part of W, hence the 1. (With the contractions as W, too, the bounds of the studies'
architectures on a P100 rise by 0.0003 at most: element-wise work is slow because of its bytes.)
B is each tensor that the operation was given, read once, and each that it returned, written once; one that it
changes in place is read and written. So the bound is that of these operations as they ran, and holds where

- nothing is fused: a fused kernel leaves out the bytes between its parts;
- convolutions multiply as often as they are counted: Winograd and FFT multiply less;
- tensors are larger than the device's cache, as at usual batch sizes.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009, doi:10.1145/1498765.1498785
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from measurements.records import MeasurementError, OpRecord, Phase


@dataclass(frozen=True, slots=True)
class Roof:
    """What a device can do at most: FLOP/s in one dtype, and bytes/s of its memory."""

    flop_per_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        """Refuses what is no rate."""
        for name in ("flop_per_s", "bytes_per_s"):
            rate = getattr(self, name)
            if not (math.isfinite(rate) and rate > 0):
                raise MeasurementError(f"{name} is {rate}; give a rate above 0")

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on arithmetic takes longer than moving the bytes."""
        return self.flop_per_s / self.bytes_per_s

    def arithmetic(self, record: OpRecord) -> float:
        """Least seconds of what the operation executes."""
        return (record.flop + record.recomputed) / self.flop_per_s

    def memory(self, record: OpRecord) -> float:
        """Least seconds of what the operation moves."""
        return record.bytes / self.bytes_per_s

    def seconds(self, record: OpRecord) -> float:
        """Least seconds of the operation."""
        return max(self.arithmetic(record), self.memory(record))


@dataclass(frozen=True, slots=True)
class Part:
    """Some operations together.

    runs: how many. flop: executed, also what is done again. seconds: least time.
    memory_seconds: the part of it in which the bytes, not the arithmetic, set the time.
    """

    name: str
    runs: int
    flop: int
    bytes: int
    seconds: float
    memory_seconds: float

    @property
    def intensity(self) -> float | None:
        """FLOP/byte; None where nothing is moved."""
        return self.flop / self.bytes if self.bytes else None

    @property
    def bound_by(self) -> str:
        """What sets most of the time: "arithmetic" or "memory"."""
        return "memory" if 2 * self.memory_seconds > self.seconds else "arithmetic"


def least_seconds(records: Iterable[OpRecord], roof: Roof) -> float:
    """Least time of the operations, one after the other."""
    return math.fsum(roof.seconds(record) for record in records)


def model_flop(records: Iterable[OpRecord]) -> int:
    """Contraction FLOP of forward and backward: the numerator of model FLOP utilization."""
    return sum(record.contraction for record in records if record.phase != Phase.UPDATE)


def bound(records: Iterable[OpRecord], roof: Roof) -> float:
    """Upper bound of utilization, 0…1: contraction FLOP of forward and backward over peak x least time.

    The time is that of all the records: give those of the phases that are timed, also an update's.
    Raises: MeasurementError where no operation takes time.
    """
    records = tuple(records)
    seconds = least_seconds(records, roof)
    if not seconds:
        raise MeasurementError("no operation works or moves bytes: there is no utilization to bound")
    return model_flop(records) / roof.flop_per_s / seconds


def parts(
    records: Iterable[OpRecord], roof: Roof, key: Callable[[OpRecord], str] = lambda record: record.op
) -> tuple[Part, ...]:
    """The operations by that key, by default the operator's name; what takes longest is first."""
    groups: dict[str, list[OpRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    found = [part(name, group, roof) for name, group in groups.items()]
    return tuple(sorted(found, key=lambda part: -part.seconds))


def part(name: str, records: Iterable[OpRecord], roof: Roof) -> Part:
    """Those operations as one row."""
    records = tuple(records)
    by_memory = [record for record in records if roof.memory(record) > roof.arithmetic(record)]
    return Part(
        name,
        len(records),
        sum(record.flop + record.recomputed for record in records),
        sum(record.bytes for record in records),
        least_seconds(records, roof),
        least_seconds(by_memory, roof),
    )
