"""The bound of utilization on a device, by the roofline, and the operations that set it."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from measurements import METHOD
from measurements.commands import CommandError
from measurements.commands.arguments import number, optimizer, shapes, value
from measurements.commands.count_tables import NOWHERE, NOWHERE_SAID
from measurements.commands.numbers import NONE, exact, scaled
from measurements.commands.subject import Asked, Subject, counted
from measurements.commands.tables import Column, Terminal, print_first_that_fits, table
from measurements.devices import DTYPES, DeviceError, Gpu, gpu
from measurements.options import among
from measurements.roofline import Part, Roof, bound, least_seconds, model_flop, part, parts

if TYPE_CHECKING:
    from rich.table import Table

BY = ("op", "module")
CAST = ("bf16", "fp16")
SMALL = 0.001
"""Share of the time below which parts are shown together."""

EPILOG = """
ARCH: as in count. Nothing is measured and no GPU is needed: the step is counted on meta tensors, and every
operation takes at least its FLOP over the device's peak, and at least its bytes over the bandwidth.

The bound is that of the operations as they run on meta, one by one. Fewer bytes (fusion, as of attention and
dropout on CUDA) or fewer multiplications (convolution by Winograd or FFT) can exceed it.

  python -m measurements roofline mobilenet_v2 --device "Tesla P100-PCIE-16GB"
  python -m measurements roofline resnet50 --batch 256 --peak 9.3e12 --bandwidth 732e9 --by module
"""


def rate(text: str) -> float:
    """A number above 0, of FLOP or bytes a second."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a rate above 0, such as 9.3e12")
    return number


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    add = parser.add_argument
    add("arch", metavar="ARCH", help="the architecture")
    add("--device", metavar="NAME", help="the GPU, as its driver calls it")
    add(
        "--dtype",
        metavar="NAME",
        type=value(lambda name: among("dtype", name, DTYPES)),
        default="fp32",
        help="whose peak is the ceiling: fp32 (default) or tf32",
    )
    add("--peak", metavar="FLOP/S", type=value(rate), help="the peak, instead of the device's")
    add("--bandwidth", metavar="BYTES/S", type=value(rate), help="of the memory, instead of the device's")
    add("--batch", metavar="N", type=number, default=64, help="samples in the step (default: 64)")
    add(
        "--optimizer",
        metavar="NAME",
        type=value(optimizer),
        default="sgd",
        help="sgd (default), adam, …, none",
    )
    add(
        "--by",
        metavar="KIND",
        type=value(lambda name: among("kind", name, BY)),
        default="op",
        help="a table by op (default) or module",
    )
    add("--all", action="store_true", help="every row, also those of little time")
    add("--json", action="store_true", help="one JSON object instead of a table")
    add(
        "--input-shape",
        metavar="CxHxW",
        type=value(shapes),
        help="sizes of one sample; commas between inputs",
    )
    add("--classes", metavar="N", type=number, default=10, help="classes (default: 10)")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The device's two rates, and where they come from."""

    device: str | None
    dtype: str
    roof: Roof
    source: str


def ceiling(options: Namespace) -> Ceiling:
    """The ceiling that the command line asks for.

    Raises: CommandError where it names no device that is known, and not both rates.
    """
    peak, bandwidth, row = options.peak, options.bandwidth, None
    if options.device is None and not (peak and bandwidth):
        raise CommandError("needs a ceiling: give --device NAME, or --peak FLOP/S and --bandwidth BYTES/S")
    if not (peak and bandwidth):
        row = known(options.device)
        try:
            peak, bandwidth = peak or row.peak(options.dtype), bandwidth or row.bytes_per_s
        except DeviceError as error:
            raise CommandError(f"--dtype: {error}") from None
    if options.dtype in CAST:
        raise CommandError(
            f"--dtype {options.dtype}: bytes are counted on meta tensors, where autocast does not run; "
            "give fp32 or tf32"
        )
    given = [f"--{name}" for name in ("peak", "bandwidth") if getattr(options, name)]
    source = " and ".join([*given, *([row.source] if row else [])])
    return Ceiling(options.device, options.dtype, Roof(peak, bandwidth), source)


def known(device: str) -> Gpu:
    """The row of that device."""
    try:
        return gpu(device)
    except DeviceError as error:
        raise CommandError(f"--device: {error} and --bandwidth") from None


