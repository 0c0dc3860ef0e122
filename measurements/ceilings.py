"""Measured ceilings: the best rates that this device shows in the run in which steps are timed.

The best of all rounds counts, since noise only ever slows a device down. A round is short, and rounds are
taken between the timed steps, so that clocks, temperature and neighbours are those of the steps.

matmul   square matrices, 2 · n³ FLOP
copy     a buffer larger than any cache, read once and written once: 2 · its size in bytes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from measurements.clocks import CLOCKS, Clock
from measurements.devices import DeviceError, driver_peak, gpu
from measurements.precision import AUTOCAST, tf32
from measurements.utilization import Peak

SIDES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
"""Sides of the matrices, by type of device: which one is fastest, the device decides."""

BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}
"""Size of the buffer, by type of device."""


SLOW = 0.1
"""Seconds of a product after which no larger one is tried."""


@dataclass
class Ceiling:
    """The best rates so far. device: "cpu" or "cuda". dtype: one of AUTOCAST."""

    device: str
    dtype: str
    flop_per_s: float = 0.0
    bytes_per_s: float = 0.0
    side: int = 0
    rounds: int = 0

    def measure(self, rounds: int = 1) -> None:
        """Takes so many rounds, each of every size once; the memory for it is free afterwards."""
        clock = CLOCKS["event" if self.device == "cuda" else "wall"].make(self.device)
        with torch.no_grad(), tf32(self.dtype == "tf32"):
            self._products(clock, rounds)
            self._copies(clock, rounds)
        self.rounds += rounds

    def _products(self, clock: Clock, rounds: int) -> None:
        dtype = AUTOCAST[self.dtype] or torch.float32
        for side in SIDES[self.device]:
            a, b, out = (torch.rand(side, side, device=self.device).to(dtype) for _ in range(3))
            seconds = _best(clock, rounds, partial(torch.mm, a, b, out=out))
            if 2 * side**3 / seconds > self.flop_per_s:
                self.flop_per_s, self.side = 2 * side**3 / seconds, side
            if seconds > SLOW:
                break

    def _copies(self, clock: Clock, rounds: int) -> None:
        source, target = (
            torch.zeros(BYTES[self.device], dtype=torch.uint8, device=self.device) for _ in "ab"
        )
        seconds = _best(clock, rounds, lambda: target.copy_(source))
        self.bytes_per_s = max(self.bytes_per_s, 2 * source.nbytes / seconds)

    def peak(self) -> Peak:
        """The ceiling as the others are given."""
        source = f"best of {self.rounds} rounds, matmul of side {self.side}"
        return Peak("measured", self.flop_per_s, source, self.bytes_per_s)


def _best(clock: Clock, rounds: int, work: Callable[[], Any]) -> float:
    """Seconds of the fastest call, after one that loads kernels and touches memory."""
    work()
    best = math.inf
    for _ in range(rounds):
        start = clock()
        work()
        best = min(best, float(clock() - start))
    return best


def known(device: str, dtype: str, given: float | None) -> list[Peak]:
    """Ceilings that need no measurement, the one to be believed first: given, datasheet, driver.

    given: FLOP/s, above any other where there is one. A CPU has no datasheet here. The driver's is that of
    float32; what neither it nor a datasheet knows is left out.
    """
    found = [] if given is None else [Peak("--peak", given, "given with --peak")]
    if device == "cuda":
        name = torch.cuda.get_device_name()
        with suppress(DeviceError):
            row = gpu(name)
            found.append(Peak("datasheet", row.peak(dtype), f"{row.name}: {row.source}", row.bytes_per_s))
        if dtype == "fp32":
            with suppress(DeviceError):
                flop_per_s, source = driver_peak()
                found.append(Peak("driver", flop_per_s, source))
    return found
