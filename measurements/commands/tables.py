"""Tables on a terminal: columns of right-aligned numbers that are never cut off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what stands above it, and whether its cells are words.

    Words are aligned left and may break over lines; numbers are aligned right and never break.
    """

    title: str
    words: bool = False


class Terminal(Console):
    """Standard output. A reader that goes away ends the command, which knows what it has to save."""

    def __init__(self) -> None:
        """As wide as the terminal, or as COLUMNS says; in a pipe wide enough for exact numbers."""
        known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
        super().__init__(width=None if known else PIPE_WIDTH, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Instead of rich's own exit."""
        raise BrokenPipeError


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text] | None]) -> Table:
    """A table; a row that is None is a gap."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column in columns:
        made.add_column(
            column.title,
            justify="left" if column.words else "right",
            vertical="top",
            no_wrap=not column.words,
            overflow="fold",
        )
    for row in rows:
        if row is None:
            made.add_section()
        else:
            made.add_row(*row)
    return made


def print_first_that_fits(console: Console, made: Sequence[Table]) -> bool:
    """Prints the first table that the terminal is wide enough for, else the last; whether it was the last."""
    chosen = next((one for one in made if fits(console, one)), made[-1])
    console.print(chosen)
    return chosen is made[-1]


def fits(console: Console, made: Table) -> bool:
    """Whether the table needs no more than the terminal's width, no word broken."""
    return Measurement.get(console, console.options.update(max_width=10**4), made).maximum <= console.width
