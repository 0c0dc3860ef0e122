"""The scoreboard: what each counter says of each case that some counter was reported to get wrong.

A cell is one counter on one case. Forward and backward are judged apart, each an integer that equals the
right one or does not; a counter that does not see backward is judged on forward. A run's cells are rows of
the kind "scoreboard"; the pages are made of them alone, each whole or not at all.
"""

from __future__ import annotations

import csv
import functools
import io
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path

from measurements import pages
from measurements.runs import read

KIND, TSV, MARKDOWN = "scoreboard", "scoreboard.tsv", "scoreboard.md"
RIGHT, WRONG, CANNOT = "right", "wrong", "cannot run"
EQUAL, NONE = "=", "-"
WORDS = ("kind", "case", "counter")  # columns


@dataclass(frozen=True)
class Cell:
    """One counter on one case, FLOP.

    group: the kind of fault.
    right_backward: None where no backward is meant. forward, backward: what the counter says; None where it
    does not see that phase, or cannot run. reason: why it cannot run. note: what is odd about the case.
    setting: what the numbers depend on, "package==version" with blanks between.
    """

    case: str
    group: str
    counter: str
    right_forward: int
    right_backward: int | None
    forward: int | None
    backward: int | None
    reason: str | None
    note: str
    setting: str

    def judged(self) -> list[tuple[int, int]]:
        """(said, right) of each direction in which the counter is judged."""
        pairs = [(self.forward, self.right_forward), (self.backward, self.right_backward)]
        return [(said, right) for said, right in pairs if said is not None and right is not None]

    @property
    def verdict(self) -> str:
        """RIGHT, WRONG, or CANNOT."""
        if self.forward is None:
            return CANNOT
        return RIGHT if all(said == right for said, right in self.judged()) else WRONG

    def text(self, exact: bool = True) -> str:
        """The verdict as the pages have it: "=", "-", or what it says, forward / backward."""
        if self.verdict != WRONG:
            return EQUAL if self.verdict == RIGHT else NONE
        return " / ".join(_number(said, right, exact) for said, right in self.judged())


def _number(said: int, right: int, exact: bool) -> str:
    """What a counter says beside what is right."""
    if said == right:
        return EQUAL
    times = f"x{_quotient(said, right)}" if right else ""
    if exact:
        return f"{said} ({times})" if times else str(said)
    return times if said and times else f"{said:,}"


def _quotient(said: int, right: int) -> str:
    """Three digits, or as many as it takes not to look like 1."""
    digits = (f"{said / right:.{n}g}" for n in range(3, 18))
    return next((text for text in digits if text != "1"), "1")


@functools.cache
def setting(package: str | None, version: str) -> str:
    """What a counter's numbers depend on: torch, torchvision, the machine's architecture, its own package."""
    found = {name: metadata.version(name) for name in ("torch", "torchvision")}
    found |= {"machine": platform.machine()} | ({package: version} if package else {})
    return " ".join(f"{name}=={text.partition('+')[0]}" for name, text in found.items())


# Pages


def write(folder: Path) -> None:
    """Both pages of the run that is saved in that folder; nothing where it has no cells."""
    if not folder.is_dir():
        return
    cells = saved(read(folder).rows)
    for name, text in ((TSV, as_tsv(cells)), (MARKDOWN, as_markdown(cells))) if cells else ():
        pages.write(folder / name, text)


def saved(rows: Iterable[dict[str, object]]) -> list[Cell]:
    """The cells among a run's rows."""
    names = [field.name for field in fields(Cell)]
    return [Cell(**{name: row[name] for name in names}) for row in rows if row["kind"] == KIND]  # type: ignore[arg-type]


def columns(cell: Cell) -> dict[str, object]:
    """The cell as columns of a row."""
    return {**asdict(cell), "verdict": cell.verdict}


def as_tsv(cells: Sequence[Cell]) -> str:
    """What the numbers depend on, then a line for each case: what is right, and what each counter says."""
    text = io.StringIO()
    text.write(f"# {' '.join(_settings(cells))}\n")
    counters = _counters(cells)
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["case", "right forward", "right backward", *counters])
    for row in _by_case(cells):
        first = next(iter(row.values()))
        right = [first.right_forward, "none" if first.right_backward is None else first.right_backward]
        writer.writerow([first.case, *right, *(row[name].text() if name in row else "" for name in counters)])
    return text.getvalue()


@dataclass(frozen=True)
class Published:
    """A committed page: what its numbers depend on, and the text of each cell by (case, counter)."""

    settings: frozenset[str]
    cells: dict[tuple[str, str], str]

    def speaks_of(self, cell: Cell) -> bool:
        """Whether it was measured with what is installed here."""
        return self.settings.issuperset(cell.setting.split())


