"""Who is right on the cases that some counter was reported to get wrong.

Every counter counts every case; ours has to be right on all. What the others say is published in
`docs/results/scoreboard.md`; a change of it, with the versions that were measured there, is a failure. Cells
are saved as they arrive; at the end of a run they become a page of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from measurements import scoreboard
from measurements.counters import COUNTERS, Counter, limit
from measurements.records import Counted, MeasurementError, Phase
from measurements.scoreboard import Cell
from tests.cases import CASES, Case

pytestmark = [
    pytest.mark.experiment("A14"),
    pytest.mark.counters,
    pytest.mark.filterwarnings("ignore"),  # compilers, quantization and nested tensors warn by the dozen
]

OURS = "dispatch"
OTHERS = tuple(
    name for name in COUNTERS if name not in (OURS, "closed_form")
)  # that one sees layers, no code
LIMIT = 60.0
"""Seconds that a counter may take for one case."""

PAGE = Path(__file__).parents[1] / "docs" / "results" / scoreboard.TSV
RENEW = (
    "if so it shall be: pytest --experiment A14 --run NAME, then copy runs/NAME/scoreboard.* to docs/results/"
)


@pytest.mark.theory
@pytest.mark.parametrize("counter", [OURS], indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_ours_is_right(case: str, counter: Counter, record: Callable[..., None]) -> None:
    """Forward, backward and update, to the last FLOP."""
    cell = measured(available(case), counter)
    record(scoreboard.KIND, **scoreboard.columns(cell))

    assert cell.verdict == scoreboard.RIGHT, cell.reason or f"{case}: {cell.text()}, see {CASES[case].source}"


@pytest.mark.parametrize("counter", OTHERS, indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_another_counter_says_what_is_published(
    case: str, counter: Counter, record: Callable[..., None]
) -> None:
    """Right, wrong by as much, or unable to run, as the page has it that was measured with these versions."""
    cell = measured(available(case), counter)
    record(scoreboard.KIND, **scoreboard.columns(cell))

    page = scoreboard.published(PAGE)
    if page.speaks_of(cell):
        before = page.cells.get((case, counter.name), "nothing")
        assert cell.text() == before, (
            f"{case} by {counter.name}: {cell.text()} ({cell.reason or cell.verdict}), "
            f"published in {PAGE.name}: {before}; {RENEW}"
        )


def available(name: str) -> Case:
    """The case, or a skip that says what it lacks here."""
    if reason := CASES[name].why_not():
        pytest.skip(reason)
    return CASES[name]


def measured(case: Case, counter: Counter) -> Cell:
    """What the counter says of the case; whatever it does instead becomes the reason why it cannot run."""
    forward = backward = reason = None
    sees_backward = Phase.BACKWARD in counter.phases
    if case.no_model and not sees_backward:
        reason = f"it counts a model's forward; this is {case.no_model}"
    else:
        try:
            with limit.limited(counter.name, LIMIT), case.ready():
                work = case.count() if counter.name == OURS else counter(case.step())
            forward = said(work, case)
            backward = work.contraction.backward if sees_backward else None
        except (Exception, SystemExit) as error:
            reason = sentence(error)
    return Cell(
        case=case.name,
        group=case.kind,
        counter=counter.name,
        right_forward=case.forward + (case.update or 0),
        right_backward=case.backward,
        forward=forward,
        backward=backward,
        reason=reason,
        note=note(case),
        setting=scoreboard.setting(counter.package, counter.version()),
    )


def said(work: object, case: Case) -> int:
    """FLOP of the forward pass, an update in it included.

    Raises: TypeError where the counter gave something else than work.
    """
    if not isinstance(work, Counted):
        raise TypeError(f"it returned {type(work).__name__}")
    return (work.forward if case.all_work else work.contraction.forward) + work.contraction.update


def note(case: Case) -> str:
    """What is odd about the case."""
    if case.all_work:
        return "no contraction: forward is all work, a published leading term"
    return f"{case.no_model}, whose products stand under forward" if case.update is not None else ""


def sentence(error: BaseException) -> str:
    """An error in one line, the same in every run."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    said = first if isinstance(error, MeasurementError) else f"{type(error).__name__}: {first}"
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", said)[:300]