def run(options: Namespace) -> int:
    """Counts, and prints the bound and what sets it."""
    top = ceiling(options)
    asked = Asked(options.arch, options.batch, options.optimizer, options.input_shape, options.classes)
    with redirect_stdout(sys.stderr):  # what a model prints is not part of the answer
        subject = counted(asked)
    if subject.remark:
        print(f"measurements: {subject.remark}", file=sys.stderr)
    root = f"{subject.modules[0]}."
    rows = parts(
        subject.work.records,
        top.roof,
        lambda record: record.op if options.by == "op" else record.module.removeprefix(root) or NOWHERE,
    )
    if options.json:
        print(json.dumps(as_json(subject, top, options.by, rows), indent=1))
    else:
        show(subject, top, options.by, rows if options.all else without_small(rows))
    return 0


def as_json(subject: Subject, top: Ceiling, kind: str, rows: Sequence[Part]) -> dict[str, object]:
    """The whole answer as JSON says it; FLOP and bytes are exact integers."""
    import torch

    records = subject.work.records
    return {
        "arch": subject.arch,
        "batch": subject.batch,
        "inputs": subject.inputs,
        "loss": subject.loss,
        "optimizer": subject.optimizer,
        "counted_on": subject.device,
        "device": top.device,
        "dtype": top.dtype,
        "peak_flop_per_s": top.roof.flop_per_s,
        "bytes_per_s": top.roof.bytes_per_s,
        "source": top.source,
        "method": METHOD,
        "torch": torch.__version__,
        "contraction_flop": model_flop(records),
        "least_seconds": least_seconds(records, top.roof),
        "bound_of_utilization": bound(records, top.roof),
        f"by_{kind}": [{**asdict(row), "bound_by": row.bound_by} for row in rows],
    }


def without_small(rows: Sequence[Part]) -> list[Part]:
    """The rows, those of little time as one."""
    seconds = sum(row.seconds for row in rows)
    large = [row for row in rows if row.seconds >= SMALL * seconds]
    small = rows[len(large) :]
    return [*large, sum_of(f"({len(small)} others)", small)] if len(small) > 1 else list(rows)


def sum_of(name: str, rows: Sequence[Part]) -> Part:
    """Those rows as one."""
    columns = ("runs", "flop", "bytes", "seconds", "memory_seconds")
    return Part(name, *(sum(getattr(row, column) for row in rows) for column in columns))


def show(subject: Subject, top: Ceiling, kind: str, rows: Sequence[Part]) -> None:
    """Prints the table; the last line is the bound."""
    import torch

    console, records, roof = Terminal(), subject.work.records, top.roof
    total = part("total", records, roof)
    head = (
        f"{subject.arch}, {', '.join(subject.inputs)}",
        subject.loss,
        subject.optimizer or "no update",
        f"counted by torch {torch.__version__.partition('+')[0]} on {subject.device}",
    )
    console.print(" · ".join(head), style="dim")
    console.print(
        f"{top.device or 'No device named'}, {top.dtype}: {scaled(round(roof.flop_per_s), 'FLOP/s')}, "
        f"{scaled(round(roof.bytes_per_s), 'B/s')} ({top.source}); "
        f"arithmetic sets the time from {roof.ridge:.1f} FLOP/byte on",
        style="dim",
    )
    console.print()
    print_first_that_fits(console, [_table(kind, rows, total, wide) for wide in (True, False)])
    if any(row.name == NOWHERE for row in rows):
        console.print(NOWHERE_SAID, style="dim")
    console.print()
    console.print(
        f"Least time of the step: {1000 * total.seconds:,.3f} ms, "
        f"{_share(total.memory_seconds, total.seconds)} of it set by memory; "
        f"contractions of forward and backward: {scaled(model_flop(records), 'FLOP')}."
    )
    print(f"bound of utilization: {bound(records, roof):.2f}")


def _table(kind: str, rows: Sequence[Part], total: Part, wide: bool) -> Table:
    """A row for each part; without runs and FLOP/byte where that is too wide."""

    def cells(row: Part) -> list[str]:
        intensity = NONE if row.intensity is None else f"{row.intensity:,.2f}"
        memory = row.memory_seconds / row.seconds if row.seconds else 0
        mixed = f" {100 * max(memory, 1 - memory):.0f}%" if 0.005 <= memory < 0.995 else ""
        ends = [f"{1000 * row.seconds:,.3f}", _share(row.seconds, total.seconds), row.bound_by + mixed]
        moved = [scaled(row.flop, "FLOP"), scaled(row.bytes, "B")]
        return [row.name, exact(row.runs), *moved, intensity, *ends] if wide else [row.name, *moved, *ends]

    middle = ("runs", "FLOP", "bytes", "FLOP/byte") if wide else ("FLOP", "bytes")
    titles = [Column(title) for title in (*middle, "least ms", "share")]
    body = [*map(cells, rows), None, cells(total)]
    return table([Column(kind, words=True), *titles, Column("bound by", words=True)], body)


def _share(some: float, whole: float) -> str:
    return f"{100 * some / whole:.1f}%" if whole else NONE
