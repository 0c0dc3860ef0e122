"""A counter in this process that does not come back: ended by an alarm, where nothing is left half done."""

from __future__ import annotations

import gc
import signal
import sys
import time
from contextlib import contextmanager, nullcontext, suppress

import pytest

from measurements.counters import COUNTERS, Counter, CounterError, limit
from measurements.records import Phase


@pytest.fixture
def slow(tmp_path, monkeypatch) -> Counter:
    """A counter of another package, in this process, that does not come back."""
    (tmp_path / "slow_counter.py").write_text(
        "import time\ndef count(step):\n    while True: time.sleep(0.01)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(limit, "SECONDS", 0.5)
    return Counter("slow", "slow_counter:count", (Phase.FORWARD,), "MAC", "meta", "never", "pytest", "MIT")


def test_a_counter_in_this_process_that_hangs_is_ended(slow):
    """By an alarm, which is off afterwards."""
    import torch

    from measurements.step import Step

    with pytest.raises(CounterError, match=r"slow has no answer after 0\.5 seconds; give a smaller step"):
        slow(Step(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_alarm_waits_until_a_module_is_imported(tmp_path, monkeypatch):
    """It is whole, and the limit rings after that."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.3)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        import slow_module

        found.append(slow_module.whole)
        time.sleep(2)
        found.append("never")

    found = []
    with pytest.raises(CounterError, match="slow has no answer"), limit.limited("slow", 0.1):
        work()
    assert found == [True]


@pytest.mark.parametrize("seconds", [0.1, 0.3])
def test_an_alarm_waits_until_a_context_is_entered_or_left(seconds):
    """As a whole."""

    @contextmanager
    def slow():
        time.sleep(0.2)
        steps.append("entered")
        try:
            yield
        finally:
            time.sleep(0.2)
            steps.append("left")

    def work():
        with slow():
            time.sleep(0)
        time.sleep(2)
        steps.append("never")

    steps = []
    with pytest.raises(CounterError, match="slow has no answer"), limit.limited("slow", seconds):
        work()
    assert steps == ["entered", "left"]


def test_an_alarm_does_not_wait_without_end(monkeypatch):
    """A context that is never entered."""

    class Endless(nullcontext):
        def __enter__(self) -> None:
            while True:
                time.sleep(0.001)

    monkeypatch.setattr(limit, "GRACE", 0.1)
    with pytest.raises(CounterError, match="endless has no answer"), limit.limited("endless", 0.1), Endless():
        pass


def in_destructor(work):
    """Python only prints an error there."""

    class Slow:
        def __del__(self) -> None:
            work()

    Slow()


def in_garbage_collection(work):
    """As above; hypothesis and torch both ask to be called there."""

    def callback(*_: object) -> None:
        gc.callbacks.remove(callback)
        work()

    gc.callbacks.append(callback)
    gc.collect()


def in_caught_block(work):
    """As a counter does that tries one way, then the next."""
    with suppress(Exception):
        work()


@pytest.mark.parametrize("place", [in_destructor, in_garbage_collection, in_caught_block])
def test_an_alarm_whose_error_is_lost_rings_again(place, monkeypatch):
    """It ends the block all the same, and nothing is printed of the lost one."""
    monkeypatch.setattr(limit, "CAUGHT", 0.2)
    hook = sys.unraisablehook

    def work():
        place(lambda: time.sleep(0.3))
        steps.append("went on")
        time.sleep(2)
        steps.append("never")

    steps = []
    with pytest.raises(CounterError, match="slow has no answer"), limit.limited("slow", 0.1):
        work()
    assert "never" not in steps
    assert sys.unraisablehook is hook
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_another_error_of_a_destructor_is_told_as_ever(monkeypatch):
    """By the hook that was there before."""

    class Wrong:
        def __del__(self) -> None:
            raise ValueError("of the model's own")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: told.append(str(error.exc_value)))
    with limit.limited("quick", 5):
        Wrong()
    assert told == ["of the model's own"]


@pytest.mark.parametrize(("outer", "inner", "rings"), [(0.1, 5, "outer"), (5, 0.1, "inner")])
def test_of_two_limits_the_first_to_ring_is_kept(outer, inner, rings):
    """One within the other; afterwards the outer one goes on, and at the end none is left."""
    with pytest.raises(CounterError, match=rf"{rings} has no answer after 0\.1 seconds"):  # noqa: SIM117
        with limit.limited("outer", outer), limit.limited("inner", inner):
            time.sleep(2)

    def work():
        with limit.limited("inner", 0.1):
            time.sleep(0)
        time.sleep(2)

    with pytest.raises(CounterError, match="outer"), limit.limited("outer", 0.2):
        work()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_the_limit_is_kept_by_every_counter_of_another_package(monkeypatch):
    """A model whose forward does not end, interrupted anywhere: no mode of torch stays on."""
    import torch

    from measurements.step import Step

    class Endless(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while True:
                x = x + 1

    for name in ("flop_counter_mode", "fvcore", "torchinfo"):
        if COUNTERS[name].why_not() is None:
            for moment in range(30):
                monkeypatch.setattr(limit, "SECONDS", 0.02 + moment / 2000)
                with pytest.raises(CounterError, match=f"{name} has no answer"):
                    COUNTERS[name](Step(Endless(2, 2), (torch.ones(1, 2),)))
                assert torch._C._len_torch_dispatch_stack() == 0
