"""Numbers as people read them: exact with separators, scaled with a unit, ratios."""

from __future__ import annotations

from fractions import Fraction

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
NONE = "–"


def exact(number: int | None) -> str:
    """Every digit, with thousands separators."""
    return NONE if number is None else f"{number:,}"


def signed(number: int) -> str:
    """Every digit, with thousands separators and a sign."""
    return f"{number:+,}"


def scaled(number: int | None, unit: str = "") -> str:
    """Four digits and a prefix: "8.178 GFLOP"."""
    if number is None:
        return NONE
    power = min(max(0, len(str(abs(number))) - 1) // 3, len(PREFIXES) - 1)
    short = Fraction(number, 1000**power)
    if abs(round(short, 1)) >= 1000 and power < len(PREFIXES) - 1:  # 999,999 is 1.000 M
        power, short = power + 1, short / 1000
    digits = 0 if power == 0 else 3 - min(3, max(0, len(str(abs(int(short)))) - 1))
    return f"{float(short):,.{digits}f} {PREFIXES[power]}{unit}".strip()


def ratio(part: int | None, whole: int | None) -> Fraction | None:
    """The quotient; None where there is nothing to divide by."""
    return Fraction(part, whole) if part is not None and whole else None


def to_one(quotient: Fraction | None, digits: int = 3) -> str:
    """A ratio to 1, rounded."""
    return NONE if quotient is None else f"{float(quotient):,.{digits}f}"


def percent(quotient: Fraction) -> str:
    """A signed share in at most seven characters up to a million: "+0.69%", "+1971%", "<0.01%"."""
    share = float(quotient * 100)
    digits = 2 if abs(share) < 10 else 1 if abs(share) < 100 else 0
    if 0 < abs(share) < 0.005:
        return "<0.01%" if share > 0 else "-0.00%"
    return f"{share:+.{digits}f}%"
