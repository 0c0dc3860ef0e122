"""Where a counter differs: its own rows against what the theory and the explained differences say, by place.

A place is a module, where the counter names modules, else an operation ("convolution").
"""

from __future__ import annotations

import re
from collections import Counter as Sum
from collections.abc import Mapping

from measurements.counters.differences import DIFFERENCES, Seen
from measurements.counters.differences.difference import Difference
from measurements.records import Counted, OpRecord, Phase

SAME = {"conv2d": "convolution", "linear": "addmm", "native_batch_norm": "batch_norm"}
"""Operations that a counter sees under another name than ours."""


def place_of(record: OpRecord, by_module: bool) -> str:
    """The record's module, or its operation."""
    return record.module if by_module else operation(record.op)


def reported(work: Counted, phase: Phase, by_module: bool) -> dict[str, int]:
    """FLOP of the counter's rows in this phase by place."""
    sums: Sum[str] = Sum()
    for record in work.records:
        if record.phase == phase:
            sums[place_of(record, by_module)] += record.contraction
    return dict(sums)


def expected(
    counter: str, phase: Phase, what: Seen, rows: Mapping[Difference, int], by_module: bool
) -> dict[str, int]:
    """FLOP by place that the theory and the rows which hold here say the counter reports."""
    sums: Sum[str] = Sum()
    for record in what.records:
        if record.phase == phase:
            sums[place_of(record, by_module)] += record.contraction + beyond(record, counter, what, rows)
    return {place: flop for place, flop in sums.items() if flop}


def beyond(record: OpRecord, counter: str, what: Seen, rows: Mapping[Difference, int]) -> int:
    """FLOP of one operation that the rows say the counter adds."""
    kind = what.kinds.get(record.module, "")
    return sum(
        row.amount(record, kind)
        for row in DIFFERENCES
        if row in rows and (row.counter, row.op, row.phase) == (counter, record.op, record.phase)
    )


def operation(op: str) -> str:
    """An operator's name without its package, overload and the mark of in-place: "aten::mul_" is "mul"."""
    name = re.split(r"::|\.", op.removeprefix("aten.").removeprefix("aten::"))[0].strip("_")
    return SAME.get(name, name)


def odd_places(
    counter: str, work: Counted, phase: Phase, what: Seen, rows: Mapping[Difference, int]
) -> list[str]:
    """A sentence for each place where the counter's own rows are not what is expected, the largest first."""
    by_module = any(record.module in what.kinds for record in work.records if record.phase == phase)
    said = reported(work, phase, by_module)
    wanted = expected(counter, phase, what, rows, by_module)
    gaps = {place: said.get(place, 0) - wanted.get(place, 0) for place in {**wanted, **said}}
    ran: dict[str, set[str]] = {}
    for record in what.records:
        if record.phase == phase and record.flop:
            ran.setdefault(place_of(record, by_module), set()).add(record.op)
    largest = sorted((place for place in gaps if gaps[place]), key=lambda place: -abs(gaps[place]))
    return [
        f"{place or 'no module'} ({' '.join(sorted(ran.get(place, ())))}): {gaps[place]:+,}"
        for place in largest
    ]
