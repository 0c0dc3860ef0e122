"""Clocks wait for asynchronous work, and read it in seconds: on a device whose time the test sets."""

from __future__ import annotations

import time

import pytest

from measurements import clocks
from measurements.clocks import CLOCKS, Event, Profiler, Wall, busy, kernels


class Queue:
    """A device that works later: `send` returns at once, its work is done when somebody waits.

    now: seconds of the device's own clock when the queue is empty.
    """

    def __init__(self):
        """Idle."""
        self.now = 100.0
        self.sent = []
        self.waits = 0

    def send(self, seconds):
        """Work that will take so long."""
        self.sent.append(seconds)

    def synchronize(self):
        """Waits until the queue is empty."""
        self.waits += 1
        self.now += sum(self.sent)
        self.sent.clear()

    def Event(self, *, enable_timing):  # noqa: N802
        """As torch.cuda.Event."""
        assert enable_timing
        return Moment(self)


class Moment:
    """An event of that device: it happens when what was sent before it is done."""

    def __init__(self, device):
        """In the queue of that device."""
        self.device = device
        self.when = None

    def record(self):
        """Behind all that was sent."""
        self.when = self.device.now + sum(self.device.sent)

    def synchronize(self):
        """Waits for it."""
        self.device.synchronize()

    def elapsed_time(self, later):
        """Milliseconds, as CUDA has it."""
        assert self.device.now >= later.when, "read before it happened: CUDA raises an error there"
        return 1e3 * (later.when - self.when)


def test_events_time_the_device_and_not_the_sending():
    """Two kernels of 2 and 3 seconds are 5, though sending them takes no time."""
    device = Queue()
    clock = Event(device)

    start = clock()
    device.send(2.0)
    device.send(3.0)
    end = clock()

    assert end - start == pytest.approx(5.0)


def test_events_leave_out_what_was_sent_before():
    """The first of two waits for an idle device: what was sent before is in no time."""
    device = Queue()
    clock = Event(device)
    for _ in range(2):  # and so in each round
        device.send(7.0)
        start = clock()
        device.send(2.0)
        assert clock() - start == pytest.approx(2.0)


def test_a_wall_clock_waits_for_the_device(monkeypatch):
    """Without waiting, it would read how long the sending took."""
    device = Queue()
    monkeypatch.setattr(time, "perf_counter", lambda: device.now)
    clock = Wall(device.synchronize)

    device.send(7.0)
    start = clock()
    device.send(2.0)
    device.send(3.0)

    assert clock() - start == pytest.approx(5.0)
    assert device.waits == 2


TRACE = [
    {"ph": "X", "cat": "kernel", "name": "winograd_fwd", "ts": 10, "dur": 40},
    {"ph": "X", "cat": "kernel", "name": "winograd_fwd", "ts": 60, "dur": 20},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 90, "dur": 5},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "Optimizer.step#SGD.step", "ts": 0, "dur": 100},
    {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "ts": 0, "dur": 30},
    {"ph": "X", "cat": "cpu_op", "name": "aten::convolution", "ts": 5, "dur": 20},
    {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "ts": 25, "dur": 15},
    {"ph": "X", "cat": "cpu_op", "name": "aten::sum", "ts": 50, "dur": 1},
    {"ph": "M", "name": "process_name"},
]


def test_kernels_are_added_up_and_ranges_around_them_are_not():
    """By hand: 40 + 20 microseconds of one kernel, 5 of a copy."""
    assert kernels(TRACE) == pytest.approx({"winograd_fwd": 60e-6, "Memcpy DtoD": 5e-6})


def test_operators_within_one_another_count_once():
    """By hand: 0 to 40, and 50 to 51."""
    assert busy(TRACE) == pytest.approx(41e-6)


def test_the_profilers_clock_reads_each_profile(monkeypatch):
    """A real profile of a real step on the CPU; its time is below the wall's around it."""
    import torch

    clock = CLOCKS["profiler"].make("cpu")
    x = torch.rand(300, 300)
    for _ in range(2):
        before = time.perf_counter()
        start = clock()
        for _ in range(5):
            x @ x
        seconds = clock() - start
        assert 0 < seconds < time.perf_counter() - before


def test_the_profilers_clock_on_a_gpu_sums_kernels(monkeypatch):
    """And keeps their names, those of all rounds together."""
    monkeypatch.setattr(clocks, "trace", lambda profile: TRACE)
    clock = Profiler("cuda", lambda: None)
    monkeypatch.setattr(clock, "end", lambda: setattr(clock, "_profile", None))
    for _ in range(2):
        clock._profile = object()
        assert clock() == pytest.approx(65e-6)
    assert clock.kernels == pytest.approx({"winograd_fwd": 120e-6, "Memcpy DtoD": 10e-6})


def test_a_profile_that_was_interrupted_is_ended():
    """Else the next one could not start."""
    import torch

    clock = CLOCKS["profiler"].make("cpu")
    clock()
    clock.end()
    assert clock.end() is None
    with torch.profiler.profile():
        pass
