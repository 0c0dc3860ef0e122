"""Does each FLOP counter agree with the theory? Where not: by exactly how much, and why.

Theory: the closed form, from layers and shapes. What a counter reports beyond it is a sum of rows in
`measurements/counters/differences/`, each a formula of the shapes of one kind of operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from measurements.agreement import MOST
from measurements.commands.matrix import studied
from measurements.counters import COUNTERS, CounterError
from measurements.counters.differences import explained
from measurements.counters.differences.places import odd_places
from measurements.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.counters import Counter
    from measurements.counters.differences import Seen
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = pytest.mark.experiment("A1")

STUDIED = studied()
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


@pytest.fixture
def exact(closed: Counted, dispatched: Counted) -> Counted:
    """The closed form; for a model whose products are not all in layers what the dispatch counter sees."""
    return dispatched if outside_layers(closed, dispatched) else closed


@pytest.mark.counters
@pytest.mark.axes(counter=OTHERS)
def test_a_counter_is_the_theory_and_what_explains_the_rest(
    exact: Counted,
    seen: Seen,
    step: Step,
    arch: str,
    batch: int,
    counter: Counter,
    once: Callable[..., Counted],
    record: Callable[..., None],
    record_work: Callable[..., Counted],
) -> None:
    """To the last FLOP, in every phase that the counter sees; else the places where it is not."""
    axes = {"arch": arch, "batch": batch}
    try:
        work = record_work(once(counter.name, lambda: counter(step)))
    except CounterError as error:
        if arch in STUDIED:
            raise
        for phase in counter.phases:
            record("agreement", axes=axes, counter=counter.name, phase=phase, reason=str(error))
        pytest.skip(str(error))
    found = [held(counter, phase, work, exact, seen) for phase in counter.phases]
    for row in found:
        record("agreement", axes=axes, **row)

    for row in found:
        assert row["left"] == 0, (
            f"{counter.name} {row['phase']}: {row['left']:+,} FLOP are not explained; "
            f"they are in {'; '.join(row['odd'][:MOST]) or 'no single place'}"
        )


def held(counter: Counter, phase: Phase, work: Counted, exact: Counted, seen: Seen) -> dict[str, Any]:
    """One phase of a counter held against the theory: what is explained, what is left, and where that is."""
    theory, flop = phase_of(exact.contraction, phase), phase_of(work.contraction, phase)
    rows = dict(explained(counter.name, phase, seen))
    left = flop - theory - sum(rows.values())
    return {
        "counter": counter.name,
        "phase": phase,
        "flop": flop,
        "theory": theory,
        "left": left,
        "causes": [f"{row.op}: {amount:+,}, {row.cause}" for row, amount in rows.items()],
        "odd": odd_places(counter.name, work, phase, seen, rows) if left else [],
    }
