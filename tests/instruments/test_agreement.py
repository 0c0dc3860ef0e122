"""Who asks about one model reads a line for each counter: as the theory, explained, or where it is not."""

from __future__ import annotations

import pytest

from measurements.agreement import MOST, lines

ROW = {
    "kind": "agreement",
    "axes": {"arch": "our:Net", "batch": 2},
    "counter": "fvcore",
    "phase": "forward",
    "flop": 100,
    "theory": 100,
    "left": 0,
    "causes": [],
    "odd": [],
}
CAUSE = "aten.addmm: +8, a bias"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, ["  fvcore forward: as the theory, 100 FLOP"]),
        (
            {"flop": 108, "causes": [CAUSE]},
            ["  fvcore forward: +8 FLOP (+8.00%), all explained:", f"    {CAUSE}"],
        ),
        (
            {"flop": 58, "left": -50, "causes": [CAUSE], "odd": ["Net.att (aten.bmm): -50"]},
            [
                "  fvcore forward: -42 FLOP (-42.00%), -50 FLOP of it not explained, in:",
                "    Net.att (aten.bmm): -50",
                f"    {CAUSE}",
            ],
        ),
        ({"flop": 7, "theory": 0, "left": 7}, ["  fvcore forward: +7 FLOP, +7 FLOP not explained"]),
        ({"reason": "it fails"}, ["  fvcore forward: no number: it fails"]),
        (  # a counter that differs by as much as the rows say it should not
            {"left": -8, "causes": [CAUSE]},
            ["  fvcore forward: +0 FLOP (+0.00%), -8 FLOP not explained", f"    {CAUSE}"],
        ),
    ],
)
def test_a_row_is_said_in_a_line_with_its_reasons(row, said):
    """Behind the head of the model."""
    assert lines([ROW | row]) == ["Which counters to believe on our:Net, batch 2:", *said]


def test_the_believable_come_first():
    """As the theory, explained, not explained, without a number; other rows of the run are no part of it."""
    rows = [
        ROW | {"counter": "a", "reason": "it fails"},
        ROW | {"counter": "b", "flop": 1, "left": -99},
        ROW | {"counter": "c", "flop": 108},
        ROW | {"counter": "d"},
        {"kind": "count"},
    ]

    assert [line.split()[0] for line in lines(rows)[1:]] == ["d", "c", "b", "a"]


def test_the_largest_places_are_named():
    """The run has all."""
    places = [f"Net.{n} (aten.mm): -{9 - n}" for n in range(8)]

    assert len(lines([ROW | {"flop": 0, "left": -100, "odd": places}])) == 2 + MOST


def test_each_model_and_batch_has_a_paragraph():
    """In the order in which they were counted."""
    rows = [ROW | {"axes": {"arch": arch, "batch": batch}} for arch in ("b", "a") for batch in (1, 64)]

    heads = [line for line in lines(rows) if not line.startswith(" ")]
    assert heads == [
        f"Which counters to believe on {arch}, batch {batch}:" for arch in ("b", "a") for batch in (1, 64)
    ]


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding="same")
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))
"""

TEST = """
import pytest
from tests.test_counters_agree import *
pytestmark = pytest.mark.experiment("A1")
"""


@pytest.mark.counters
def test_a_users_own_model_is_explained_at_the_end(suite, tmp_path):
    """The tracer has no formula for padding='same'; FlopCounterMode is right."""
    pytest.importorskip("fvcore")
    (tmp_path / "own_net.py").write_text(NET)
    end = suite(TEST, "--arch=own_net:Net", "--input-shape=3x8x8", "--counter=fvcore,flop_counter_mode")

    assert "flop_counter_mode backward: as the theory, " in end.stdout
    assert "fvcore forward: -13,824 FLOP (-99.4" in end.stdout
    assert "    Net.conv (aten.convolution): -13,824" in end.stdout
