"""What a person reads who asks which counters to believe on a model: a line for each counter and phase.

Made of a run's rows of the kind "agreement" alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

MOST = 5
"""Places that are named for what is not explained."""


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A paragraph for each model and batch; in it counters that are as the theory first."""
    rows = [row for row in rows if row["kind"] == "agreement"]
    said: list[str] = []
    for model in dict.fromkeys((row["axes"]["arch"], row["axes"]["batch"]) for row in rows):
        said.append(f"Which counters to believe on {model[0]}, batch {model[1]}:")
        here = [row for row in rows if (row["axes"]["arch"], row["axes"]["batch"]) == model]
        for row in sorted(here, key=_order):
            said += _lines(row)
    return said


def _order(row: Mapping[str, Any]) -> int:
    """The believable first."""
    if row.get("reason"):
        return 3
    return 2 if row["left"] else int(row["flop"] != row["theory"])


def _lines(row: Mapping[str, Any]) -> list[str]:
    head = f"  {row['counter']} {row['phase']}"
    if row.get("reason"):
        return [f"{head}: no number: {row['reason']}"]
    gap = row["flop"] - row["theory"]
    if not gap and not row["left"]:
        return [f"{head}: as the theory, {row['theory']:,} FLOP"]
    share = f" ({gap / row['theory']:+.2%})" if row["theory"] else ""
    causes = [f"    {cause}" for cause in cast("list[str]", row["causes"])]
    if not row["left"]:
        return [f"{head}: {gap:+,} FLOP{share}, all explained:", *causes]
    odd = [f"    {place}" for place in row["odd"][:MOST]]
    rest = (
        f"{row['left']:+,} FLOP of it not explained, in:" if odd else f"{row['left']:+,} FLOP not explained"
    )
    return [f"{head}: {gap:+,} FLOP{share}, {rest}", *odd, *causes]
