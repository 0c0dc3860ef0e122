"""The screen of `measure`: rows as they arrive, progress below them, the other tables at the end."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from measurements.commands.matrix import OURS, THEORY, Cell, Key, Row, keys
from measurements.commands.numbers import exact, percent, scaled
from measurements.commands.results import CSV, agreement, ours, reasons, remarks, step_cells
from measurements.commands.tables import Column, Terminal, print_first_that_fits, table
from measurements.counters import Counter
from measurements.records import Phase

Spell = Callable[[int | None], str]


def short(number: int | None) -> str:
    """Four digits and a prefix, without a space: "8.178G"."""
    return scaled(number).replace(" ", "")


@dataclass(frozen=True, slots=True)
class Layout:
    """How much room each column of the rows takes.

    exactly: differences as FLOP, not as a share. theory: how it is spelled. gap: spaces between two columns.
    """

    exactly: bool
    theory: Spell
    theory_width: int
    ours_width: int
    width: int
    gap: int

    def needs(self, name: int, counters: int) -> int:
        """Characters of a line with that many counters, behind a name of at most that length."""
        return name + self.theory_width + self.ours_width + 2 * self.gap + counters * (self.width + self.gap)


LAYOUTS = (
    Layout(True, exact, 14, len(OURS), 16, 2),
    Layout(False, exact, 14, len(OURS), 8, 2),
    Layout(False, short, 6, 5, 7, 1),
)


class Screen:
    """What a person sees while the run goes on."""

    def __init__(self, archs: Sequence[str], counters: Sequence[Counter]) -> None:
        """The columns: the theory, ours, and one for each phase of each other counter."""
        self.console = Terminal()
        self.missing = {counter.name: reason for counter in counters if (reason := counter.why_not())}
        self.archs = len(archs)
        self.keys = [key for c in counters if c.name not in (THEORY, OURS) for key in keys(c)]
        self.name = max(len("architecture"), *map(len, archs))
        width, columns = self.console.width, len(self.keys)
        self.layout = next((one for one in LAYOUTS if one.needs(self.name, columns) <= width), LAYOUTS[-1])
        at_once = (width - self.layout.needs(self.name, 0)) // (self.layout.width + self.layout.gap)
        self.blocks = _blocks(self.keys, max(1, at_once))
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("A1", total=len(archs) * len(counters))
        self.begun = self.done = 0
        self.seconds = 0.0

    def __enter__(self) -> Screen:
        """Prints what stands above the rows, and starts the progress bar."""
        self.console.print("A1 · the forward pass by every counter, batch 1", style="bold")
        self.console.print(EXPLANATION, style="dim")
        self.console.print()
        self._print_head(self.blocks[0])
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the progress bar away."""
        self.progress.stop()

    def begins(self, arch: str, counter: str) -> None:
        """A counter starts on an architecture."""
        self.progress.update(self.task, completed=self.begun, description=f"A1 {arch}, {counter}")
        self.begun += 1

    def took(self, seconds: float) -> None:
        """An architecture is done; where there is no bar, stderr says how far the run is."""
        self.seconds += seconds
        self.done += 1
        left = self.seconds / self.done * (self.archs - self.done)
        if not self.console.is_terminal:
            said = f"A1 {self.done} of {self.archs}, {self.seconds:.0f} s elapsed, about {left:.0f} s left"
            print(said, file=sys.stderr, flush=True)

    def row(self, row: Row) -> None:
        """A row has arrived."""
        self._print_row(row, self.blocks[0])

    def tables(self, rows: Sequence[Row]) -> None:
        """What comes after the last row: further counters, the step, why counters differ, remarks."""
        self.progress.stop()
        for block in self.blocks[1:]:
            self.console.print()
            self._print_head(block)
            for row in rows:
                self._print_row(row, block)
        self.console.print()
        self.console.print("One training step, batch 1", style="bold")
        self.console.print(STEP_EXPLANATION, style="dim")
        self.console.print()
        if print_first_that_fits(self.console, [_step(rows, spell) for spell in (exact, short)]):
            self.console.print(f"Rounded; {CSV} is exact.", style="dim")
        self._print_reasons(rows)
        self.console.print()
        for line in remarks(rows):
            self.console.print(line)

    def _print_head(self, block: Sequence[Key]) -> None:
        """The heads of the columns, and a line."""
        ours_head = OURS if self.layout.ours_width >= len(OURS) else "dis-\npatch"
        heads = ["architecture", "theory", ours_head]
        heads += [_head(key, self.missing.get(key.counter), self.layout.width) for key in block]
        self._print_line([Text(head, style="bold") for head in heads])
        self.console.print("─" * self.layout.needs(self.name, len(block)), style="dim")

    def _print_row(self, row: Row, block: Sequence[Key]) -> None:
        theory = Text(self.layout.theory(row.theory(Phase.FORWARD)))
        cells = [self._styled(ours(row)), *(self._styled([row.cells[key]]) for key in block)]
        self._print_line([Text(row.arch), theory, *cells])

    def _print_line(self, cells: Sequence[Text]) -> None:
        """Cells in columns of fixed widths, so that rows meet their heads whenever they come."""
        layout = self.layout
        widths = [self.name, layout.theory_width, layout.ours_width, *[layout.width] * (len(cells) - 3)]
        line = Table.grid(padding=(0, layout.gap, 0, 0), pad_edge=False)
        for n, width in enumerate(widths):
            line.add_column(width=width, justify="right" if n else "left", vertical="bottom", overflow="fold")
        line.add_row(*cells)
        self.console.print(line)

    def _styled(self, cells: Sequence[Cell]) -> Text:
        said = agreement(cells, self.layout.exactly)
        wrong = said.endswith(("!", "failed", "?"))
        return Text(said, style="green" if said == "=" else "bold red" if wrong else "yellow")

    def _print_reasons(self, rows: Sequence[Row]) -> None:
        """Why counters differ, a paragraph for each counter and phase."""
        above = None
        for reason in reasons(rows):
            head = f"{reason.counter}, {reason.phase}"
            if head != above:
                self.console.print()
                self.console.print(
                    f"Why {head} differs: by up to, in how many of {len(rows)}, op", style="bold"
                )
                above = head
            start = f"{percent(reason.up_to):>8} {len(reason.shares):>3}  "
            text = f"{reason.op}: {reason.cause}"
            width = max(40, self.console.width - 1)
            self.console.print(
                textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start))
            )


