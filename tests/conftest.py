"""Fixtures of the timed experiments: the step on its device, what it costs, and the clock that times it.

Theory is asserted before anything is timed; what was timed is saved before it is judged.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pytest

from measurements import METHOD
from measurements.clocks import CLOCKS, Profiler
from measurements.records import MeasurementError
from measurements.roofline import Roof, bound, model_flop
from measurements.utilization import Peak, Utilization, utilizations

if TYPE_CHECKING:
    from measurements.ceilings import Ceiling
    from measurements.options import Given
    from measurements.records import Counted
    from measurements.step import Step

ROUNDS = {"cpu": 3, "cuda": 10}
WARM_UP = {"cpu": 1, "cuda": 3}


@pytest.fixture
def trained_step(step: Step, device: str, dtype: str) -> Iterator[Step]:
    """The step on its device, in its dtype; TF32 is on where that is the dtype, and nowhere else."""
    from measurements.precision import in_precision, tf32

    with tf32(dtype == "tf32") if device == "cuda" else nullcontext():
        yield in_precision(step, dtype, device)


@pytest.fixture
def timer(request: pytest.FixtureRequest, device: str) -> Iterator[Any]:
    """The clock of the axis, else the device's own, which pytest-benchmark is told to use."""
    axis = "clock" in request.fixturenames
    name = request.getfixturevalue("clock") if axis else "event" if device == "cuda" else "wall"
    clock = CLOCKS[name].make(device)
    clock.__name__ = name  # what pytest-benchmark saves of it
    request.node.add_marker(pytest.mark.benchmark(timer=clock))
    yield clock
    if isinstance(clock, Profiler):
        clock.end()


@pytest.fixture(scope="session")
def ceilings() -> dict[tuple[str, str], Ceiling]:
    """What has been measured of this machine, by device and dtype."""
    return {}


@pytest.fixture
def ceiling(ceilings: dict[tuple[str, str], Ceiling], device: str, dtype: str) -> Iterator[Ceiling]:
    """The device's measured ceiling: three rounds at first, one before and one after each test."""
    from measurements.ceilings import Ceiling

    found = ceilings.setdefault((device, dtype), Ceiling(device, dtype))
    found.measure(1 if found.rounds else 3)
    return found


@dataclass(frozen=True)
class Timing:
    """Seconds of each round, and the utilizations that follow from `flop`."""

    seconds: list[float]
    utilizations: list[Utilization]

    def checked(self) -> None:
        """Raises UtilizationError where one is above 1 without a reason."""
        for utilization in self.utilizations:
            utilization.checked()


@pytest.fixture
def time_rounds(
    given: Given,
    axes: dict[str, object],
    record: Callable[..., None],
    timer: Any,
    benchmark: Any,
    ceiling: Ceiling,
    device: str,
    dtype: str,
) -> Callable[..., Timing]:
    """A function that times a phase of a step, and saves the rounds and each utilization as rows.

    `time_rounds(step, work=…)`: the FLOP of that work; or `flop=…, counter=…`: what another counter says.
    `epoch=…, rounds=…`: the batches of an epoch, whose seconds are those of all rounds. What else is given
    by name becomes an axis of the rows.
    """
    from measurements.ceilings import known
    from measurements.timing import Rounds

    if benchmark.disabled:
        pytest.skip("needs pytest-benchmark; it is off, by --benchmark-disable or under pytest-xdist")

    def measure(
        step: Step,
        phase: str = "step",
        *,
        work: Counted | None = None,
        flop: int = 0,
        counter: str = "dispatch",
        epoch: Iterable[Any] | None = None,
        rounds: int | None = None,
        **more: object,
    ) -> Timing:
        flop = model_flop(work.records) if work else flop
        peaks = known(device, dtype, given.peak)
        inputs = {"flop": flop, "device": device, "dtype": dtype, "counter": counter, "convention": "fma2"}
        benchmark.extra_info.update(inputs, clock=timer.__name__, phase=phase, method=METHOD)
        timed = Rounds(step, phase, epoch, given.time_loading and epoch is not None)
        benchmark.pedantic(
            timed.work,
            setup=timed.prepare,
            rounds=rounds or given.rounds or ROUNDS[device],
            warmup_rounds=0 if epoch is not None else WARM_UP[device],
        )
        ceiling.measure()
        peaks.append(ceiling.peak())
        first = asdict(peaks[0])
        statistic, parts = ("median", 1) if epoch is None else ("mean", rounds)
        benchmark.extra_info.update(statistic=statistic, parts=parts)
        benchmark.extra_info.update({f"peak_{name}": value for name, value in first.items()})
        seconds = [float(x) for x in benchmark.stats.stats.data]
        whole = statistics.median(seconds) if epoch is None else sum(seconds)
        kernels = getattr(timer, "kernels", {})
        found = utilizations(flop, whole, peaks, dtype, counter, kernels) if flop else []
        if device == "cuda" and not kernels and any(each.value > 1 for each in found):
            found = utilizations(flop, whole, peaks, dtype, counter, kernels_of(timed, device))
        place = {**axes, "clock": timer.__name__, "phase": phase, **more}
        record("time", axes=place, seconds=whole, rounds=seconds)
        for each in found:
            bound = bound_of(work, each.peak, dtype)
            record("utilization", axes=place, bound=bound, **each.columns())
        return Timing(seconds, found)

    return measure


