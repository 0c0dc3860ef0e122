"""What does counting cost? Ratios to the bare step, measured in turn in one run, and printed.

Each round runs every candidate once, and a ratio is the median over the rounds, with the interval that holds
the true median in 95 of 100 runs. A limit is broken where all of the interval lies above it.
`pytest -m bench` runs this; nothing here is part of the other tests.
"""

from __future__ import annotations

import gc
import math
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import models

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.runs import Run
    from measurements.step import Step

pytestmark = pytest.mark.bench

ROUNDS = 40


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call, the garbage of others collected before and none during it."""
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    function()
    passed = time.perf_counter() - start
    gc.enable()
    return passed


def in_turn(candidates: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each candidate, one of each in every round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for counted in [False] + [True] * rounds:
        for name, function in candidates.items():
            passed = seconds(function)
            if counted:
                times[name].append(passed)
    return times


class Ratio(NamedTuple):
    """A median, and the order statistics between which the true one lies in 95 of 100 runs."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """The median and the interval."""
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratios(times: dict[str, list[float]], base: str) -> dict[str, Ratio]:
    """Each candidate's time to the base's in the same round."""
    found = {}
    for name in [name for name in times if name != base]:
        column = sorted(a / b for a, b in zip(times[name], times[base], strict=True))
        outside = int(len(column) / 2 - 0.98 * math.sqrt(len(column)))  # the binomial's, by its normal form
        found[name] = Ratio(statistics.median(column), column[outside], column[-1 - outside])
    return found


@pytest.fixture
def show(request: pytest.FixtureRequest, run: Run, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """A function that prints one line of figures and saves it as a row of the run."""

    def line(**figures: Any) -> None:
        run.append({"kind": "bench", "experiment": [], "test": request.node.nodeid, **figures})
        parts = [
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in figures.items()
        ]
        with capsys.disabled():
            print(f"\n{request.node.name}: " + ", ".join(parts), flush=True)

    return line


def step_on_meta(arch: str, batch: int, optimizer: str | None) -> Step:
    """A step of that architecture where nothing is computed."""
    import torch

    from measurements.step import Step, make_optimizer

    with torch.device("meta"):
        model = models.build(arch)
        x, targets = torch.empty(batch, *models.input_shape(arch)), torch.zeros(batch, dtype=torch.long)
    chosen = make_optimizer(optimizer, model.parameters()) if optimizer else None
    return Step(model, (x,), targets, optimizer=chosen)


def counted(step: Step) -> Callable[[], object]:
    """The step under the suite's own counter, its total read."""
    from measurements import counting

    def run() -> int:
        with counting() as work:
            step.run()
        return work.total

    return run


def counted_by_torch(step: Step) -> Callable[[], object]:
    """The step under torch's FlopCounterMode, its total read."""
    from torch.utils.flop_counter import FlopCounterMode

    def run() -> int:
        with FlopCounterMode(display=False) as mode:
            step.run()
        return mode.get_total_flops()

    return run


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_counting_costs_little_more_than_the_step(optimizer: str, show: Callable[..., None]) -> None:
    """resnet152, batch 512: at most 1.15 of the bare step (SGD, new torch), else 1.25; below torch's own."""
    import torch

    step = step_on_meta("resnet152", 512, optimizer)
    times = in_turn({"bare": step.run, "counting": counted(step), "FlopCounterMode": counted_by_torch(step)})
    ratio = ratios(times, "bare")
    show(**ratio, seconds=statistics.median(times["bare"]), torch=torch.__version__)

    current = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
    assert ratio["counting"].low <= (1.15 if optimizer == "sgd" and current else 1.25)
    assert ratio["counting"].high < ratio["FlopCounterMode"].low


def test_the_time_does_not_depend_on_the_batch(show: Callable[..., None]) -> None:
    """resnet50, one image against 512: within 10 %."""
    steps = {f"batch {batch}": counted(step_on_meta("resnet50", batch, "sgd")) for batch in (1, 512)}
    ratio = ratios(in_turn(steps), "batch 1")
    show(**ratio)

    assert ratio["batch 512"].low < 1.1
    assert ratio["batch 512"].high > 0.9


def test_the_time_grows_linearly_with_depth(show: Callable[..., None]) -> None:
    """Applied 10, 100, 1000 times, DeeperConvNet takes as long each time within a factor of 1.5."""
    depths = (10, 100, 1000)
    steps = {str(n): counted(step_on_meta(f"deeper_conv_net_{n}", 8, "sgd")) for n in depths}
    times = in_turn(steps, rounds=5)
    ten, hundred, thousand = (statistics.median(times[str(n)]) for n in depths)
    early, late = (hundred - ten) / 90, (thousand - hundred) / 900
    show(microseconds_each_to_100=early * 1e6, microseconds_each_to_1000=late * 1e6)

    assert late < 1.5 * early


PEAK = """
import resource, sys, warnings
warnings.filterwarnings("ignore")
from tests.test_cost_of_counting import counted, step_on_meta
step = step_on_meta("resnet152", 512, "adam")
step.run()
{}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_megabytes(code: str) -> float:
    """Peak resident memory of a process that runs a step of resnet152, and the code after it."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK.format(code)], capture_output=True, text=True, check=True, timeout=300
    )
    return float(done.stdout)


def test_counting_needs_little_memory(show: Callable[..., None]) -> None:
    """Less than 200 MB more than the bare step."""
    bare = peak_megabytes("step.run()")
    counting = peak_megabytes("counted(step)()")
    show(bare_megabytes=bare, counting_megabytes=counting, more=counting - bare)

    assert counting - bare < 200


GIANT = """
import resource, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
from measurements import count_step
with torch.device("meta"):
    layer = nn.TransformerEncoderLayer(12288, 96, 4 * 12288, batch_first=True)
    model = nn.TransformerEncoder(layer, 96, enable_nested_tensor=False)
    x = torch.empty(1, 2048, 12288)
parameters = sum(p.numel() for p in model.parameters())
start = time.perf_counter()
work = count_step(model, x, optimizer="adam")
passed = time.perf_counter() - start
print(parameters, work.contraction.total, passed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def test_a_model_of_175_billion_parameters_is_counted_in_seconds(show: Callable[..., None]) -> None:
    """96 layers, 12288 wide, 2048 tokens, on meta: seconds, under 3 GB; near 6 x params x tokens."""
    done = subprocess.run(
        [sys.executable, "-c", GIANT], capture_output=True, text=True, check=True, timeout=300
    )
    parameters, flop, passed, gigabytes = (float(word) for word in done.stdout.split())
    show(
        parameters=parameters,
        flop=flop,
        seconds=passed,
        gigabytes=gigabytes,
        to_6ND=flop / (6 * parameters * 2048),
    )

    assert 170e9 < parameters < 180e9
    assert passed < 30
    assert gigabytes < 3
