"""Utilization: the FLOP that a step asks for, over its seconds times the device's peak.

    utilization = FLOP / (seconds x peak FLOP/s)

FLOP are contractions, forward and backward (a model's FLOP utilization; what is done again is in no count).
Two conventions, over the same peak, in which a multiply-add is 2:

fma2   a multiply-add is 2 FLOP in the count, too
fma1   a multiply-add is 1 FLOP in the count, as in study A: half of the above

Study A: "Measuring FLOP/s empirically", Epoch, 2021-11-29.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from measurements import pages
from measurements.records import MeasurementError

CONVENTIONS = {"fma2": 1, "fma1": 2}
"""Name -> what a count in which a multiply-add is 2 is divided by."""

FEWER = re.compile("winograd|fft", re.IGNORECASE)
"""In the names of kernels that convolve with fewer multiplications than the dense count has."""


class UtilizationError(MeasurementError):
    """A utilization that cannot be: the sentence has numerator, denominator and their sources."""


@dataclass(frozen=True)
class Peak:
    """A ceiling: FLOP/s in a dtype, and where it is from ("datasheet", "driver", "measured", "--peak").

    source: the datasheet, or how it was measured. bytes_per_s: of the same source, where it has one.
    """

    kind: str
    flop_per_s: float
    source: str
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class Utilization:
    """One ratio with all that went into it. flop: as the convention counts. reason: why it is above 1."""

    flop: int
    seconds: float
    peak: Peak
    dtype: str
    counter: str
    convention: str
    reason: str | None = None

    @property
    def value(self) -> float:
        """0 to 1; above 1 only for a reason."""
        return self.flop / (self.seconds * self.peak.flop_per_s)

    def checked(self) -> Utilization:
        """The same.

        Raises: UtilizationError where it is above 1 without a reason.
        """
        if self.value > 1 and not self.reason:
            raise UtilizationError(
                f"utilization {self.value:.3f}: {self.flop:,} FLOP ({self.counter}, {self.convention}) in "
                f"{self.seconds:.6g} s x {self.peak.flop_per_s:.6g} FLOP/s ({self.dtype}, "
                f"{self.peak.source}), and no kernel that multiplies less than the dense count; the peak or "
                "the count is wrong"
            )
        return self

    def columns(self) -> dict[str, object]:
        """The columns of a row of the saved run."""
        return {
            "flop": self.flop,
            "seconds": self.seconds,
            "peak": self.peak.kind,
            "peak_flop_per_s": self.peak.flop_per_s,
            "peak_source": self.peak.source,
            "dtype": self.dtype,
            "counter": self.counter,
            "convention": self.convention,
            "utilization": self.value,
            "reason": self.reason,
        }


def utilizations(
    flop: int, seconds: float, peaks: Iterable[Peak], dtype: str, counter: str, kernels: Mapping[str, float]
) -> list[Utilization]:
    """Each peak by each convention. flop: a multiply-add is 2. kernels: seconds by name.

    Raises: UtilizationError where the seconds are none.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise UtilizationError(f"no utilization in {seconds} seconds; time a larger step")
    return [
        Utilization(flop // part, seconds, peak, dtype, counter, convention, fewer(kernels))
        for peak in peaks
        for convention, part in CONVENTIONS.items()
    ]


def fewer(kernels: Mapping[str, float]) -> str | None:
    """Which kernels multiply less than the dense count, and their share of the time; None where none does."""
    found = {name: seconds for name, seconds in kernels.items() if FEWER.search(name)}
    if not found:
        return None
    share = sum(found.values()) / sum(kernels.values())
    return (
        f"{share:.0%} of the kernels' time convolves with fewer multiplications: {', '.join(sorted(found))}"
    )


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a terminal shows of a run's utilizations: a line for each timing, all peaks beside each other."""
    timings: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "utilization":
            timings.setdefault(row["test"], []).append(row)
    if not timings:
        return []
    kinds = list(dict.fromkeys(row["peak"] for found in timings.values() for row in found))
    titles = ["architecture", "device", "batch", "dtype", "clock", "what", "seconds", "TFLOP/s"]
    titles += [f"of {kind}" for kind in kinds]
    table = pages.columns([titles, *(_line(found, kinds) for found in timings.values())])
    return ["Utilization (as study A counts, a multiply-add is 1) <= the roofline's bound:", *table]


def _line(found: list[Mapping[str, Any]], kinds: list[str]) -> list[str]:
    axes, first = found[0]["axes"], found[0]
    what = axes.get("method", axes["phase"])
    by = {(row["peak"], row["convention"]): row for row in found}
    ours = [by.get((kind, "fma2")) for kind in kinds]
    cells = [
        f"{row['utilization']:.3f} ({by[row['peak'], 'fma1']['utilization']:.3f})"
        + (f" <= {row['bound']:.2f}" if row["bound"] else "")
        if row
        else "-"
        for row in ours
    ]
    rate = f"{first['flop'] / first['seconds'] / 1e12:.4g}"
    place = [str(axes.get(name, "-")) for name in ("arch", "device", "batch", "dtype", "clock")]
    return [*place, str(what), f"{first['seconds']:.4g}", rate, *cells]


def parse_peak(text: str) -> float:
    """FLOP/s of "9.3e12" or "9.3T" (k, M, G, T, P).

    Raises: ValueError where it is no such number above 0.
    """
    match = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)([kMGTP]?)", text.strip())
    try:
        value = float(match[1]) * 1000 ** " kMGTP".index(match[2] or " ") if match else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text!r} is not FLOP/s above 0; give it as 9.3e12 or 9.3T")
    return value
