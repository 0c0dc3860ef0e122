"""How each counter sees each kind of operation of alexnet.

Every cell is measured: the counter's own rows, by module where it has them. Beside the mark stand the FLOP
that the theory and the table of differences say, and the two are equal.
"""

from __future__ import annotations

import re
from collections import Counter as Sum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from measurements.counters import COUNTERS
from measurements.counters.differences import explained
from measurements.counters.differences.places import beyond, operation
from measurements.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.counters import Counter
    from measurements.counters.differences import Seen
    from measurements.records import Counted
    from measurements.step import Step

pytestmark = [
    pytest.mark.counters,
    pytest.mark.experiment("A4"),
    pytest.mark.axes(batch=(1, 64)),
]

KIND_OF_MODULE = {
    "Conv2d": "convolution",
    "Linear": "linear",
    "ReLU": "relu",
    "MaxPool2d": "maximum",
    "AdaptiveAvgPool2d": "average",
    "Dropout": "dropout",
}
KIND_OF_OPERATION = {
    "convolution": "convolution",
    "addmm": "linear",
    "mul": "dropout",
    "adaptive_avg_pool2d": "average",
}
KINDS = tuple(KIND_OF_MODULE.values())

MARKS = {  # counter: a mark for each of KINDS
    "dispatch": "=  =  .  .  .  .",
    "fvcore": "=  =  .  .  +  .",
    "ptflops_pytorch": "+  +  N  N  N  .",
    "ptflops_aten": "+  +  .  .  .  .",
    "flop_counter_mode": "=  =  .  .  .  .",
    "torch_profiler": "=  =  .  .  .  +",
    "autograd_profiler": "=  =  .  .  .  +",
    "pthflops": "+  1  +  +  +  .",
    "thop": "=  =  .  .  +  .",
    "ultralytics_thop": "=  =  .  .  +  .",
    "calflops": "=  =  .  .  .  .",
    "torchinfo": "+  +  .  .  .  .",
    "torchprofile": "=  =  .  .  +  .",
    "deepspeed": "=  =  .  .  .  .",
}
"""= as the theory says; . nothing, as the theory; + counts also what the theory leaves out, in step with the
batch; N that, faster than the batch; 1 that, once whatever the batch; 0 missed."""

SMALL = (3, 64, 64)


@pytest.fixture
def input_shape(device: str, batch: int) -> tuple[int, ...]:
    """The published size; small for a batch that has to be computed."""
    return SMALL if device != "meta" and batch > 1 else (3, 224, 224)


def by_kind(work: Counted, what: Seen) -> dict[str, int]:
    """FLOP of the counter's own forward rows; what it counts in functions without a module is "functions"."""
    sums: Sum[str] = Sum()
    for record in work.records:
        if record.phase == Phase.FORWARD and record.contraction:
            by_module = KIND_OF_MODULE.get(what.kinds.get(record.module, ""))
            sums[by_module or KIND_OF_OPERATION.get(operation(record.op), "functions")] += record.contraction
    return dict(sums)


def predicted(counter: Counter, what: Seen) -> tuple[Sum[str], Sum[str]]:
    """FLOP by kind that the theory says, and those that the table of differences adds."""
    theory: Sum[str] = Sum()
    more: Sum[str] = Sum()
    rows = dict(explained(counter.name, Phase.FORWARD, what))
    for record in what.records:
        kind = KIND_OF_MODULE.get(what.kinds.get(record.module, ""))
        if record.phase == Phase.FORWARD and kind:
            theory[kind] += record.contraction
            more[kind] += beyond(record, counter.name, what, rows)
    return theory, more


def mark(theory: int, more: int, more_for_one: int, batch: int) -> str:
    """The mark of a kind; more_for_one: what a batch of one gets beyond the theory."""
    if theory and more == -theory:
        return "0"
    if not more:
        return "=" if theory else "."
    if more > batch * more_for_one:
        return "N"
    return {more_for_one: "1", batch * more_for_one: "+"}.get(more, "?")


@pytest.mark.parametrize("arch", ["alexnet"])  # no axis: the table is alexnet's
@pytest.mark.axes(counter=tuple(MARKS))
def test_each_kind_of_operation_is_seen_as_the_table_says(
    step: Step,
    batch: int,
    counter: Counter,
    seen: Seen,
    of_one: Seen,
    once: Callable[..., Counted],
    record_work: Callable[..., Counted],
    record: Callable[..., None],
) -> None:
    """Each kind's FLOP are those of the theory and of the differences; the mark follows from the two."""
    work = record_work(once(counter.name, lambda: counter(step)))
    theory, more = predicted(counter, seen)
    _, more_for_one = predicted(counter, of_one)
    found = by_kind(work, seen)
    marks = [mark(theory[kind], more[kind], more_for_one[kind], batch) for kind in KINDS]
    for kind, sign in zip(KINDS, marks, strict=True):
        flop = theory[kind] + more[kind]
        record("cell", counter=counter.name, batch=batch, op=kind, flop=flop, theory=theory[kind], mark=sign)

    apart = {kind: found.get(kind, 0) for kind in KINDS if theory[kind] + more[kind]}
    said = {kind: theory[kind] + more[kind] for kind in apart}
    if functions := found.get("functions", 0):  # of ptflops, for three kinds in one sum
        several = ("relu", "maximum", "average")
        assert sum(said.pop(kind) - apart.pop(kind) for kind in several) == functions
    assert apart == said
    table = MARKS[counter.name].split()
    assert marks == ([re.sub("[N1]", "+", sign) for sign in table] if batch == 1 else table)


@pytest.fixture
def of_one(
    build_model: Callable[..., object], counter: Counter, input_shape: tuple[int, ...], classes: int
) -> Seen:
    """What explains the counter on a single image of the same size."""
    import torch

    from measurements.counters import differences
    from measurements.step import Step

    with torch.device("meta"):
        x, targets = torch.rand(1, *input_shape), torch.zeros(1, dtype=torch.long)
    return differences.seen(counter.name, Step(build_model("alexnet", classes, "meta"), (x,), targets))


def test_every_counter_has_a_row() -> None:
    """Ours and all others; the closed form sees layers, not operations."""
    assert set(MARKS) == set(COUNTERS) - {"closed_form"}


def test_the_readme_shows_the_table() -> None:
    """A line for each counter."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

    lines = [
        "| " + " | ".join([name, *(f"`{sign}`" for sign in row.split())]) + " |"
        for name, row in MARKS.items()
    ]
    assert [line for line in lines if line not in text] == []


@pytest.mark.parametrize(
    ("theory", "more", "more_for_one", "expected"),
    [
        (10, 0, 0, "="),
        (0, 0, 0, "."),
        (10, -10, -1, "0"),
        (10, 8, 2, "+"),
        (0, 32, 2, "N"),
        (10, 9, 2, "N"),
        (10, 2, 2, "1"),
        (10, 3, 2, "?"),
    ],
    ids=["as_theory", "nothing", "missed", "linear", "square", "faster", "once", "neither"],
)
def test_a_mark_says_how_a_kind_grows_with_the_batch(theory, more, more_for_one, expected) -> None:
    """Of a batch of four."""
    assert mark(theory, more, more_for_one, 4) == expected
