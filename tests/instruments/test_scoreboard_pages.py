"""Verdicts, and the pages that are made of them."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from measurements import scoreboard
from measurements.scoreboard import Cell

CELL = Cell(
    case="grouped",
    group="convolution",
    counter="fvcore",
    right_forward=100,
    right_backward=200,
    forward=100,
    backward=200,
    reason=None,
    note="",
    setting="torch==2 fvcore==1",
)


def cell(**changes: object) -> Cell:
    """A cell that is right in both directions, but for some columns."""
    return dataclasses.replace(CELL, **changes)


@pytest.mark.parametrize(
    ("changes", "verdict", "exact", "short"),
    [
        ({}, "right", "=", "="),
        ({"backward": None}, "right", "=", "="),
        ({"right_backward": None, "backward": 7}, "right", "=", "="),
        ({"backward": 450}, "wrong", "= / 450 (x2.25)", "= / x2.25"),
        ({"forward": 0, "backward": None}, "wrong", "0 (x0)", "0"),
        ({"forward": 3000, "right_forward": 0, "backward": None}, "wrong", "3000", "3,000"),
        ({"forward": 10**9 + 1, "right_forward": 10**9}, "wrong", "1000000001 (x1.000000001) / =", None),
        ({"forward": None, "backward": None, "reason": "it cannot"}, "cannot run", "-", "-"),
    ],
    ids=["right", "forward_only", "none_meant", "backward", "zero", "right_is_zero", "almost", "cannot"],
)
def test_a_verdict_and_how_it_is_written(
    changes: dict[str, object], verdict: str, exact: str, short: str | None
) -> None:
    """A direction that is not seen, or not meant, is not judged; what is almost right does not look right."""
    found = cell(**changes)

    assert found.verdict == verdict
    assert found.text() == exact
    assert short is None or found.text(exact=False) == short


CELLS = [
    cell(counter="dispatch", setting="torch==2"),
    cell(backward=None),
    cell(counter="dispatch", case="stepped", right_backward=None, note="odd", setting="torch==2"),
    cell(
        case="stepped",
        forward=None,
        backward=None,
        right_backward=None,
        note="odd",
        reason="fvcore cannot count X: no; leave this counter out",
    ),
]


def test_a_published_page_is_read_as_it_was_written(tmp_path) -> None:
    """Each cell's text, and whether the page was measured with what a cell was."""
    path = tmp_path / scoreboard.TSV
    path.write_text(scoreboard.as_tsv(CELLS), encoding="utf-8")

    page = scoreboard.published(path)

    assert {(c.case, c.counter): c.text() for c in CELLS}.items() <= page.cells.items()
    assert page.speaks_of(CELLS[1])
    assert not page.speaks_of(cell(setting="torch==2 fvcore==2"))
    assert not scoreboard.published(tmp_path / "none.tsv").speaks_of(CELLS[0])


def test_the_page_sums_up_each_counter_and_says_why_one_cannot_run() -> None:
    """Both right is nothing for a counter that sees forward alone."""
    text = scoreboard.as_markdown(CELLS)

    assert "| dispatch | 2 | 2 | 2 | 0 | 0 |" in text
    assert "| fvcore | 2 | 1 | – | 0 | 1 |" in text
    assert "- `stepped`: odd.\n" in text
    assert "- `stepped` cannot run in fvcore: no.\n" in text


def test_a_run_with_cells_gets_both_pages_and_another_none(tmp_path) -> None:
    """Made of its rows alone; nothing is left of a draft."""
    facts = {"method": 1, "when": "", "command": [], "options": {}, "versions": {}, "device": {}}
    (tmp_path / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    rows = [{"kind": "verdict"}]
    for found in ([], CELLS):
        rows += [{"kind": scoreboard.KIND, **scoreboard.columns(c)} for c in found]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "records.jsonl").write_text(lines, encoding="utf-8")
        before = sorted(path.name for path in tmp_path.iterdir())

        scoreboard.write(tmp_path)

        pages = [scoreboard.MARKDOWN, scoreboard.TSV] if found else []
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, *pages])
    assert scoreboard.published(tmp_path / scoreboard.TSV).cells["grouped", "dispatch"] == "="
    scoreboard.write(tmp_path / "no such run")


class Odd:
    """Something in the place of a counter."""

    def __init__(self, answer: object) -> None:
        """What it does when it is called."""
        self.name, self.phases, self.package, self.answer = "odd", (), None, answer

    def version(self) -> str:
        """No version."""
        return "0"

    def __call__(self, step: object) -> object:
        """Its answer: what that function gives, or does instead."""
        return self.answer()


def leave() -> None:
    """What no counter should do."""
    raise SystemExit("bye")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (leave, "SystemExit: bye"),
        (lambda: None, "TypeError: it returned NoneType"),
    ],
    ids=["raises", "exits", "returns_nothing"],
)
def test_a_counter_that_misbehaves_cannot_run(answer: object, reason: str) -> None:
    """It never ends the run."""
    from tests import test_scoreboard
    from tests.cases import CASES

    found = test_scoreboard.measured(CASES["linear"], Odd(answer))

    assert (found.verdict, found.reason) == (scoreboard.CANNOT, reason)


def test_a_counter_that_hangs_cannot_run(monkeypatch) -> None:
    """It ends in the limit's sentence."""
    from tests import test_scoreboard
    from tests.cases import CASES

    monkeypatch.setattr(test_scoreboard, "LIMIT", 0.05)
    found = test_scoreboard.measured(CASES["linear"], Odd(lambda: time.sleep(5)))

    reason = "odd has no answer after 0.05 seconds; give a smaller step, or leave this counter out"
    assert (found.verdict, found.reason) == (scoreboard.CANNOT, reason)
