"""Least times and bounds against numbers worked out by hand, and what must hold for any operations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.records import MeasurementError, OpRecord, Phase
from measurements.roofline import Part, Roof, bound, least_seconds, model_flop, parts

ROOF = Roof(flop_per_s=100, bytes_per_s=10)  # ridge: 10 FLOP/byte

PRODUCT = OpRecord(Phase.FORWARD, "aten.mm", "Net.a", flop=210, contraction=200, read=6, written=4)
NARROW = OpRecord(Phase.BACKWARD, "aten.mm", "Net.b", flop=50, contraction=50, read=20, written=20)
RELU = OpRecord(Phase.FORWARD, "aten.relu", "Net.a", flop=5, read=5, written=5)
AGAIN = OpRecord(Phase.BACKWARD, "aten.mm", "Net.a", recomputed=300, recomputed_contraction=300, read=10)
UPDATE = OpRecord(Phase.UPDATE, "aten.add_", flop=8, contraction=0, read=20, written=10)
MUON = OpRecord(Phase.UPDATE, "aten.mm", flop=100, contraction=100, read=1)
VIEW = OpRecord(Phase.FORWARD, "aten.view", "Net.a")


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        (PRODUCT, 2.1),  # 210 / 100 against 10 / 10: all work, not only its contractions
        (NARROW, 4.0),  # 50 / 100 against 40 / 10
        (RELU, 1.0),
        (AGAIN, 3.0),  # work done again takes time
        (UPDATE, 3.0),
        (VIEW, 0.0),
    ],
    ids=["product", "narrow", "relu", "again", "update", "view"],
)
def test_an_operation_takes_the_longer_of_its_two_times(record, seconds):
    """FLOP over peak, bytes over bandwidth."""
    assert ROOF.seconds(record) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((PRODUCT,), 200 / 100 / 2.1),
        ((PRODUCT, NARROW, RELU, VIEW), 250 / 100 / 7.1),
        ((PRODUCT, NARROW, RELU, UPDATE), 250 / 100 / 10.1),  # an update takes time and is no model work
        ((PRODUCT, MUON), 200 / 100 / 3.1),  # nor are its products
        ((PRODUCT, AGAIN), 200 / 100 / 5.1),  # nor is what is done again
        ((RELU,), 0),
    ],
    ids=["one", "step", "update", "muon", "again", "no_contraction"],
)
def test_the_bound_is_contractions_over_what_the_peak_could_do_meanwhile(records, expected):
    """Forward and backward count, everything takes time."""
    assert bound(records, ROOF) == pytest.approx(expected)
    assert bound(iter(records), ROOF) == bound(records, ROOF)


@pytest.mark.parametrize("records", [(), (VIEW,)], ids=["none", "a_view"])
def test_without_time_there_is_no_bound(records):
    """A number that an input lacks is no number."""
    with pytest.raises(MeasurementError, match="no operation works or moves bytes"):
        bound(records, ROOF)


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", ["flop_per_s", "bytes_per_s"])
def test_a_roof_is_two_rates_above_0(name, rate):
    """Whichever is wrong is named."""
    with pytest.raises(MeasurementError, match=f"{name} is {rate}; give a rate above 0"):
        Roof(**{"flop_per_s": 1, "bytes_per_s": 1, name: rate})


def test_parts_say_what_sets_the_bound():
    """Longest first; a part of both kinds says for how long memory sets its time."""
    found = parts((VIEW, RELU, PRODUCT, NARROW), ROOF)

    assert found == (
        Part("aten.mm", 2, 260, 50, pytest.approx(6.1), pytest.approx(4.0)),
        Part("aten.relu", 1, 5, 10, 1.0, 1.0),
        Part("aten.view", 1, 0, 0, 0.0, 0.0),
    )
    assert [part.bound_by for part in found] == ["memory", "memory", "arithmetic"]
    assert [part.intensity for part in found] == [5.2, 0.5, None]
    by_module = parts((PRODUCT, NARROW), ROOF, lambda record: record.module)
    assert [(part.name, part.bound_by) for part in by_module] == [
        ("Net.b", "memory"),
        ("Net.a", "arithmetic"),
    ]


counts = st.integers(0, 10**15)
operations = st.builds(
    lambda phase, op, flop, other, again, read, written: OpRecord(
        *(phase, op), flop=flop + other, contraction=flop, recomputed=again, read=read, written=written
    ),
    *(st.sampled_from(Phase), st.sampled_from("abc"), counts, counts, counts, counts, counts),
)
steps = st.lists(operations, min_size=1, max_size=12).filter(
    lambda step: any(record.flop or record.recomputed or record.bytes for record in step)
)
rates = st.floats(1e3, 1e16)
roofs = st.builds(Roof, rates, rates)
ROUNDING = 1 + 1e-12


@given(steps, roofs)
def test_a_bound_is_a_utilization(step, roof):
    """0…1, whatever the operations."""
    assert 0 <= bound(step, roof) <= ROUNDING


@given(steps, roofs, st.floats(1, 1e3))
def test_faster_memory_never_lowers_the_bound(step, roof, factor):
    """In the limit only arithmetic is left."""
    faster = Roof(roof.flop_per_s, roof.bytes_per_s * factor)

    assert bound(step, roof) <= bound(step, faster) * ROUNDING


@given(steps, roofs, st.floats(1, 1e3))
def test_a_higher_peak_is_used_less(step, roof, factor):
    """The step is faster at best, but by no more than the peak."""
    higher = Roof(roof.flop_per_s * factor, roof.bytes_per_s)

    assert bound(step, higher) <= bound(step, roof) * ROUNDING
    assert least_seconds(step, higher) <= least_seconds(step, roof) * ROUNDING


@given(steps, roofs)
def test_contractions_without_bytes_reach_the_peak(step, roof):
    """Nothing else keeps them from it."""
    only = [
        record._replace(phase=Phase.FORWARD, flop=record.contraction, recomputed=0, read=0, written=0)
        for record in step
    ]
    if model_flop(only):
        assert bound(only, roof) == pytest.approx(1)


@given(steps, roofs)
def test_parts_sum_to_the_whole(step, roof):
    """No operation is lost, none is in two parts."""
    found = parts(step, roof)

    assert sum(part.runs for part in found) == len(step)
    assert sum(part.bytes for part in found) == sum(record.bytes for record in step)
    assert math.fsum(part.seconds for part in found) == pytest.approx(least_seconds(step, roof))
    assert [part.seconds for part in found] == sorted((part.seconds for part in found), reverse=True)
    assert all(part.memory_seconds <= part.seconds * ROUNDING for part in found)
