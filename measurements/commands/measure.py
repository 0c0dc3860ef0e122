"""The main job: every architecture by every counter, with ratios and update costs.

The table comes on the screen as it is measured, and into the run's folder: measure.csv and measure.md after
each architecture, whole or not at all; records.jsonl after each cell.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import models
from measurements.commands import CommandError
from measurements.commands.arguments import names, value
from measurements.commands.matrix import Cell, Row, all_counters, measured, saved_row, studied
from measurements.commands.results import write
from measurements.counters import COUNTERS, Counter
from measurements.options import among, architecture
from measurements.runs import Run, RunError

if TYPE_CHECKING:
    from measurements.commands.measure_tables import Screen

INTERRUPTED = 130

EPILOG = """
Batch 1, the size that an architecture is published with, 10 classes, cross entropy.
It takes about two minutes on two cores; Ctrl-C keeps what has been measured.
The theory is the closed form, layer by layer; a counter that differs from it is explained op by op.

  python -m measurements measure
  python -m measurements measure --arch resnet50,mobilenet_v2 --counter fvcore
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    add = parser.add_argument
    add(
        "--run",
        metavar="NAME",
        help="save in runs/NAME, which must be new (default: named by time and process)",
    )
    add(
        "--arch",
        metavar="NAMES",
        type=value(names),
        help="these architectures (default: the studies' thirteen)",
    )
    add("--counter", metavar="NAMES", type=value(_counters), help="these counters and ours (default: all)")


def _counters(text: str) -> tuple[Counter, ...]:
    wanted = {among("counter", name, COUNTERS) for name in names(text)} | {"dispatch", "closed_form"}
    return tuple(counter for counter in all_counters() if counter.name in wanted)


def run(options: Namespace) -> int:
    """Measures, prints, saves."""
    said = {"arch": options.arch or (), "counter": [counter.name for counter in options.counter or ()]}
    texts = {name: list(given) for name, given in said.items() if given}
    try:
        saved = Run.create(Path("runs"), options.run, texts, ["python", "-m", "measurements", *sys.argv[1:]])
    except RunError as error:
        raise CommandError(f"--run: {error}") from error
    archs = options.arch or studied()
    for arch in archs:
        _known(arch)
    from measurements.commands.measure_tables import Screen

    screen = Screen(archs, options.counter or all_counters())
    rows: list[Row] = []
    try:
        with screen:
            for arch in archs:
                rows.append(_row(arch, options.counter or all_counters(), screen, saved))
                write(saved.folder, rows)
                screen.row(rows[-1])
            screen.tables(rows)
    except KeyboardInterrupt:
        print(f"measurements: interrupted after {len(rows)} of {len(archs)} architectures", file=sys.stderr)
        _say_where(saved, rows)
        return INTERRUPTED
    _say_where(saved, rows)
    return 0


def _known(arch: str) -> None:
    """Refuses a name that builds no model before anything is measured."""
    try:
        architecture(arch, 10)
    except models.ArchitectureError as error:
        raise CommandError(f"--arch: {error}") from error


def _row(arch: str, counters: tuple[Counter, ...], screen: Screen, saved: Run) -> Row:
    """The row of one architecture, each of its cells saved as it arrives."""
    shape = models.input_shape(arch)
    began = time.monotonic()

    def keep(cell: Cell) -> None:
        saved.append(saved_row(arch, shape, cell))

    row = measured(arch, counters, lambda counter: screen.begins(arch, counter), keep)
    screen.took(time.monotonic() - began)
    return row


def _say_where(saved: Run, rows: list[Row]) -> None:
    """The last lines: what lies where."""
    if not saved.rows:
        print("Nothing was saved: the run ended before its first row.")
        return
    folder = Path("runs") / saved.folder.name
    if rows:
        print(
            f"{folder / 'measure.csv'}: {len(rows)} architectures, every number exact; beside it measure.md"
        )
    print(f"{folder / 'records.jsonl'}: {saved.rows} rows, one for each counter and phase")