EXPLANATION = (
    "Contraction FLOP; a multiply-add is 2. theory: the closed form. =: the same, to the last FLOP "
    "(dispatch: in backward and update too). Else the difference; ! behind one that is not explained."
)
STEP_EXPLANATION = (
    "Contraction FLOP by the closed form, and the update with all its work. ratio: backward : forward; "
    "with an update: (backward + update) : forward."
)
STEP_HEADS = (
    *("architecture", "para-\nmeters", "forward", "back-\nward", "ratio"),
    *("update\nSGD", "update\nAdam", "with\nSGD", "with\nAdam"),
)


def _step(rows: Sequence[Row], spell: Spell) -> Table:
    """The step's table."""
    columns = [Column(title, words=n == 0) for n, title in enumerate(STEP_HEADS)]
    return table(columns, [step_cells(row, spell) for row in rows])


def _blocks(keys: Sequence[Key], size: int) -> list[Sequence[Key]]:
    """The columns in blocks of at most that many; one block, empty, where there are none."""
    return [keys[start : start + size] for start in range(0, len(keys), size)] or [()]


def _head(key: Key, missing: str | None, width: int) -> str:
    """A counter's name and phase, one word a line, and why it is missing."""
    phase = key.phase if len(key.phase) <= width else "back-\nward"
    return "\n".join([*key.counter.split("_"), phase, *(missing.split() if missing else ())])
