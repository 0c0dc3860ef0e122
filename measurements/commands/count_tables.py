"""What `count` prints: the step, its parts, the training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from measurements.commands.numbers import exact, ratio, scaled, to_one
from measurements.commands.subject import Subject
from measurements.commands.tables import Column, Terminal, print_first_that_fits, table
from measurements.commands.training import TrainingRun
from measurements.records import Flop, Phase, Work

if TYPE_CHECKING:
    from rich.table import Table

NOWHERE = "(outside)"
NOWHERE_SAID = "(outside): in no module, such as the loss and the update."
Spell = Callable[[int], str]
Pair = Callable[[int, int], list[str]]


def show(subject: Subject, kind: str | None, whole: TrainingRun | None) -> None:
    """Prints the answer."""
    console = Terminal()
    console.print(_head(subject), style="dim")
    console.print()
    _print(console, [_step(subject, pair) for pair in PAIRS])
    console.print()
    console.print(_parameters(subject))
    if subject.work.contraction.forward == 0:
        console.print("The forward pass holds no contraction, so that there is no ratio of contractions.")
    if kind:
        groups = subject.by(kind)
        console.print()
        console.print(_parts_title(kind), style="bold")
        parts = _by_phase if kind == "phase" else _by_name
        _print(console, [parts(subject, kind, groups, spell) for spell in (exact, scaled)])
        if kind == "module" and "" in groups:
            console.print(NOWHERE_SAID, style="dim")
    if whole:
        console.print()
        console.print(_training_title(whole), style="bold")
        _print(console, [_training(whole, pair) for pair in PAIRS])
        console.print()
        console.print(_rule(subject, whole))


def _print(console: Terminal, made: Sequence[Table]) -> None:
    """The widest table that fits; the last of them is rounded, which is said."""
    if print_first_that_fits(console, made):
        said = f"Rounded: exact numbers need a terminal wider than {console.width} columns, or --json."
        console.print(said, style="dim")


def _head(subject: Subject) -> str:
    import torch

    parts = (
        f"{subject.arch}, {', '.join(subject.inputs)}",
        subject.loss,
        subject.optimizer or "no update",
        f"torch {torch.__version__.partition('+')[0]} on {subject.device}",
    )
    return " · ".join(parts) + "\nFLOP of one training step; a multiply-add is 2."


def _parameters(subject: Subject) -> str:
    frozen = subject.parameters - subject.trained
    trained = "all trained" if not frozen else f"{exact(subject.trained)} trained, {exact(frozen)} frozen"
    return f"{exact(subject.parameters)} parameters, {trained}"


# Contractions beside all work: exact and with a unit, exact, rounded


def _exact_and_scaled(contraction: int, every: int) -> list[str]:
    return [exact(contraction), scaled(contraction, "FLOP"), exact(every), scaled(every, "FLOP")]


def _exact(contraction: int, every: int) -> list[str]:
    return [exact(contraction), exact(every)]


def _scaled(contraction: int, every: int) -> list[str]:
    return [scaled(contraction, "FLOP"), scaled(every, "FLOP")]


PAIRS: tuple[Pair, ...] = (_exact_and_scaled, _exact, _scaled)


def _pairs(pair: Pair, rows: Sequence[list[str] | None]) -> Table:
    """A table of those pairs."""
    unit = [Column("")] if pair is _exact_and_scaled else []
    return table([Column("", words=True), Column("contractions"), *unit, Column("all work"), *unit], rows)


def _sums(contraction: Flop, every: Flop, pair: Pair) -> list[list[str] | None]:
    """A row for each phase, the total, and what was done again."""
    rows: list[list[str] | None] = [[p, *pair(getattr(contraction, p), getattr(every, p))] for p in Phase]
    rows += [None, ["total", *pair(contraction.total, every.total)]]
    if contraction.recomputed or every.recomputed:
        rows.append(["recomputed, not in the total", *pair(contraction.recomputed, every.recomputed)])
    return rows


def _step(subject: Subject, pair: Pair) -> Table:
    """Contractions and all work by phase, and the ratios."""
    contraction, every = subject.work.contraction, subject.work.all_work
    gap = [""] if pair is _exact_and_scaled else []

    def ratios(name: str, update: int) -> list[str]:
        sides = ((contraction, contraction.backward), (every, every.backward))
        first, second = (to_one(ratio(backward + update, flop.forward)) for flop, backward in sides)
        return [name, first, *gap, second, *gap]

    rows = [*_sums(contraction, every, pair), None, ratios("backward : forward", 0)]
    if subject.optimizer:
        # the update is element-wise work: beside contractions too it stands with all that it costs
        rows.append(ratios("(backward + all of update) : forward", every.update))
    return _pairs(pair, rows)


def _parts_title(kind: str) -> str:
    return "By phase" if kind == "phase" else f"By {kind}: all work, but for the columns of contractions"


def _works(part: Work) -> bool:
    return bool(part.total or part.recomputed)


def _by_phase(subject: Subject, kind: str, groups: Mapping[str, Work], spell: Spell) -> Table:
    """A row for each phase, with operations and bytes."""

    def row(name: str, part: Work) -> list[str]:
        numbers = (part.contraction.total, part.total, part.bytes)
        return [name, exact(len(part.records)), *map(spell, numbers)]

    titles = ("operations", "contractions", "all work", "bytes moved")
    rows = [*(row(str(name), part) for name, part in groups.items()), None, row("total", subject.work)]
    return table([Column(kind, words=True), *map(Column, titles)], rows)


def _by_name(subject: Subject, kind: str, groups: Mapping[str, Work], spell: Spell) -> Table:
    """A row for each op or module that works; the last is the step, the sum of all others."""
    root = f"{subject.modules[0]}."

    def row(name: str, part: Work) -> list[str]:
        contraction = part.contraction
        numbers = (part.forward, part.backward, part.update, contraction.forward, contraction.backward)
        ends = to_one(ratio(contraction.backward, contraction.forward), 2)
        runs = exact(len(part.records))
        return [name, runs, *map(spell, numbers)] if kind == "op" else [name, *map(spell, numbers), ends]

    titles = ("forward", "backward", "update", "contractions\nforward", "contractions\nbackward")
    named = ["runs", *titles] if kind == "op" else [*titles, "ratio"]
    rows = [row(name.removeprefix(root) or NOWHERE, part) for name, part in groups.items() if _works(part)]
    idle = [part.records for part in groups.values() if not _works(part)]
    if idle:
        rows.append(row(f"({len(idle)} without work)", Work(tuple(chain.from_iterable(idle)))))
    return table([Column(kind, words=True), *map(Column, named)], [*rows, None, row("total", subject.work)])


def _training_title(whole: TrainingRun) -> str:
    run = whole.training
    last = f", but for the last of each epoch, of {run.last_batch:,}" if run.last_batch else ""
    steps = f"{_several(run.steps, 'step')} of {run.batch:,}{last}"
    return f"Training: {_several(run.samples, 'sample')} x {_several(run.epochs, 'epoch')}, {steps}"


def _several(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _training(whole: TrainingRun, pair: Pair) -> Table:
    return _pairs(pair, _sums(whole.contraction, whole.all_work, pair))


def _rule(subject: Subject, whole: TrainingRun) -> str:
    """The rule of thumb, and how far the count is from it."""
    run, tokens = whole.training, subject.tokens
    one = "" if tokens > 1 else " (1 token a sample: the input is no token sequence)"
    times = to_one(ratio(whole.contraction.total, whole.rule_of_thumb), 2)
    return (
        "Rule of thumb, 6 x params x samples x epochs x tokens:\n"
        f"6 x {subject.parameters:,} x {run.samples:,} x {run.epochs:,} x {tokens:,} "
        f"= {scaled(whole.rule_of_thumb, 'FLOP')}{one}.\n"
        f"The contractions counted are {times} times that. The rule supposes that each token meets each "
        "weight once; a convolution meets its weights at every position, an embedding reads one row."
    )
