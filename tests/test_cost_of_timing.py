"""What does the suite's timing add to a step? At most 1 % against a bare loop, measured in turn in one run.

`pytest -m bench` runs this; nothing here is part of the other tests.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest

from measurements.clocks import CLOCKS
from tests.test_cost_of_counting import ratios

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.step import Step

pytestmark = pytest.mark.bench

ROUNDS = 40


def bare(step: Step, pool: list[tuple[Any, Any]], number: int) -> float:
    """One step as one would write it, and its seconds."""
    import time

    import torch

    x, targets = pool[number % len(pool)]
    assert step.optimizer is not None
    start = time.perf_counter()
    step.model.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(step.model(*x), targets).backward()  # type: ignore[no-untyped-call]
    step.optimizer.step()
    return time.perf_counter() - start


def test_a_timed_step_takes_as_long_as_a_bare_one(record: Callable[..., None]) -> None:
    """resnet18, 4 images of 64x64, on the CPU; the median of 40 rounds, and its interval."""
    import torch

    import models
    from measurements.step import Step, make_optimizer
    from measurements.timing import Rounds

    model = models.build("resnet18")
    step = Step(model, (torch.rand(4, 3, 64, 64),), torch.randint(10, (4,)))
    step.optimizer = make_optimizer("sgd", model.parameters())
    rounds, clock = Rounds(step, "step"), CLOCKS["wall"].make("cpu")
    pool = [((torch.rand(4, 3, 64, 64),), torch.randint(10, (4,))) for _ in range(4)]

    times: dict[str, list[float]] = {"bare": [], "timed": []}
    for number in range(-2, ROUNDS):
        alone = bare(step, pool, number)
        rounds.prepare()
        start = clock()
        rounds.work()
        passed = clock() - start
        if number >= 0:
            times["bare"].append(alone)
            times["timed"].append(passed)
    ratio = ratios(times, "bare")["timed"]
    print(f"\ntimed {ratio} of a bare step of {statistics.median(times['bare']):.3f} s")
    record("bench", ratio=ratio.median, low=ratio.low, high=ratio.high)

    assert ratio.low <= 1.01
