"""Between pytest and the rooms: options, axes, fixtures, what is saved of a test.

A test asks for what it needs by name. `arch`, `batch`, `optimizer` and `counter` are axes: the test runs once
for each of their values. Its marker `axes` gives them and the options of the same names replace them, but for
`--counter`, which leaves out the others. `step` is the training step that the axes describe.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import models
from measurements import METHOD, agreement, saved_times, scoreboard, utilization
from measurements.clocks import CLOCKS
from measurements.comparison import columns, difference
from measurements.counters import COUNTERS, Counter, differences
from measurements.devices import why_not
from measurements.options import Given, among, understand
from measurements.records import Counted, Phase
from measurements.runs import Run, RunError, read

if TYPE_CHECKING:
    from measurements.counters.differences import Seen
    from measurements.step import Step

OPTIONS = (  # (flag, whether it may be repeated or None for one without a value, metavar, help)
    ("--arch", True, "NAME", "architectures: a listed or torchvision name, timm:NAME, pkg.module:factory"),
    ("--batch", True, "N", "batch sizes"),
    ("--optimizer", True, "NAME", "optimizers"),
    ("--counter", True, "NAME", "only tests of these counters, among those that take the axis"),
    ("--experiment", True, "ID", "only tests of these experiments"),
    (
        "--input-shape",
        False,
        "CxHxW",
        "sizes of one input (default: what the architecture is published with)",
    ),
    ("--classes", False, "N", "classes that the architecture tells apart (default: 10)"),
    (
        "--run",
        False,
        "NAME",
        "save the run in runs/NAME, which must be new (default: named by time and process)",
    ),
    ("--device", True, "TYPE", "only timed tests on these: cpu, cuda"),
    ("--dtype", True, "NAME", "precisions of timed steps: fp32, tf32, bf16, fp16 (default: fp32)"),
    ("--peak", False, "FLOP/S", "the device's peak in these dtypes, as 9.3e12 or 9.3T, above any datasheet"),
    ("--rounds", False, "N", "rounds of each timing (default: 3 on a CPU, 10 on CUDA)"),
    ("--data", False, "NAME", "images of an epoch: synthetic (default) or cifar10, its test set"),
    ("--data-root", False, "FOLDER", "where cifar10 lies, or is downloaded to (default: data)"),
    ("--epoch-images", False, "N", "images of an epoch (default: 10,000 on CUDA, 32 on a CPU)"),
    ("--time-loading", None, None, "time the loading of an epoch's images, too"),
)


@dataclass(frozen=True)
class Axis:
    """The values of a test that gives none, and how a value is written in an id."""

    values: tuple[object, ...]
    spell: Callable[[Any], str]


def spelled(name: str) -> str:
    """The name in lower case, every other character but letters, digits and _ an _."""
    return re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_")


STUDIED = tuple(name for name, row in models.ARCHITECTURES.items() if "torchvision" in row.builder)

AXES = {  # in the order in which an id names them
    "arch": Axis(STUDIED, spelled),
    "device": Axis((), spelled),  # only where a test gives it: others count, on no device
    "batch": Axis((1,), lambda size: f"b{size:03}"),
    "dtype": Axis(("fp32",), spelled),
    "clock": Axis(tuple(CLOCKS), spelled),
    "optimizer": Axis(("sgd",), spelled),
    "counter": Axis(tuple(COUNTERS), spelled),
}

MARKS = {"cpu": pytest.mark.cpu, "cuda": pytest.mark.gpu}
"""Device -> marker."""

NAMED = ("bench", "cpu", "gpu")
"""Markers of tests that run only where -m names one of them, or --experiment their experiment."""

GIVEN = pytest.StashKey[Given]()
RUN = pytest.StashKey[Run]()


# Options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Text only; pytest_configure understands it, so that an error is one sentence."""
    group = parser.getgroup("measurements", "training steps, counted (lists: a,b or the option again)")
    for flag, repeatable, metavar, text in OPTIONS:
        if repeatable is None:
            group.addoption(flag, action="store_const", const="", help=text)
        else:
            group.addoption(flag, action="append" if repeatable else "store", metavar=metavar, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Checks the options, and names the run that rows will be saved in."""
    try:
        config.stash[GIVEN] = understand(texts_of(config))
        config.stash[RUN] = new_run(config)
    except ValueError as error:
        option = "--run: " if isinstance(error, RunError) else ""
        raise pytest.UsageError(f"{option}{error}") from None
    if config.pluginmanager.hasplugin("benchmark"):
        saves_times(config, config.stash[GIVEN])


def new_run(config: pytest.Config) -> Run:
    """The run of this process; with pytest-xdist, each process saves one of its own."""
    texts = texts_of(config)
    worker = filter(None, [os.environ.get("PYTEST_XDIST_WORKER")])
    name = "-".join([*texts["run"], *worker]) if "run" in texts else None
    return Run.create(config.rootpath / "runs", name, texts, ["pytest", *config.invocation_params.args])


def saves_times(config: pytest.Config, given: Given) -> None:
    """Has pytest-benchmark save under the device's name, for which it has no option."""
    import pytest_benchmark.session

    info = saved_times.machine_info(given.dtype)
    on_gpu = "gpu" in config.option.markexpr or "cuda" in given.device
    pytest_benchmark.session.get_machine_id = lambda: saved_times.folder(info, on_gpu)


def texts_of(config: pytest.Config) -> dict[str, list[str]]:
    """The texts of the options that were given, by name without dashes."""
    said = {flag.strip("-"): config.getoption(flag) for flag, *_ in OPTIONS}
    return {
        name: [text] if isinstance(text, str) else text for name, text in said.items() if text is not None
    }


# Axes, and which tests run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the test once for each value of the axes that it, or one of its fixtures, takes."""
    for name in [name for name in AXES if name in metafunc.fixturenames and name not in own_names(metafunc)]:
        if values := values_of(name, metafunc):
            spell = AXES[name].spell
            rows = [pytest.param(value, marks=MARKS.get(value, ()), id=spell(value)) for value in values]
            metafunc.parametrize(name, rows, indirect=name in ("counter", "device"))


def values_of(name: str, metafunc: pytest.Metafunc) -> tuple[Any, ...]:
    """Values of the axis: the option's, else the test's, else the table's; none where it is no axis."""
    values = axes_of(metafunc.definition).get(name, AXES[name].values)
    if isinstance(values, dict):  # by device: `chosen` leaves out what does not belong together
        values = tuple(dict.fromkeys(value for some in values.values() for value in some))
    if name == "counter":  # which counters suit a test, the test knows
        return tuple(values)
    return (values and getattr(metafunc.config.stash[GIVEN], name, ())) or tuple(values)


def own_names(metafunc: pytest.Metafunc) -> set[str]:
    """The names that the test parametrizes itself, which are no axes there."""
    markers = metafunc.definition.iter_markers("parametrize")
    names = [marker.args[0] if marker.args else marker.kwargs["argnames"] for marker in markers]
    return {name.strip() for n in names for name in (n.split(",") if isinstance(n, str) else n)}


def axes_of(item: pytest.Item) -> dict[str, Any]:
    """What the test's markers say about the axes, values or values by device; of two, the nearer one."""
    axes: dict[str, Any] = {}
    for marker in item.iter_markers("axes"):
        for name, values in marker.kwargs.items():
            if name not in AXES:
                raise pytest.UsageError(f"{item.nodeid}: unknown axis {name!r}; have {', '.join(AXES)}")
            axes.setdefault(name, values)
    return axes


def experiments_of(item: pytest.Item) -> list[str]:
    """The ids of the experiments that the test belongs to."""
    return sorted(name for marker in item.iter_markers("experiment") for name in marker.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that the options choose; those of NAMED only where they are named."""
    known = {name for item in items for name in experiments_of(item)}
    try:
        for name in config.stash[GIVEN].experiment:
            among("experiment", name, known)
    except ValueError as error:
        raise pytest.UsageError(f"--experiment: {error}") from None
    left_out = [item for item in items if not chosen(item, config)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if chosen(item, config)]


def chosen(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the options choose the test."""
    options = config.stash[GIVEN]
    values = item.callspec.params if hasattr(item, "callspec") else {}
    counter, device, clock = (values.get(name) for name in ("counter", "device", "clock"))
    batches = axes_of(item).get("batch", ())
    return (
        (not options.experiment or not set(options.experiment).isdisjoint(experiments_of(item)))
        and (not options.counter or counter is None or counter in options.counter)
        and (clock is None or device is None or device in CLOCKS[clock].devices)
        and (not isinstance(batches, dict) or bool(options.batch) or values["batch"] in batches[device])
        and is_named(item, config)
    )


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the test has no marker of NAMED, or has been asked for."""
    marks = [name for name in NAMED if item.get_closest_marker(name)]
    by_experiment = bool(config.stash[GIVEN].experiment) and marks != ["bench"]
    return not marks or by_experiment or any(name in config.option.markexpr for name in marks)


# Fixtures


@pytest.fixture
def counter(request: pytest.FixtureRequest) -> Counter:
    """A FLOP counter that can run here."""
    row = COUNTERS[request.param]
    if reason := row.why_not():
        pytest.skip(reason)
    return row


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Where the step lives: the axis, else where the counter needs it, else meta, where nothing is done."""
    if hasattr(request, "param"):
        if reason := why_not(request.param, request.node.callspec.params.get("dtype", "fp32")):
            pytest.skip(reason)
        return str(request.param)
    return request.getfixturevalue("counter").device if "counter" in request.fixturenames else "meta"


@pytest.fixture
def given(pytestconfig: pytest.Config) -> Given:
    """What the command line asks for."""
    return pytestconfig.stash[GIVEN]


@pytest.fixture
def axes(request: pytest.FixtureRequest) -> dict[str, object]:
    """The values that make this test one of several, and the sizes of an input."""
    return {"input_shape": request.getfixturevalue("input_shape"), **parameters(request.node)}


@pytest.fixture
def input_shape(request: pytest.FixtureRequest, arch: str) -> tuple[int, ...]:
    """Sizes of one input; a test file that needs others defines a fixture of this name."""
    return request.config.stash[GIVEN].input_shape or models.input_shape(arch)


@pytest.fixture
def classes(request: pytest.FixtureRequest) -> int:
    """Classes that the architecture tells apart."""
    return request.config.stash[GIVEN].classes


@pytest.fixture(scope="session")
def build_model() -> Callable[[str, int, str], Any]:
    """A function that builds an architecture on a device; the last one of each device is kept.

    Drawing the weights of a large one takes longer than a step, and whoever counts leaves a model as it was.
    """
    kept: dict[str, tuple[tuple[str, int], Any]] = {}

    def build(arch: str, classes: int, device: str) -> Any:
        import torch

        if kept.get(device, (None,))[0] != (arch, classes):
            with torch.device(device):
                kept[device] = ((arch, classes), models.build(arch, classes))
        return kept[device][1]

    return build


@pytest.fixture
def build_step(
    request: pytest.FixtureRequest,
    build_model: Callable[[str, int, str], Any],
    arch: str,
    batch: int,
    input_shape: tuple[int, ...],
    classes: int,
) -> Callable[[str], Step]:
    """A function that builds the step of the axes on a device: cross entropy on random input.

    A model that is not listed gets the inputs and the loss that fit it.
    """
    import torch

    from measurements.samples import inputs_for, targets_for
    from measurements.step import Step, make_optimizer

    asked = request.config.stash[GIVEN].input_shape

    def build(device: str) -> Step:
        model = build_model(arch, classes, device)
        with torch.device(device):
            if models.listed(arch) is None:
                inputs = inputs_for(model, batch, asked and (asked,), input_shape)
                targets = targets_for(model, inputs, batch)
            else:
                inputs, targets = (torch.rand(batch, *input_shape),), torch.randint(classes, (batch,))
        optimizer = None
        if "optimizer" in request.fixturenames:
            optimizer = make_optimizer(request.getfixturevalue("optimizer"), model.parameters())
        return Step(model, inputs, targets, optimizer=optimizer)

    return build


@pytest.fixture
def step(build_step: Callable[[str], Step], device: str) -> Step:
    """A training step on random input: cross entropy, and the optimizer where the test takes that axis."""
    return build_step(device)


@pytest.fixture(scope="session")
def worked_out() -> dict[object, Any]:
    """What one test worked out and others use again, by what it depends on."""
    return {}


@pytest.fixture
def once(
    worked_out: dict[object, Any], arch: str, batch: int, input_shape: tuple[int, ...], classes: int
) -> Callable[[str, Callable[[], Any]], Any]:
    """A function that works a thing out for this architecture, batch and shape, unless that has been done."""

    def get(what: str, work_out: Callable[[], Any]) -> Any:
        key = (what, arch, batch, input_shape, classes)
        if key not in worked_out:
            worked_out[key] = work_out()
        return worked_out[key]

    return get


@pytest.fixture
def dispatched(once: Callable[..., Counted], build_step: Callable[[str], Step]) -> Counted:
    """What the dispatch counter sees of the step (on meta, without an update)."""
    return once("dispatched", lambda: COUNTERS["dispatch"](replace(build_step("meta"), optimizer=None)))


@pytest.fixture
def seen(once: Callable[..., Any], build_step: Callable[[str], Step], counter: Counter) -> Seen:
    """The operations that explain the test's counter, in the mode in which it runs the model."""
    mode = "evaluation" if counter.evaluates else "training"
    return once(f"seen in {mode}", lambda: differences.seen(counter.name, build_step("meta")))


@pytest.fixture
def closed(once: Callable[..., Counted], build_step: Callable[[str], Step]) -> Counted:
    """The closed form of the step, without an update: layers and shapes alone."""

    def work_out() -> Counted:
        with warnings.catch_warnings(action="ignore"):  # layers that it does not know: the test finds them
            return COUNTERS["closed_form"](replace(build_step("meta"), optimizer=None))

    return once("closed", work_out)


# The saved run


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config) -> Run:
    """The run that rows are saved in."""
    return pytestconfig.stash[RUN]


@pytest.fixture
def record(request: pytest.FixtureRequest, run: Run) -> Callable[..., None]:
    """A function that saves a row of this test: its kind, and columns by name."""
    return lambda kind, **columns: run.append(row(request.node, kind, **columns))


@pytest.fixture
def record_work(request: pytest.FixtureRequest, run: Run) -> Callable[..., Counted]:
    """A function that saves work, a row for each phase that the counter sees, and gives it back.

    Called before the asserts: `work = record_work(counter(step))`; other axes by name: `…, depth=3)`.
    """
    takes_step = "step" in request.fixturenames
    shape = {"input_shape": request.getfixturevalue("input_shape")} if takes_step else {}

    def record(work: Counted, **axes: object) -> Counted:
        axes = {**shape, **parameters(request.node), **axes}
        counter = axes.pop("counter", None)
        phases = COUNTERS[counter].phases if counter in COUNTERS else tuple(Phase)
        parts = work.by_phase()
        for phase in phases:
            flop = columns(parts[phase])
            run.append(row(request.node, "count", axes=axes, counter=counter, phase=phase, **flop))
        return work

    return record


def parameters(item: pytest.Item) -> dict[str, object]:
    """The values that make this test one of several, those that can be saved."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return {name: value for name, value in params.items() if isinstance(value, bool | int | float | str)}


def row(item: pytest.Item, kind: str, **columns: object) -> dict[str, object]:
    """A row of the saved run: its kind ("count", "verdict"), the test that it is from, and its columns."""
    return {"kind": kind, "experiment": experiments_of(item), "test": item.nodeid, **columns}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Saves the verdict on a test of an experiment, and every skip, each with its reason."""
    report = yield
    saves = bool(experiments_of(item)) or "record_work" in item.fixturenames
    if report.skipped or (saves and (report.failed or report.when == "call")):
        columns = {"verdict": report.outcome, "reason": reason(call)}
        item.config.stash[RUN].append(row(item, "verdict", **columns))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the scoreboard of a run that measured one (experiment A14)."""
    scoreboard.write(session.config.stash[RUN].folder)


def reason(call: pytest.CallInfo[None]) -> str | None:
    """Why a test was skipped or failed, in its first line; None where it passed."""
    if call.excinfo is None:
        return None
    said = str(call.excinfo.value).strip() or call.excinfo.typename
    return said.splitlines()[0]


# What is printed


def pytest_report_header(config: pytest.Config) -> str:
    """Where rows will be saved."""
    return f"METHOD {METHOD}, rows are saved in runs/{config.stash[RUN].folder.name}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the rows say: counters to believe, the scoreboard, utilization; how many there are, and where."""
    saved = config.stash[RUN]
    if not saved.rows:
        return
    rows = read(saved.folder).rows
    said = agreement.lines(rows) if config.stash[GIVEN].arch else []
    said += [*scoreboard.lines(rows, saved.folder.name), *utilization.lines(rows)]
    for line in (*said, f"{saved.rows} rows saved in runs/{saved.folder.name}"):
        terminalreporter.write_line(line)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Counted against theory, op by op."""
    lines = difference(left, right) if op == "==" else None
    return lines and [f"counted == theory; {lines[0]}", *lines[1:]]


# Saved times, which `pytest-benchmark compare` reads with the first of these


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_group_stats(config: object, benchmarks: Iterable[dict[str, Any]], group_by: str) -> Any:
    """Utilization beside the time: pytest-benchmark's table takes no further column, but a longer name."""
    from pytest_benchmark.plugin import pytest_benchmark_group_stats as grouped

    named = [{**bench, "name": saved_times.with_utilization(bench)} for bench in benchmarks]
    return grouped(config, named, group_by)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, object]) -> None:
    """Only what a time depends on."""
    machine_info.clear()
    machine_info.update(saved_times.machine_info(config.stash[GIVEN].dtype))


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_compare_machine_info(
    machine_info: dict[str, object], compared_benchmark: dict[str, Any], benchmarksession: Any
) -> None:
    """Says in one line each what the two runs differ in; pytest-benchmark's own text is a page of JSON."""
    for said in saved_times.differing(machine_info, compared_benchmark["machine_info"]):
        benchmarksession.logger.info(f"Careful, the runs differ: {said}", yellow=True, bold=True)
    compared_benchmark["machine_info"] = machine_info  # its own then finds nothing to say
