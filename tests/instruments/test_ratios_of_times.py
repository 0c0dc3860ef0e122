"""Utilization is what it says, refuses what cannot be, and reads its peak as people write it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.utilization import Peak, UtilizationError, fewer, parse_peak, utilizations

P100 = Peak("datasheet", 9.3e12, "Tesla P100-PCIE-16GB: datasheet", 732e9)


def one(flop, seconds, kernels=None, peak=P100):
    """Utilizations by one peak."""
    return utilizations(flop, seconds, [peak], "fp32", "dispatch", kernels or {})


def test_both_conventions_stand_side_by_side():
    """ResNet-50 on a P100 SXM2, 219 images/s: 0.506 of 10.6 TFLOP/s, half of it where a multiply-add is 1."""
    flop = 64 * (8174313472 + 16112599040)
    ours, study = one(flop, 64 / 219, peak=Peak("datasheet", 10.6e12, "P100 SXM2"))

    assert (ours.convention, study.convention) == ("fma2", "fma1")
    assert ours.value == pytest.approx(219 * 24286912512 / 10.6e12)
    assert ours.value == 2 * study.value


@given(st.integers(1, 10**15), st.floats(1e-6, 1e6), st.floats(1e9, 1e16))
def test_a_ratio_is_flop_over_seconds_times_peak(flop, seconds, peak):
    """Every row holds what its ratio is made of."""
    for each in one(2 * flop, seconds, peak=Peak("--peak", peak, "given")):
        columns = each.columns()
        assert columns["utilization"] == columns["flop"] / (columns["seconds"] * columns["peak_flop_per_s"])
        assert columns["peak"] == "--peak"


def test_above_one_is_an_error_that_names_all_parts():
    """Numerator, denominator, and where they are from."""
    first, half = one(20_000_000_000_000, 1.0)

    with pytest.raises(UtilizationError) as error:
        first.checked()
    for part in ("2.151", "20,000,000,000,000 FLOP", "dispatch", "9.3e+12", "P100", "fp32", "fma2"):
        assert part in str(error.value)
    assert half.value > 1


def test_above_one_with_a_reason_is_shown_with_it():
    """Winograd and FFT convolve with fewer multiplications; their share of the time is said."""
    kernels = {"volta_winograd_3x3": 3.0, "fft2d_r2c": 1.0, "sgemm": 4.0}
    first, _ = one(20_000_000_000_000, 1.0, kernels)

    assert first.checked() is first
    assert first.reason.startswith("50% of the kernels' time")
    assert "fft2d_r2c, volta_winograd_3x3" in first.reason
    assert fewer({"sgemm": 4.0}) is None
    assert fewer({}) is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_no_time_no_utilization(seconds):
    """One sentence."""
    with pytest.raises(UtilizationError, match=r"no utilization in .* seconds; time a larger step"):
        one(10, seconds)


@pytest.mark.parametrize(
    ("text", "value"), [("9.3e12", 9.3e12), ("9.3T", 9.3e12), ("67", 67), ("1P", 1e15), ("120G", 120e9)]
)
def test_a_peak_as_people_write_it(text, value):
    """With or without a prefix."""
    assert parse_peak(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "0", "0T", "-1e12", "nan", "inf", "9.3TFLOPS", "1e400", "9.3.1T", "T", "."]
)
def test_what_is_no_peak_is_refused(text):
    """With how to write one."""
    with pytest.raises(ValueError, match=r"is not FLOP/s above 0; give it as 9\.3e12 or 9\.3T"):
        parse_peak(text)
