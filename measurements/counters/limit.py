"""A counter that does not come back ends in a sentence, not in a run that hangs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from measurements.records import MeasurementError

SECONDS = 300.0
"""What a counter may take for one step."""


class CounterError(MeasurementError):
    """A counter that cannot count this step here: one sentence that names what to change."""


@contextmanager
def limited(counter: str, seconds: float) -> Iterator[None]:
    """A block that raises CounterError when it takes longer than that.

    By an alarm, which only the main thread can have and which waits for the operation that is running;
    counters in a process of their own need none.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise CounterError(too_long(counter, seconds))

    handler = signal.signal(signal.SIGALRM, ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)
        signal.signal(signal.SIGALRM, handler)


def too_long(counter: str, seconds: float) -> str:
    """The sentence."""
    return (
        f"{counter} has no answer after {seconds:g} seconds; give a smaller step, or leave this counter out"
    )