def bound_of(work: Counted | None, peak: Peak, dtype: str) -> float | None:
    """The roofline's bound, where bytes are known: of work in float32, by a peak that has a bandwidth."""
    if work is None or peak.bytes_per_s is None or dtype not in ("fp32", "tf32"):
        return None
    return bound(work.records, Roof(peak.flop_per_s, peak.bytes_per_s))


def kernels_of(work: Any, device: str) -> dict[str, float]:
    """Kernels of one more round, seconds by name."""
    clock = CLOCKS["profiler"].make(device)
    work.prepare()
    clock()
    work.work()
    clock()
    return clock.kernels  # type: ignore[attr-defined, no-any-return]


class Progress:
    """Says after each timed test how far the run is, and how long the rest may take."""

    def __init__(self, config: pytest.Config) -> None:
        """Of the run with that configuration."""
        self.config = config
        self.timed: list[str] = []
        self.done = 0
        self.start = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Those that will be timed."""
        self.timed = [item.nodeid for item in session.items if is_timed(item)]
        self.start = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """One line."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if nodeid not in self.timed or terminal is None:
            return
        self.done += 1
        passed = time.monotonic() - self.start
        left = passed / self.done * (len(self.timed) - self.done)
        name = nodeid.rpartition("::")[2]
        place = f"{self.done} of {len(self.timed)}"
        line = f" {name}: {place}, {clock_of(passed)} elapsed, about {clock_of(left)} left"
        terminal.ensure_newline()
        terminal.write_line(line)


def clock_of(seconds: float) -> str:
    """Minutes and seconds, "4:05"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def is_timed(item: pytest.Item) -> bool:
    """Whether it runs by a device's clock."""
    return not {"cpu", "gpu"}.isdisjoint(marker.name for marker in item.iter_markers())


def pytest_configure(config: pytest.Config) -> None:
    """Shows progress."""
    config.pluginmanager.register(Progress(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """A step that does not fit into memory is a skip that says so."""
    return (yield from skipped_without_memory(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A step that does not fit into memory is a skip that says so."""
    return (yield from skipped_without_memory(item))


def skipped_without_memory(item: pytest.Item) -> Iterator[None]:
    """What the hook gives; of a timed test, a lack of memory becomes a skip."""
    try:
        return (yield)
    except (RuntimeError, MemoryError, MeasurementError) as error:
        if not is_timed(item):
            raise
        from measurements.timing import out_of_memory

        if (said := out_of_memory(error)) is None:
            raise
        size = item.callspec.params.get("batch", 1)
        pytest.skip(f"needs more memory than there is for batch {size}: {said}; give a smaller --batch")
