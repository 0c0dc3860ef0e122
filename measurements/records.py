"""What was counted: frozen rows, and the sums over them.

Units: FLOP are floating-point operations, integers, exact; a multiply-add is 2. Bytes are bytes.
A count is what the mathematics asks for. Work that an execution does again (activation checkpointing, the
scores that a fused attention backward recomputes) stands beside it as `recomputed` and is in no other sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class MeasurementError(ValueError):
    """Something that cannot be measured as it was given: one sentence that names what to change."""


class Phase(StrEnum):
    """The part of a training step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Shape(tuple[int, ...]):
    """The sizes of a tensor, and the little else that a formula may ask of it.

    dtype: torch's name without the module ("float32").
    layout: "strided", "sparse_coo", "sparse_csr", ….
    stored: elements stored; of a sparse tensor its non-zeros (times the sizes of its dense part), else
    `numel`.
    """

    dtype: str
    layout: str
    stored: int

    def __new__(
        cls, sizes: Iterable[int], dtype: str = "float32", layout: str = "strided", stored: int | None = None
    ) -> Shape:
        """Sizes from any iterable of integers."""
        self = super().__new__(cls, sizes)
        self.dtype = dtype
        self.layout = layout
        self.stored = math.prod(self) if stored is None else stored
        return self

    @property
    def numel(self) -> int:
        """Elements, counted densely."""
        return math.prod(self)

    @property
    def is_complex(self) -> bool:
        """Whether an element is a complex number."""
        return self.dtype.startswith("complex")

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on an element is floating-point (real or complex)."""
        return self.dtype.startswith(("float", "bfloat", "complex"))


class OpRecord(NamedTuple):
    """One operation that ran, or one row of another package's counter.

    op: the operator's name without overload ("aten.convolution_backward").
    module: where it ran, from the class of the outermost module on ("ResNet.layer1.0.conv1"); "" outside of
    all.
    arguments: the call, each tensor as its Shape. outputs: the Shapes of what came back.
    flop: all work. contraction: the part of it that is contractions (a counter that cannot tell: all of it).
    recomputed, recomputed_contraction: work that was done again, in none of the above.
    read, written: bytes, every tensor once.
    """

    phase: Phase
    op: str
    module: str = ""
    arguments: tuple[object, ...] = ()
    outputs: tuple[Shape, ...] = ()
    flop: int = 0
    contraction: int = 0
    recomputed: int = 0
    recomputed_contraction: int = 0
    read: int = 0
    written: int = 0

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The Shapes of all tensors that the operation was given, lists of tensors flattened."""
        return tuple(shapes_in(self.arguments))

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def shapes_in(values: Iterable[object]) -> Iterable[Shape]:
    """The Shapes among nested arguments, in order."""
    for value in values:
        if isinstance(value, Shape):
            yield value
        elif isinstance(value, tuple | list):
            yield from shapes_in(value)


@dataclass(frozen=True, slots=True)
class Flop:
    """FLOP of one training step by phase; recomputed is in no other sum."""

    forward: int = 0
    backward: int = 0
    update: int = 0
    recomputed: int = 0

    @property
    def total(self) -> int:
        """The sum of forward, backward and update."""
        return self.forward + self.backward + self.update


class Counted:
    """The sums over OpRecords. Work is the frozen kind; a live one adds records while code runs."""

    @property
    def records(self) -> tuple[OpRecord, ...]:
        """One OpRecord for each executed operation, in the order in which they ran."""
        raise NotImplementedError

    @property
    def all_work(self) -> Flop:
        """FLOP of contractions and element-wise work."""
        return _sum(self.records, lambda record: record.flop, lambda record: record.recomputed)

    @property
    def contraction(self) -> Flop:
        """FLOP of the contractions alone."""
        return _sum(
            self.records, lambda record: record.contraction, lambda record: record.recomputed_contraction
        )

    @property
    def forward(self) -> int:
        """FLOP of the forward pass, all work."""
        return self.all_work.forward

    @property
    def backward(self) -> int:
        """FLOP of the backward pass, all work."""
        return self.all_work.backward

    @property
    def update(self) -> int:
        """FLOP of the weight update, all work."""
        return self.all_work.update

    @property
    def recomputed(self) -> int:
        """FLOP done again, in none of the other sums."""
        return self.all_work.recomputed

    @property
    def total(self) -> int:
        """FLOP of forward, backward and update, all work."""
        return self.all_work.total

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(record.bytes for record in self.records)

    def by_op(self) -> dict[str, Work]:
        """The same work, grouped by operator, in the order of first appearance."""
        return self._grouped(lambda record: record.op)

    def by_module(self) -> dict[str, Work]:
        """The same work, grouped by the innermost module that it ran in ("" outside of all modules)."""
        return self._grouped(lambda record: record.module)

    def by_phase(self) -> dict[str, Work]:
        """The same work, grouped by phase; all three phases are there, also an empty one."""
        groups = self._grouped(lambda record: record.phase)
        return {phase: groups.get(phase, Work()) for phase in Phase}

    def _grouped(self, key: Callable[[OpRecord], str]) -> dict[str, Work]:
        groups: dict[str, list[OpRecord]] = {}
        for record in self.records:
            groups.setdefault(key(record), []).append(record)
        return {name: Work(tuple(records)) for name, records in groups.items()}


@dataclass(frozen=True, slots=True, repr=False)
class Work(Counted):
    """What a training step, or any other code, cost: frozen records and their sums."""

    records: tuple[OpRecord, ...] = ()

    def __repr__(self) -> str:
        """All work by phase."""
        parts = ", ".join(f"{phase}={getattr(self, phase):,}" for phase in Phase)
        return f"<Work {parts}, recomputed={self.recomputed:,}: {len(self.records)} ops>"


def _sum(
    records: Iterable[OpRecord], flop: Callable[[OpRecord], int], again: Callable[[OpRecord], int]
) -> Flop:
    """FLOP by phase."""
    sums = dict.fromkeys(Phase, 0)
    recomputed = 0
    for record in records:
        sums[record.phase] += flop(record)
        recomputed += again(record)
    return Flop(sums[Phase.FORWARD], sums[Phase.BACKWARD], sums[Phase.UPDATE], recomputed)


@dataclass(frozen=True, slots=True)
class Layer:
    """One call of one layer, with the shapes that it saw and the gradients that it owes.

    name: as in OpRecord.module. kind: the class name in torch.nn ("Conv2d", "Linear", "ConvTranspose1d",
    "LSTM", …).
    x, weight, out: sizes. groups: of a convolution, else 1.
    input_needs_gradient, weight_needs_gradient: whether backward must produce that gradient.
    settings: what else the kind needs, as (name, value) pairs.
    """

    name: str
    kind: str
    x: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    groups: int = 1
    bias: bool = False
    input_needs_gradient: bool = False
    weight_needs_gradient: bool = True
    settings: tuple[tuple[str, object], ...] = ()
