"""The table of `measure` as files: CSV with every number exact, Markdown for a README."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from measurements import METHOD, pages
from measurements.commands.matrix import BATCH, OURS, PHASES, THEORY, UPDATES, Cell, Key, Row
from measurements.commands.numbers import NONE, exact, percent, ratio, scaled, signed, to_one
from measurements.counters import COUNTERS
from measurements.records import Phase
from measurements.runs import versions

CSV, MARKDOWN = "measure.csv", "measure.md"


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Both files, each whole or not at all."""
    for name, text in ((CSV, as_csv(rows)), (MARKDOWN, as_markdown(rows))):
        pages.write(folder / name, text)


def as_csv(rows: Sequence[Row]) -> str:
    """A line for each architecture, in FLOP: theory_* by the closed form, else what a counter says."""
    text = io.StringIO()
    lines = [_facts(row) for row in rows]
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _facts(row: Row) -> dict[str, object]:
    facts: dict[str, object] = {
        "arch": row.arch,
        "batch": BATCH,
        "input": "x".join(map(str, row.input_shape)),
        "parameters": row.parameters,
    }
    facts |= {f"theory_{phase}": row.theory(phase) for phase in PHASES}
    facts["theory_backward_to_forward"] = _decimal(row.ratio())
    facts |= {f"theory_with_{update}_to_forward": _decimal(row.ratio(update)) for update in UPDATES}
    facts |= {f"all_work_{phase}": row.all_work(phase) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    for (counter, phase), cell in row.cells.items():
        if counter != THEORY:
            facts[f"{counter}_{phase}"] = cell.reason if cell.flop is None else cell.flop
            facts[f"{counter}_{phase}_difference"] = cell.difference
            facts[f"{counter}_{phase}_explained"] = cell.explained if cell.flop is not None else None
            facts[f"{counter}_{phase}_verdict"] = cell.verdict
    return facts


def _decimal(quotient: Fraction | None) -> str | None:
    return None if quotient is None else f"{float(quotient):.6f}"


# What the screen and the Markdown both show


def others(rows: Sequence[Row]) -> list[Key]:
    """The cells that are held against the theory, as (counter, phase); ours is one column for all phases."""
    return [key for key in (rows[0].cells if rows else ()) if key.counter not in (THEORY, OURS)]


def ours(row: Row) -> list[Cell]:
    """What the dispatch counter says, phase by phase."""
    return [cell for key, cell in row.cells.items() if key.counter == OURS]


def agreement(cells: Iterable[Cell], spell_exactly: bool) -> str:
    """How far they are as the theory says: "=", else the first difference, "!" behind one not explained."""
    odd = next((cell for cell in cells if cell.verdict != "equal"), None)
    if odd is None:
        return "="
    if odd.flop is None:
        return NONE if odd.verdict == "missing" else "failed"
    if odd.difference is None or not odd.theory:
        return f"{scaled(odd.flop)}?"
    said = signed(odd.difference) if spell_exactly else percent(Fraction(odd.difference, odd.theory))
    return said + ("" if odd.verdict == "explained" else "!")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a counter differs: one row of the table of differences, and where it was met.

    shares: the explained FLOP as a part of the theory, one for each architecture.
    """

    counter: str
    phase: str
    op: str
    cause: str
    shares: tuple[Fraction, ...]

    @property
    def up_to(self) -> Fraction:
        """The largest share."""
        return max(self.shares, key=abs)


def reasons(rows: Sequence[Row]) -> list[Reason]:
    """Why counters differ, each counter's largest reason first."""
    found: dict[tuple[str, str, str, str], list[Fraction]] = {}
    for row in rows:
        for cell in row.cells.values():
            for why, amount in cell.causes:
                key = (cell.counter, cell.phase, why.op.removeprefix("aten."), why.cause)
                found.setdefault(key, []).append(ratio(amount, cell.theory) or Fraction(0))
    order = [(key.counter, key.phase) for row in rows for key in row.cells]
    made = [Reason(*key, tuple(shares)) for key, shares in found.items()]
    return sorted(made, key=lambda reason: (order.index((reason.counter, reason.phase)), -abs(reason.up_to)))


def remarks(rows: Sequence[Row]) -> list[str]:
    """What could not be counted or explained, one sentence each; the last says how far the counters agree."""
    cells = [(row.arch, cell) for row in rows for cell in row.cells.values()]
    missing = dict.fromkeys(f"{c.counter}: {c.reason}" for _, c in cells if c.verdict == "missing")
    failed = dict.fromkeys(
        f"{c.counter} failed on {arch}: {c.reason}" for arch, c in cells if c.verdict == "failed"
    )
    odd = [
        f"{c.counter} {c.phase} of {arch}: {signed((c.difference or 0) - c.explained)} FLOP are not explained"
        for arch, c in cells
        if c.verdict == "unexplained"
    ]
    agree = [row for row in rows if ours(row) and all(cell.verdict == "equal" for cell in ours(row))]
    last = (
        f"The dispatch counter equals the theory on {len(agree)} of {len(rows)}: forward, backward, and the "
        "update by SGD and Adam, to the last FLOP."
    )
    explained = sum(c.verdict == "explained" for _, c in cells)
    if explained and not odd:
        last += f" All {explained} differences of the other counters are explained, to the last FLOP."
    return [*missing, *failed, *odd, last]


def as_markdown(rows: Sequence[Row]) -> str:
    """Versions; the tables: differences as shares, the step, differences as FLOP; their reasons."""
    why = pages.table(
        ["counter", f"in, of {len(rows)}", "up to", "op", "why"],
        (
            [f"{r.counter} {r.phase}", str(len(r.shares)), percent(r.up_to), f"`{r.op}`", r.cause]
            for r in reasons(rows)
        ),
        words=("counter", "op", "why"),
    )
    step = pages.table(STEP_TITLES, (step_cells(row, exact) for row in rows), words=("architecture",))
    parts = [_title(rows), MARKDOWN_HEAD, _agreements(rows, False), step, EXACT_HEAD, _agreements(rows, True)]
    return "\n\n".join([*parts, *([why] if reasons(rows) else []), *remarks(rows)]) + "\n"


def _title(rows: Sequence[Row]) -> str:
    """What the page shows, and what its numbers depend on."""
    installed = versions()
    packages = [COUNTERS[key.counter].package for key in (rows[0].cells if rows else ())]
    names = dict.fromkeys(["torch", "torchvision", *filter(None, packages)])
    have = [f"{name} {installed[name].partition('+')[0]}" for name in names if name in installed]
    sizes = {"x".join(map(str, row.input_shape)) for row in rows}
    inputs = f"input {sizes.pop()}" if len(sizes) == 1 else "inputs as published"
    return f"""\
# Classifiers by every counter

`make measure` redoes this page, in the run's folder. {", ".join(have)}, METHOD {METHOD}; {inputs},
10 classes, cross entropy, batch {BATCH}."""


def _agreements(rows: Sequence[Row], spell_exactly: bool) -> str:
    """Every counter on every architecture; forward, where the title does not say backward."""
    titles = [
        key.counter if key.phase == Phase.FORWARD else f"{key.counter} {key.phase}" for key in others(rows)
    ]
    return pages.table(
        ["architecture", "forward, theory", OURS, *titles],
        (
            [row.arch, exact(row.theory(Phase.FORWARD)), agreement(ours(row), spell_exactly)]
            + [agreement([row.cells[key]], spell_exactly) for key in others(rows)]
            for row in rows
        ),
        words=("architecture",),
    )


MARKDOWN_HEAD = """\
Contraction FLOP of one training step, batch 1; a multiply-add is 2. `=`: as the theory says, to the last FLOP
(dispatch: in backward and update too); else the difference from it, as a part of the theory. A counter's
column is its forward pass, where it does not say backward. The update is counted with all its work, and so
are the ratios with it, (backward + update) : forward."""

EXACT_HEAD = "The same differences in FLOP, and why they are."

STEP_TITLES = (
    *("architecture", "parameters", "forward", "backward", "backward : forward"),
    *("update SGD", "update Adam", "with SGD", "with Adam"),
)


def step_cells(row: Row, spell: Callable[[int | None], str]) -> list[str]:
    """One line of the step's table."""
    return [
        row.arch,
        spell(row.parameters),
        spell(row.theory(Phase.FORWARD)),
        spell(row.theory(Phase.BACKWARD)),
        to_one(row.ratio()),
        *(spell(row.theory(update)) for update in UPDATES),
        *(to_one(row.ratio(update)) for update in UPDATES),
    ]
