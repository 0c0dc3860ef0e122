"""FLOP of one training step of any model, and of a whole training run."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from measurements import METHOD
from measurements.commands import CommandError
from measurements.commands.arguments import number, optimizer, shapes, value
from measurements.commands.count_tables import show
from measurements.commands.subject import Asked, Subject, counted
from measurements.commands.training import Training, TrainingRun
from measurements.options import among
from measurements.records import Counted, Flop, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

BY = ("op", "module", "phase")

EPILOG = """
ARCH: a listed or torchvision name (resnet50), timm:NAME, or your own pkg.module:factory.

Inputs are random tensors of the size that the architecture is published with, one for each argument
that forward requires. Your own model may say what it takes: a method example_inputs(batch) that returns
a tensor, a tuple of arguments or a dict of them by name (token ids, masks, …).
Loss: cross entropy where the model returns batch x classes, else the sum of all outputs.

A multiply-add is 2 FLOP. Contractions are products of matrices, convolutions, attention; all work adds
every element-wise operation. Nothing is computed: the step runs on meta tensors where the model can.

  python -m measurements count resnet50 --batch 64 --optimizer adam --by module
  python -m measurements count resnet50 --batch 256 --samples 1281167 --epochs 90
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    add = parser.add_argument
    add("arch", metavar="ARCH", help="the architecture")
    add("--batch", metavar="N", type=number, default=1, help="samples in the step (default: 1)")
    add(
        "--optimizer",
        metavar="NAME",
        type=value(optimizer),
        default="sgd",
        help="sgd (default), momentum, adam, adamw, …, or none for no update",
    )
    add(
        "--by",
        metavar="KIND",
        type=value(lambda name: among("kind", name, BY)),
        help="a table by op, module or phase",
    )
    add("--json", action="store_true", help="one JSON object with exact integers instead of tables")
    add(
        "--input-shape",
        metavar="CxHxW",
        type=value(shapes),
        help="sizes of one sample; with commas, of several inputs",
    )
    add(
        "--classes",
        metavar="N",
        type=number,
        default=10,
        help="classes that the model tells apart (default: 10)",
    )
    add(
        "--samples",
        metavar="N",
        type=number,
        help="samples of the training set: count the whole training run",
    )
    add("--epochs", metavar="N", type=number, help="how often the run visits each sample (default: 1)")


def run(options: Namespace) -> int:
    """Counts, and prints what was asked for."""
    if options.epochs and not options.samples:
        raise CommandError(f"--epochs {options.epochs} needs --samples: give how many samples an epoch has")
    asked = Asked(options.arch, options.batch, options.optimizer, options.input_shape, options.classes)
    with redirect_stdout(sys.stderr):  # what a model prints is not part of the answer
        subject = counted(asked)
        whole = None
        if options.samples:
            whole = whole_run(asked, subject, Training(options.samples, options.epochs or 1, options.batch))
    if subject.remark:
        print(f"measurements: {subject.remark}", file=sys.stderr)
    if options.json:
        print(json.dumps(as_json(subject, options.by, whole), indent=1))
        return 0
    show(subject, options.by, whole)
    return 0


def whole_run(asked: Asked, subject: Subject, training: Training) -> TrainingRun:
    """The training run: full batches as the subject, the last batch of each epoch counted as itself."""
    last = Work()
    if training.last_batch:
        try:
            last = counted(replace(asked, batch=training.last_batch)).work
        except CommandError as error:
            raise CommandError(
                f"each epoch ends with a batch of {training.last_batch}, which fails: {error}; or give a "
                f"--batch that divides {training.samples}"
            ) from error
    return TrainingRun(
        training,
        training.flop(subject.work.contraction, last.contraction),
        training.flop(subject.work.all_work, last.all_work),
        training.rule_of_thumb(subject.parameters, subject.tokens),
    )


def as_json(subject: Subject, kind: str | None, whole: TrainingRun | None) -> dict[str, object]:
    """The whole answer as JSON says it; every FLOP an exact integer."""
    import torch

    facts = asdict(replace(subject, work=Work(), modules=()))
    answer = {name: fact for name, fact in facts.items() if name not in ("work", "modules", "remark")}
    answer |= {"remark": subject.remark or None, "unit": "FLOP", "method": METHOD, "torch": torch.__version__}
    answer |= _flop(subject.work)
    if kind:
        answer[f"by_{kind}"] = _rows(subject.by(kind))
    if whole:
        answer["training"] = {
            **asdict(whole.training),
            "steps": whole.training.steps,
            "last_batch": whole.training.last_batch,
            "contraction": _phases(whole.contraction),
            "all_work": _phases(whole.all_work),
            "rule_of_thumb": whole.rule_of_thumb,
        }
    return answer


def _rows(groups: Mapping[str, Work]) -> Iterable[dict[str, object]]:
    return [{"name": str(name), "calls": len(work.records), **_flop(work)} for name, work in groups.items()]


def _flop(work: Counted) -> dict[str, object]:
    return {"contraction": _phases(work.contraction), "all_work": _phases(work.all_work)}


def _phases(flop: Flop) -> dict[str, int]:
    return {**asdict(flop), "total": flop.total}
