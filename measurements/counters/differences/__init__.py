"""Where other packages' counters differ from the theory: for which operation, by how much, and why.

A row's amount is what the counter reports above (+) or below (-) the theory for one such operation of the
step, in FLOP (packages that count MACs are doubled), as a formula of what the operation was given: never a
measured residual. Hence, for every counter, phase and model,

    counted = theory + sum of amount(record) over the dispatch counter's records of the step

A package that switches the model to evaluation is explained by the records of the step in that mode.

Every row holds for the versions that it names. Add a row to the file of its kind of counter and its operation
to the witness in tests/instruments/test_differences.py; a difference that disappears in a newer version fails
there, and the row goes or its range of versions ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from measurements.counters.differences import dispatchers, hooks, traces
from measurements.counters.differences.difference import Difference, holds
from measurements.records import OpRecord, Phase

if TYPE_CHECKING:
    from measurements.step import Step

__all__ = ["DIFFERENCES", "Difference", "Seen", "explained", "holds", "seen"]

DIFFERENCES: tuple[Difference, ...] = (*dispatchers.ROWS, *traces.ROWS, *hooks.ROWS)


@dataclass(frozen=True)
class Seen:
    """What the dispatch counter saw of a step, and the class of each module by its name in the records."""

    records: tuple[OpRecord, ...]
    kinds: Mapping[str, str]


def seen(counter: str, step: Step) -> Seen:
    """What explains a counter on this step: its operations, in evaluation for those that switch to it."""
    from measurements.counters import COUNTERS

    root = type(step.model).__name__
    kinds = {f"{root}.{path}".rstrip("."): type(part).__name__ for path, part in step.model.named_modules()}
    modes = [(part, part.training) for part in step.model.modules()]
    try:
        if COUNTERS[counter].evaluates:
            step.model.eval()
        return Seen(COUNTERS["dispatch"](replace(step, optimizer=None)).records, kinds)
    finally:
        for part, training in modes:
            part.training = training


def explained(counter: str, phase: Phase, what: Seen) -> list[tuple[Difference, int]]:
    """FLOP that the counter reports beyond the theory in this phase, by row; rows that add 0 are left out."""
    by_op: dict[str, list[OpRecord]] = {}
    for record in what.records:
        if record.phase == phase:
            by_op.setdefault(record.op, []).append(record)
    found = []
    for row in DIFFERENCES:
        if (row.counter, row.phase) == (counter, phase) and row.op in by_op and holds(row, _installed(row)):
            amount = sum(row.amount(record, what.kinds.get(record.module, "")) for record in by_op[row.op])
            if amount:
                found.append((row, amount))
    return found


def _installed(row: Difference) -> str:
    """The version of the row's package that its counter uses."""
    from measurements.counters import COUNTERS

    return COUNTERS[row.counter].version()
