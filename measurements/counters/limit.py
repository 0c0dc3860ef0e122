"""A counter that does not come back ends in a sentence, not in a run that hangs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from measurements.records import MeasurementError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SECONDS = 300.0
"""What a counter may take for one step."""

AGAIN = 0.001
"""Seconds until an alarm rings again that rang inside an ENTERING function."""

GRACE = 60.0
"""Seconds that it goes on so at most."""

CAUGHT = 10.0
"""Seconds until it rings again where the counter itself catches every error and goes on."""

ENTERING = ("__enter__", "__exit__", "_find_and_load")
"""Functions that no alarm may interrupt: those of a `with` statement, and of an import.

An error between two lines of them leaves a dispatch mode or a profiler switched on, or a module half
imported, for whatever is counted next. Between `__enter__` and its block, Python lets no alarm ring.
"""


class CounterError(MeasurementError):
    """A counter that cannot count this step here: one sentence that names what to change."""


@contextmanager
def limited(counter: str, seconds: float) -> Iterator[None]:
    """A block that raises CounterError when it takes longer than that.

    By an alarm, which only the main thread can have and which waits for the operation that is running, and
    GRACE seconds at most for an ENTERING function. It rings again where its error is lost: in a destructor
    and in what the garbage collector calls, at once; where the counter catches it, after CAUGHT seconds.
    Of two, one within the other, the first to ring is kept. Counters in a process of their own need none.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    others, _ = signal.getitimer(signal.ITIMER_REAL)
    if 0 < others <= seconds:
        yield
        return
    start = time.monotonic()

    def ring(_: int, frame: FrameType | None) -> None:
        if is_entering(frame) and time.monotonic() < start + seconds + GRACE:
            return  # it rings again
        signal.setitimer(signal.ITIMER_REAL, CAUGHT, AGAIN)
        raise CounterError(too_long(counter, seconds))

    def lost(error: UnraisableHookArgs) -> None:
        if isinstance(error.exc_value, CounterError):
            signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        else:
            others_hook(error)

    others_hook, sys.unraisablehook = sys.unraisablehook, lost
    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = others_hook
        if others:
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - start), AGAIN), AGAIN)


def is_entering(frame: FrameType | None) -> bool:
    """Whether the frame, or one that it was called from, is of an ENTERING function."""
    while frame is not None:
        if frame.f_code.co_name in ENTERING:
            return True
        frame = frame.f_back
    return False


def too_long(counter: str, seconds: float) -> str:
    """The sentence."""
    return (
        f"{counter} has no answer after {seconds:g} seconds; give a smaller step, or leave this counter out"
    )
