"""Two counts side by side, phase by phase and op by op: what a failed `assert work == theory` prints."""

from __future__ import annotations

from dataclasses import asdict

from measurements.records import Counted, Flop

Columns = dict[str, int]
"""FLOP by the name of what they were counted for."""


def difference(counted: object, theory: object) -> list[str] | None:
    """One line for each number that differs; None where these are not two Work or two Flop."""
    if isinstance(counted, Flop) and isinstance(theory, Flop):
        return _lines(asdict(counted), asdict(theory))
    if isinstance(counted, Counted) and isinstance(theory, Counted):
        return _lines(_by_phase_and_op(counted), _by_phase_and_op(theory))
    return None


def columns(work: Counted) -> Columns:
    """FLOP of the work: all of it, contractions, and of both what was done again."""
    return {
        "flop": work.total,
        "contraction": work.contraction.total,
        "recomputed": work.recomputed,
        "recomputed_contraction": work.contraction.recomputed,
    }


def _by_phase_and_op(work: Counted) -> Columns:
    """The columns of each phase, and within it of each op: "backward aten.mm flop"."""
    found: Columns = {}
    for phase, part in work.by_phase().items():
        for op, ops in {"": part, **part.by_op()}.items():
            found |= {" ".join(filter(None, (phase, op, column))): n for column, n in columns(ops).items()}
    return found


def _lines(counted: Columns, theory: Columns) -> list[str]:
    """One line for each name whose numbers differ."""
    lines = []
    for name in {**counted, **theory}:
        left, right = counted.get(name, 0), theory.get(name, 0)
        if left != right:
            lines.append(f"{name}: counted {left:,}, theory {right:,}, differs by {left - right:+,}")
    return lines or ["the FLOP of every op agree; order, modules, shapes, arguments or bytes differ"]
