"""One architecture by every counter: what each counts, what the theory says, what explains the difference.

Imports torch inside functions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import models
from measurements.commands import first_line
from measurements.commands.numbers import ratio
from measurements.comparison import columns
from measurements.counters import COUNTERS, Counter, differences
from measurements.counters.differences import Difference, Seen, explained
from measurements.records import MeasurementError, Phase, Work

if TYPE_CHECKING:
    from measurements.step import Step

THEORY, OURS = "closed_form", "dispatch"
OPTIMIZERS = ("sgd", "adam")
BATCH, CLASSES = 1, 10
UPDATES = tuple(f"update_{name}" for name in OPTIMIZERS)
NOTHING = Seen((), {})
PHASES = (Phase.FORWARD.value, Phase.BACKWARD.value, *UPDATES)
"""What a counter may say of an architecture; the update once for each optimizer."""


class Key(NamedTuple):
    """Whose word on what: a counter and one of PHASES."""

    counter: str
    phase: str


@dataclass(frozen=True)
class Cell:
    """What one counter says of one phase of one architecture.

    flop: contraction FLOP; of an update all that it costs. None where the counter gave none, for `reason`.
    theory: the closed form; None where it gave none. causes: explained differences, in FLOP.
    work: the counter's own rows of this phase.
    """

    counter: str
    phase: str
    flop: int | None = None
    theory: int | None = None
    causes: tuple[tuple[Difference, int], ...] = ()
    reason: str | None = None
    work: Work = field(default=Work(), repr=False)

    @property
    def difference(self) -> int | None:
        """FLOP above the theory (+) or below it (-)."""
        return None if self.flop is None or self.theory is None else self.flop - self.theory

    @property
    def explained(self) -> int:
        """FLOP of the difference that the table of differences explains."""
        return sum(amount for _, amount in self.causes)

    @property
    def share(self) -> Fraction | None:
        """The difference as a part of the theory."""
        return ratio(self.difference, self.theory)

    @property
    def verdict(self) -> str:
        """One word: equal, explained, unexplained, unknown (no theory), failed, missing."""
        if self.flop is None:
            return "missing" if self.reason and self.reason.startswith("needs ") else "failed"
        if self.difference is None:
            return "unknown"
        if self.difference != self.explained:
            return "unexplained"
        return "explained" if self.causes else "equal"


@dataclass(frozen=True)
class Row:
    """One architecture: its size, and a cell for each counter and phase."""

    arch: str
    input_shape: tuple[int, ...]
    parameters: int | None
    cells: dict[Key, Cell]

    def theory(self, phase: str) -> int | None:
        """FLOP by the closed form."""
        cell = self.cells.get(Key(THEORY, phase))
        return cell.flop if cell else None

    def all_work(self, phase: Phase) -> int | None:
        """FLOP of all work, forward or backward, by the dispatch counter."""
        cell = self.cells.get(Key(OURS, phase.value))
        return cell.work.total if cell and cell.flop is not None else None

    def ratio(self, update: str | None = None) -> Fraction | None:
        """(backward + update) : forward, by the closed form; without an update backward : forward."""
        parts = [self.theory(Phase.BACKWARD), 0 if update is None else self.theory(update)]
        known = [part for part in parts if part is not None]
        return ratio(sum(known), self.theory(Phase.FORWARD)) if len(known) == len(parts) else None


def keys(counter: Counter) -> tuple[Key, ...]:
    """The cells that a counter fills."""
    phases = [phase for phase in PHASES if phase.partition("_")[0] in counter.phases]
    return tuple(Key(counter.name, phase) for phase in phases)


def measured(
    arch: str, counters: tuple[Counter, ...], says: Callable[[str], None], keep: Callable[[Cell], None]
) -> Row:
    """The row of one architecture.

    says: gets the name of each counter that starts. keep: gets each cell as soon as it is known.
    A counter that raises fills its cells with the reason. The theory comes first, ours second: the others
    are held against the first, and explained by what the second saw.
    """
    cells: dict[Key, Cell] = {}
    steps: dict[str, Step] = {}
    seen: dict[bool, Seen] = {}  # by whether the counter switches to evaluation
    order = sorted(counters, key=lambda c: (c.name != THEORY, c.name != OURS, c.device))
    for counter in order:
        says(counter.name)
        found, reason = _counted(counter, arch, steps)
        if counter.package and found and counter.evaluates not in seen:
            seen[counter.evaluates] = _seen(counter, steps["meta"])
        for key in keys(counter):
            theory = cells.get(Key(THEORY, key.phase))
            what = seen.get(counter.evaluates, NOTHING)
            cell = _cell(key, found, reason, what, theory.flop if theory else None)
            cells[key] = cell
            keep(cell)
    weights = [w for step in list(steps.values())[:1] for w in step.model.parameters()]
    size = sum(math.prod(w.shape) for w in weights) if weights else None
    return Row(arch, models.input_shape(arch), size, cells)


def _cell(key: Key, found: dict[str, Work], reason: str | None, seen: Seen, theory: int | None) -> Cell:
    if reason is not None:
        return Cell(*key, theory=theory, reason=reason)
    work = found[key.phase]
    if key.phase in UPDATES:
        return Cell(*key, work.total, work.total if key.counter == THEORY else theory, work=work)
    flop = work.contraction.total
    causes = tuple(explained(key.counter, Phase(key.phase), seen))
    return Cell(*key, flop, flop if key.counter == THEORY else theory, causes, work=work)


def _seen(counter: Counter, step: Step) -> Seen:
    """What explains the counter; nothing where our own cannot count the step, which its cell says."""
    try:
        return differences.seen(counter.name, step)
    except MeasurementError:
        return NOTHING


def _counted(counter: Counter, arch: str, steps: dict[str, Step]) -> tuple[dict[str, Work], str | None]:
    """The work by PHASES, or why there is none."""
    if reason := counter.why_not():
        return {}, reason
    found: dict[str, Work] = {}
    try:
        with warnings.catch_warnings():  # what packages warn of is in their rows of COUNTERS
            warnings.simplefilter("ignore")
            if counter.device not in steps:
                steps[counter.device] = _step(arch, counter.device)
            for phases, work in _works(counter, steps[counter.device]):
                found |= {phase: work.by_phase()[phase.partition("_")[0]] for phase in phases}
    except Exception as error:
        return {}, first_line(error)
    return found, None


def _works(counter: Counter, step: Step) -> Iterator[tuple[tuple[str, ...], Work]]:
    """One count for each optimizer where the counter sees updates, else one without."""
    from dataclasses import replace

    from measurements.step import make_optimizer

    both = (Phase.FORWARD.value, Phase.BACKWARD.value)
    if Phase.UPDATE not in counter.phases:
        yield both, counter(step)
        return
    for optimizer in OPTIMIZERS:
        work = counter(replace(step, optimizer=make_optimizer(optimizer, step.model.parameters())))
        yield (f"update_{optimizer}",) if optimizer != OPTIMIZERS[0] else (*both, f"update_{optimizer}"), work


def _step(arch: str, device: str) -> Step:
    """The step of the studies: random input of the published size, 10 classes, cross entropy.

    A model that is not listed gets the inputs and the loss that fit it.
    """
    import torch

    from measurements.samples import inputs_for, targets_for
    from measurements.step import Step

    with torch.device(device):
        model = models.build(arch, CLASSES)
        if models.listed(arch) is None:
            inputs = inputs_for(model, BATCH, None, models.input_shape(arch))
            return Step(model, inputs, targets_for(model, inputs, BATCH))
        x, targets = torch.rand(BATCH, *models.input_shape(arch)), torch.randint(CLASSES, (BATCH,))
    return Step(model, (x,), targets)


def saved_row(arch: str, shape: tuple[int, ...], cell: Cell) -> dict[str, object]:
    """The cell as a row of the saved run."""
    phase, _, optimizer = cell.phase.partition("_")
    axes: dict[str, object] = {"input_shape": list(shape), "arch": arch, "batch": BATCH}
    if optimizer:
        axes["optimizer"] = optimizer
    head = {"experiment": ["A1"], "test": "measure", "axes": axes, "counter": cell.counter, "phase": phase}
    if cell.flop is None:
        verdict = "skipped" if cell.verdict == "missing" else "failed"
        return {"kind": "verdict", **head, "verdict": verdict, "reason": cell.reason}
    return {
        "kind": "count",
        **head,
        **columns(cell.work),
        "theory": cell.theory,
        "explained": cell.explained,
        "verdict": cell.verdict,
    }


def studied() -> tuple[str, ...]:
    """The studies' architectures: those of torchvision in the list."""
    return tuple(name for name, row in models.ARCHITECTURES.items() if "torchvision" in row.builder)


def all_counters() -> tuple[Counter, ...]:
    """Every counter, in the order of their table."""
    return tuple(COUNTERS.values())
