"""What every counter's count costs, as a ratio to ours, which also counts backward and update.

Each counter runs in a process of its own, that peaks of memory are its own: once for what is imported and
looked up, then timed; a first time of five seconds or more is not repeated. Those that can run on meta, the
others on the CPU, where they compute.
`pytest -m bench` runs this; nothing here is part of the other tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from measurements.counters import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.bench

ARCHS, BATCHES = ("resnet50", "resnet152"), (1, 64)
ROUNDS = 3
OURS = "dispatch"

PROGRAM = """
import importlib, json, resource, sys, time, warnings
warnings.filterwarnings("ignore")
name, arch, batch, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
from measurements.counters import COUNTERS
row = COUNTERS[name]
sys.path[:0] = row.folders()
import torch, models
from measurements.step import Step, make_optimizer
with torch.device(row.device):
    model = models.build(arch)
    x, targets = torch.rand(batch, *models.input_shape(arch)), torch.zeros(batch, dtype=torch.long)
optimizer = make_optimizer("sgd", model.parameters()) if name == "dispatch" else None
step = Step(model, (x,), targets, optimizer=optimizer)
module, _, function = row.function.partition(":")
count = getattr(importlib.import_module(module), function)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seconds = []
while len(seconds) <= rounds and sum(seconds) < 5:
    start = time.perf_counter()
    count(step)
    seconds.append(time.perf_counter() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": min(seconds[1:] or seconds), "megabytes": (peak - before) / 1024}))
"""


def cost(name: str, arch: str, batch: int) -> dict[str, float]:
    """Seconds of one count, and megabytes of the process beyond those before the first."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, arch, str(batch), str(ROUNDS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def said(one: dict[str, float]) -> str:
    """Time and memory of a count."""
    return f"{one['seconds']:.2f} s, {one['megabytes']:.0f} MB"


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"b{batch:03}")
@pytest.mark.parametrize("arch", ARCHS)
def test_ours_counts_the_whole_step_while_others_count_the_forward(
    arch: str, batch: int, record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints a line for each counter as it is measured. None that sees backward too is faster than ours."""
    ours = cost(OURS, arch, batch)
    costs: dict[str, Any] = {OURS: ours}
    for name, row in COUNTERS.items():
        if row.package is None or row.why_not():
            continue
        costs[name] = cost(name, arch, batch)
        ratio = costs[name]["seconds"] / ours["seconds"]
        record("bench", axes={"arch": arch, "batch": batch}, counter=name, ratio=ratio, **costs[name])
        with capsys.disabled():
            print(
                f"\n{arch} batch {batch}: {name} {ratio:.2f} of ours "
                f"({said(costs[name])}; ours {said(ours)})",
                end="",
                flush=True,
            )

    both = [name for name in costs if name != OURS and len(COUNTERS[name].phases) > 1]
    assert all(costs[name]["seconds"] > ours["seconds"] for name in both)
