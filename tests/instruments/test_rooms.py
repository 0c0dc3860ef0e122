"""Who may import whom. Every import counts, also inside functions; a table says what each room may use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS: dict[
    str, tuple[str, ...]
] = {  # path, or folder with / : what it may import besides the standard library and itself
    "models/": ("torch", "torchvision"),
    "measurements/__init__.py": (),
    "measurements/__main__.py": ("measurements.commands", "measurements.runs"),
    "measurements/commands/": ("torch", "rich", "models", "measurements"),
    "measurements/records.py": (),
    "measurements/comparison.py": ("measurements.records",),
    "measurements/agreement.py": (),
    "measurements/devices.py": ("torch", "pynvml", "measurements.records"),
    "measurements/roofline.py": ("measurements.records",),
    "measurements/utilization.py": ("measurements.pages", "measurements.records"),
    "measurements/samples.py": (
        *("torch", "measurements.preservation", "measurements.records", "measurements.step"),
    ),
    "measurements/saved_times.py": ("measurements.METHOD", "measurements.devices", "measurements.runs"),
    "measurements/ranges.py": ("nvtx",),
    "measurements/precision.py": ("torch", "measurements.step"),
    "measurements/clocks.py": ("torch",),
    "measurements/timing.py": ("torch", "measurements.step"),
    "measurements/images.py": ("torch", "torchvision", "measurements.records"),
    "measurements/ceilings.py": (
        *("torch", "measurements.clocks", "measurements.devices", "measurements.precision"),
        "measurements.utilization",
    ),
    "measurements/formulas/": ("measurements.records",),
    "measurements/layers.py": ("torch", "measurements.records"),
    "measurements/theory/": ("measurements.records",),
    "measurements/step.py": ("torch", "measurements.ranges", "measurements.records"),
    "measurements/preservation.py": ("torch", "measurements.step"),
    "measurements/counters/": (
        *("torch", "measurements.records", "measurements.formulas", "measurements.step"),
        "measurements.preservation",
    ),
    "measurements/options.py": (
        *("models", "measurements.counters", "measurements.devices", "measurements.theory"),
        "measurements.utilization",
    ),
    "measurements/pages.py": (),
    "measurements/runs.py": ("measurements.METHOD", "measurements.pages", "measurements.records"),
    "measurements/scoreboard.py": ("measurements.pages", "measurements.runs"),
    "conftest.py": (
        *("pytest", "models", "measurements.METHOD", "measurements.records", "measurements.comparison"),
        *("measurements.counters", "measurements.options", "measurements.runs", "measurements.scoreboard"),
        *("measurements.agreement", "measurements.clocks", "measurements.devices"),
        *("measurements.saved_times", "measurements.utilization"),
    ),
    "tests/": ("pytest", "hypothesis", "torch", "torchvision", "models", "measurements", "tests"),
    "tests/instruments/": ("*",),
}

EXCEPTIONS: dict[tuple[str, str], str] = {  # (file, import): why
    (
        "measurements/__init__.py",
        "measurements.counters.dispatch",
    ): "counting and count_step, when first asked for",
    ("measurements/counters/__init__.py", "measurements.METHOD"): "our own counters' version",
    (
        "measurements/counters/closed_form.py",
        "measurements.theory",
    ): "it is the theory, in a counter's clothes",
    (
        "measurements/counters/closed_form.py",
        "measurements.layers",
    ): "it is the theory, in a counter's clothes",
    **{
        (f"measurements/counters/{name}.py", name): "the package that it adapts"
        for name in (
            *("calflops", "deepspeed", "fvcore", "pthflops", "ptflops", "thop", "torchinfo", "torchprofile"),
        )
    },
    ("measurements/counters/apart.py", "cloudpickle"): "sends a step to another process",
    (
        "measurements/options.py",
        "torch",
    ): "builds a model that is not listed, on meta, to see whether its name is right",
    ("models/timm_models.py", "timm"): "optional: only for names that begin with timm:",
    ("conftest.py", "torch"): "the fixture step, inside its function",
    ("conftest.py", "measurements.step"): "the fixture step, inside its function",
    ("conftest.py", "pytest_benchmark"): "its folder has no option, and its table no column",
    ("conftest.py", "measurements.samples"): "the fixture step, inside its function",
}

NO_TORCH_AT_IMPORT = (  # what pytest, and every command, imports before it knows what it needs
    *("conftest.py", "models/__init__.py", "measurements/__init__.py", "measurements/counters/__init__.py"),
    *("measurements/counters/differences/", "measurements/formulas/", "measurements/records.py"),
    *(
        "measurements/theory/",
        "measurements/agreement.py",
        "measurements/comparison.py",
        "measurements/devices.py",
        "measurements/clocks.py",
        "measurements/saved_times.py",
        "measurements/utilization.py",
        "measurements/options.py",
        "measurements/roofline.py",
        "measurements/runs.py",
        "measurements/scoreboard.py",
    ),
    *("measurements/__main__.py", "measurements/commands/"),
    "tests/",
)

IMPORTERS = ("__import__", "import_module", "imported")
"""Functions that import the module whose name they are given."""


@dataclass(frozen=True)
class Import:
    """One imported module or name, in full, and whether importing the file is enough to import it."""

    name: str
    line: int
    at_once: bool


def files() -> list[str]:
    """Every Python file of the product, from its root."""
    parts = [
        ROOT / "conftest.py",
        *(p for room in ("models", "measurements", "tests") for p in (ROOT / room).rglob("*.py")),
    ]
    return sorted(path.relative_to(ROOT).as_posix() for path in parts)


def under(name: str, parents: tuple[str, ...]) -> bool:
    """Whether the dotted name is one of these, or below one."""
    return any(parent in ("*", name) or name.startswith(f"{parent}.") for parent in parents)


def room_of(path: str) -> str | None:
    """The narrowest room that holds the file."""
    rooms = [room for room in ROOMS if path == room or (room.endswith("/") and path.startswith(room))]
    return max(rooms, key=len, default=None)


def imports(text: str, path: str) -> Iterator[Import]:
    """Every import in that text, wherever it stands; in functions and for type checkers, not at once."""
    package = path.split("/")[:-1]
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(text), True)]
    while stack:
        node, at_once = stack.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*parents, *(node.module or "").split(".")]).strip(".")
            yield from (Import(f"{source}.{alias.name}", node.lineno, at_once) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in IMPORTERS:
            literal = node.args and isinstance(node.args[0], ast.Constant)
            yield Import(str(node.args[0].value) if literal else "", node.lineno, at_once)
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.iter_child_nodes(node):
            stack.append((child, at_once and not lazy and not (typing and child in node.body)))


def found(path: str) -> list[Import]:
    """The imports of a file from outside of the standard library and its room, but for computed names."""
    room = room_of(path)
    own = (room.rstrip("/").replace("/", "."),) if room and room.endswith("/") else ()
    whole = imports((ROOT / path).read_text(encoding="utf-8"), path)
    return [
        i
        for i in whole
        if i.name and i.name.split(".")[0] not in sys.stdlib_module_names and not under(i.name, own)
    ]


def test_every_file_is_in_a_room():
    """A new file says first what it may import."""
    assert [path for path in files() if room_of(path) is None] == []


def test_every_room_is_there():
    """A row without a file is dead."""
    there = {room_of(path) for path in files()}

    assert [room for room in ROOMS if room not in there] == []


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_the_table_allows(room):
    """If a line needs two rooms, it is two lines."""
    wrong = [
        f"{path}:{i.line} imports {i.name}"
        for path in files()
        if room_of(path) == room
        for i in found(path)
        if not under(i.name, ROOMS[room])
        if not any(path == file and under(i.name, (name,)) for file, name in EXCEPTIONS)
    ]

    assert wrong == []


@pytest.mark.parametrize(("path", "name"), EXCEPTIONS)
def test_every_exception_is_used(path, name):
    """A reason for something that nobody does any more is dropped."""
    assert any(under(i.name, (name,)) for i in found(path)), "drop this row"


def test_theory_and_counter_share_no_code():
    """Two that agree because they call the same function prove nothing."""
    theory = [i.name for path in files() if path.startswith("measurements/theory/") for i in found(path)]
    ours = ("measurements/formulas/", "measurements/counters/dispatch/")
    counter = [i.name for path in files() if path.startswith(ours) for i in found(path)]

    assert [name for name in theory if under(name, ("measurements.formulas", "measurements.counters"))] == []
    assert [name for name in counter if under(name, ("measurements.theory", "measurements.layers"))] == []


def test_no_torch_where_collection_imports():
    """Torch costs seconds, at every collection and at every comparison of two runs."""
    wrong = [
        f"{path}:{i.line} imports {i.name}"
        for path in files()
        if any(
            path == place or (place.endswith("/") and path.startswith(place)) for place in NO_TORCH_AT_IMPORT
        )
        for i in found(path)
        if i.at_once and under(i.name, ("torch", "torchvision", "timm", "fvcore", "ptflops", "numpy"))
    ]

    assert wrong == []


def test_hooks_are_ten_lines_at_most():
    """A hook translates; what it translates to has a name and a home elsewhere."""
    tree = ast.parse((ROOT / "conftest.py").read_text(encoding="utf-8"))
    hooks = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("pytest_")
    ]
    lengths = {
        hook.name: hook.end_lineno - hook.body[1].lineno + 1 for hook in hooks
    }  # body[0]: its docstring

    assert lengths
    assert {name: length for name, length in lengths.items() if length > 10} == {}


SAMPLE = """
import torch.nn
from typing import TYPE_CHECKING
from . import theory
from ..records import Work as W
if TYPE_CHECKING:
    import typed
else:
    import other
class Body:
    import inside
def later():
    import numpy, json
    importlib.import_module("lazy.one")
    __import__(computed)
    on_meta.imported("lazy.two")
"""


def test_the_walk_finds_every_way_to_import():
    """What it does not find, the tests above would let pass."""
    seen = {(i.name, i.at_once) for i in imports(SAMPLE, "measurements/counters/new.py")}

    assert seen == {
        ("torch.nn", True),
        ("typing.TYPE_CHECKING", True),
        ("measurements.counters.theory", True),
        ("measurements.records.Work", True),
        ("typed", False),
        ("other", True),
        ("inside", True),
        ("numpy", False),
        ("json", False),
        ("lazy.one", False),
        ("lazy.two", False),
        ("", False),
    }
