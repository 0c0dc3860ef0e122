"""Clocks: what pytest-benchmark reads before and after the step that it times.

A clock is called twice, and what it gave first is subtracted from what it gave last: seconds. Work on CUDA
is asynchronous: each clock waits for it, and none reads the time that Python needs to send it off.

wall       wall time, from an idle device to an idle device
event      on CUDA, from the start of the first kernel to the end of the last, by the device's own clock
profiler   torch.profiler: on CUDA the time of all kernels, added up, so that gaps between them do not count;
           on a CPU the time that some ATen operator was running
"""

# Torch is imported where a clock is made: the table is for whoever only needs the names.

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes to the terminal when it starts and stops


class Clock(Protocol):
    """What pytest-benchmark takes as a timer."""

    def __call__(self) -> Any:
        """A moment; of two, the later less the earlier is seconds between them."""


class Wall:
    """Wall time. synchronize: waits until the device is idle."""

    def __init__(self, synchronize: Callable[[], object]) -> None:
        """A clock for that device."""
        self.synchronize = synchronize

    def __call__(self) -> float:
        """Seconds since some moment, the device idle."""
        self.synchronize()
        return time.perf_counter()


@dataclass(frozen=True)
class Mark:
    """An event in the device's queue."""

    event: Any

    def __sub__(self, earlier: Mark) -> float:
        """Seconds on the device between two events; waits for the later one."""
        self.event.synchronize()
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class Event:
    """The device's own clock. backend: torch.cuda, or what has its `Event` and `synchronize`."""

    def __init__(self, backend: Any) -> None:
        """A clock for that device."""
        self.backend = backend
        self.started = False

    def __call__(self) -> Mark:
        """An event, after all work that was sent; the first of two on an idle device."""
        self.started = not self.started
        if self.started:
            self.backend.synchronize()
        event = self.backend.Event(enable_timing=True)
        event.record()
        return Mark(event)


class Profiler:
    """torch.profiler's clock; `kernels` are those of all profiles, seconds by name."""

    def __init__(self, device: str, synchronize: Callable[[], object]) -> None:
        """A clock for a device of that type."""
        self.device = device
        self.synchronize = synchronize
        self.kernels: dict[str, float] = {}
        self._profile: Any = None

    def __call__(self) -> float:
        """0 where it starts a profile; where it ends it, the seconds that it shows."""
        import torch

        self.synchronize()
        if self._profile is None:
            kinds = torch.profiler.ProfilerActivity
            self._profile = torch.profiler.profile(
                activities=[kinds.CUDA] if self.device == "cuda" else [kinds.CPU]
            )
            self._profile.__enter__()
            return 0.0
        events = trace(self.end())
        for name, seconds in kernels(events).items():
            self.kernels[name] = self.kernels.get(name, 0.0) + seconds
        return sum(kernels(events).values()) if self.device == "cuda" else busy(events)

    def end(self) -> Any:
        """Ends a profile that was started, and gives it back; None where there is none."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.__exit__(None, None, None)
        return profile


def trace(profile: Any) -> list[dict[str, Any]]:
    """The events of a profile, as in the trace that it writes for chrome://tracing: times in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Kinds of events that occupy the device. A gpu_user_annotation is a range around them, no work."""


def kernels(events: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Seconds of each kernel, copy and fill on the device, by name, those of one name added up."""
    found: dict[str, float] = {}
    for event in events:
        if event.get("cat") in ON_DEVICE:
            found[event["name"]] = found.get(event["name"], 0.0) + event["dur"] / 1e6
    return found


def busy(events: Iterable[dict[str, Any]]) -> float:
    """Seconds in which some ATen operator was running, on any thread; nested ones count once."""
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "cpu_op")
    total = end = 0.0
    for first, last in spans:
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total / 1e6


@dataclass(frozen=True)
class Row:
    """One clock. devices: the types that have it. make: from the device's type to the clock."""

    devices: tuple[str, ...]
    make: Callable[[str], Clock]


def synchronizer(device: str) -> Callable[[], object]:
    """What waits until a device of that type is idle; a CPU is done when a call returns."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _event(device: str) -> Event:
    import torch

    return Event(torch.cuda)


CLOCKS = {
    "wall": Row(("cpu", "cuda"), lambda device: Wall(synchronizer(device))),
    "event": Row(("cuda",), _event),
    "profiler": Row(("cpu", "cuda"), lambda device: Profiler(device, synchronizer(device))),
}
