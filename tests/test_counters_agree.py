"""Does each FLOP counter agree with the theory? Where not: by exactly how much, and why.

Theory: the closed form, from layers and shapes. What a counter reports beyond it is a sum of rows in
`measurements/counters/differences/`, each a formula of the shapes of one kind of operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from measurements.counters import COUNTERS
from measurements.counters.differences import explained
from measurements.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.counters import Counter
    from measurements.counters.differences import Seen
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = pytest.mark.experiment("A1")

OTHERS = tuple(name for name, row in COUNTERS.items() if row.package)


def phase_of(flop: Any, phase: Phase) -> int:
    """FLOP of one phase."""
    return int(getattr(flop, phase))


@pytest.fixture
def theory(closed: Counted, dispatched: Counted) -> Counted:
    """The closed form; skipped for a model whose products are not all in layers: there it is no theory."""
    outside = outside_layers(closed, dispatched)
    if outside:
        more = f" and {len(outside) - 3} more" if len(outside) > 3 else ""
        found = ", ".join(outside[:3]) + more
        pytest.skip(f"needs every product in a layer that the closed form knows; has {found}")
    return closed


def outside_layers(closed: Counted, dispatched: Counted) -> list[str]:
    """Products that ran in a module of which the closed form has no layer."""
    known = {record.module for record in closed.records}
    return sorted(
        {
            f"{record.op} in {record.module or 'no module'}"
            for record in dispatched.records
            if record.contraction and record.phase == Phase.FORWARD and not inside(record.module, known)
        }
    )


def inside(module: str, layers: set[str]) -> bool:
    """Whether the module is one of the layers, or a part of one."""
    parts = module.split(".")
    return any(".".join(parts[:n]) in layers for n in range(1, len(parts) + 1))


@pytest.mark.theory
@pytest.mark.axes(counter=("dispatch",))
def test_what_runs_is_what_the_closed_form_says(
    theory: Counted, dispatched: Counted, counter: Counter, record_work: Callable[..., Counted]
) -> None:
    """Forward and backward, operation by operation against layer by layer."""
    work = record_work(dispatched)

    assert work.contraction.forward == theory.contraction.forward
    assert work.contraction.backward == theory.contraction.backward


@pytest.mark.counters
@pytest.mark.axes(counter=OTHERS)
def test_a_counter_is_the_theory_and_what_explains_the_rest(
    theory: Counted,
    seen: Seen,
    step: Step,
    counter: Counter,
    record_work: Callable[..., Counted],
) -> None:
    """To the last FLOP, in every phase that the counter sees."""
    work = record_work(counter(step)).contraction

    for phase in counter.phases:
        rows = explained(counter.name, phase, seen)
        left = phase_of(work, phase) - phase_of(theory.contraction, phase) - sum(amount for _, amount in rows)
        said = [f"{row.op}: {amount:+,} FLOP, {row.cause}" for row, amount in rows]
        assert left == 0, f"{counter.name} {phase}: {left:+,} FLOP are not explained by {said or 'any row'}"