@functools.cache
def published(path: Path) -> Published:
    """The page in that file; an empty one where there is none."""
    if not path.is_file():
        return Published(frozenset(), {})
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(lines, delimiter="\t")
    cells = {(row["case"], name): text for row in rows for name, text in row.items() if text}
    return Published(frozenset(head.removeprefix("#").split()), cells)


def lines(rows: Iterable[dict[str, object]], run: str) -> list[str]:
    """What a terminal shows of a run's cells: each counter's score, and where the page is."""
    cells = saved(rows)
    if not cells:
        return []
    head = f"Who is right on the fault cases? Case by case: runs/{run}/{MARKDOWN}"
    return [head, *pages.columns([SCORE, *_scores(cells)])]


SCORE = ("counter", "cases", "forward right", "both right", "wrong", "cannot run")


def _scores(cells: Sequence[Cell]) -> list[list[str]]:
    return [[name, *_score([cell for cell in cells if cell.counter == name])] for name in _counters(cells)]


def as_markdown(cells: Sequence[Cell]) -> str:
    """The summary, every case by every counter, and why some cannot run."""
    counters = _counters(cells)
    summary = pages.table(SCORE, _scores(cells), WORDS)
    lines: list[list[str]] = []
    group = ""
    for row in _by_case(cells):
        first = next(iter(row.values()))
        right = [f"{n:,}" if n is not None else "" for n in (first.right_forward, first.right_backward)]
        said = [row[name].text(exact=False) if name in row else "" for name in counters]
        lines.append([first.group if first.group != group else "", first.case, *right, *said])
        group = first.group
    every = pages.table(["kind", "case", "forward", "backward", *counters], lines, WORDS)
    head = HEAD.format(settings=", ".join(text.replace("==", " ") for text in _settings(cells)))
    return "\n\n".join([head, summary, LEGEND, every, *_footnotes(cells)]) + "\n"


HEAD = """\
# Who is right on the fault cases?

`pytest --experiment A14` redoes this page, in the run's folder. {settings}.

Each case is a small step of a kind that some counter was reported to count wrongly; what is right is worked
out by hand (`tests/cases/`, each with the report it comes from). *Both right*: forward, and backward where
one is meant, to the last FLOP; `–` where the counter does not see backward. *Wrong*: in a direction that it
sees; so a counter may be right in forward and wrong in backward."""

LEGEND = """\
Contraction FLOP of forward and backward; a multiply-add is 2. `=`: right; `x1.02`: wrong, by this factor; a
number: wrong, 0 or where 0 is right; `-`: cannot run. Two of them: forward / backward."""


def _score(cells: Sequence[Cell]) -> list[str]:
    forward = sum(cell.forward == cell.right_forward for cell in cells)
    verdicts = [cell.verdict for cell in cells]
    sees_backward = any(cell.backward is not None for cell in cells)
    both = str(verdicts.count(RIGHT)) if sees_backward else "–"
    return [str(len(cells)), str(forward), both, str(verdicts.count(WRONG)), str(verdicts.count(CANNOT))]


def _footnotes(cells: Sequence[Cell]) -> list[str]:
    """What is odd about cases, then why counters cannot run."""
    notes: dict[str, dict[str, None]] = {}
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        if cell.note:
            notes.setdefault(cell.note, {})[cell.case] = None
        if cell.reason:
            reasons.setdefault((cell.counter, _reason(cell.reason)), {})[cell.case] = None
    counters: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (counter, reason), cases in reasons.items():
        counters.setdefault((tuple(cases), reason), []).append(counter)
    lines = [f"- {_names(cases)}: {note}." for note, cases in notes.items()]
    lines += [
        f"- {_names(cases)} cannot run in {', '.join(by)}: {reason}."
        for (cases, reason), by in counters.items()
    ]
    return ["\n".join(lines)] if lines else []


def _names(cases: Iterable[str]) -> str:
    return ", ".join(f"`{case}`" for case in cases)


def _reason(said: str) -> str:
    """A counter's sentence without what the page says anyway, and without what to change."""
    said = re.sub(r"^(\w+ cannot count \w+: |counter \w+ )", "", said)
    return re.sub(r"[.:]?;? (give inputs that|leave this counter out).*$|[.:;]$", "", said)


def _settings(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(text for cell in cells for text in cell.setting.split()))


def _counters(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.counter for cell in cells))


def _by_case(cells: Sequence[Cell]) -> list[dict[str, Cell]]:
    """The cells of each case by counter, in the order in which the cases came first."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.case, {})[cell.counter] = cell
    return list(rows.values())
