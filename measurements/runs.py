"""The saved run: a folder `runs/NAME/` with `run.json` and `records.jsonl`.

`run.json` says how the rows came about: METHOD, when (UTC), command, options, versions, device. It is there
whole or not at all. `records.jsonl` holds one line for each row, written as the row arrives, so that a run
that is interrupted keeps all of them. Nothing is on disk before the first row. A run is never continued: a
name that exists is refused.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from measurements import METHOD, pages

RUN, RECORDS = "run.json", "records.jsonl"

KEYS = ("method", "when", "command", "options", "versions", "device")
"""What run.json holds, and by which a folder is known to be a saved run."""


class RunError(ValueError):
    """One sentence on what is wrong with a saved run or its name, and what to change."""


@dataclass
class Run:
    """A run that is being saved, in a folder that comes with the first row.

    when: UTC. rows: written so far.
    """

    folder: Path
    options: Mapping[str, object]
    command: Sequence[str]
    when: datetime
    rows: int = 0

    @classmethod
    def create(
        cls, root: Path, name: str | None, options: Mapping[str, object], command: Sequence[str]
    ) -> Run:
        """A run under that root; without a name, it has that of the moment (UTC) and the process.

        Raises: RunError where the name is no plain folder name, or exists.
        """
        when = datetime.now(UTC)
        name = f"{when:%Y%m%d-%H%M%S}-{os.getpid()}" if name is None else name
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name.endswith("."):
            rule = "give up to 100 letters, digits, '-', '_' and '.', a letter or digit first, no '.' last"
            raise RunError(f"{name!r} is no plain folder name; {rule}")
        if (root / name).exists():
            raise RunError(f"{name!r} exists in {root}; give another name, or delete that folder")
        return cls(root / name, options, command, when)

    def append(self, row: Mapping[str, object]) -> None:
        """One more line, on disk when this returns.

        Raises: RunError where the row holds what JSON cannot say: a number that is not finite, an object.
        """
        line = _exact(row, f"row {self.rows + 1} of {self.folder.name}").encode() + b"\n"
        if not self.rows:
            self._start()
        with (self.folder / RECORDS).open("ab", buffering=0) as file:  # O_APPEND, one write for one line
            written = file.write(line)
        if written != len(line):
            raise OSError(f"{file.name}: wrote {written} of {len(line)} bytes of a row; is the disk full?")
        self.rows += 1

    def _start(self) -> None:
        """Makes the folder, and its run.json whole or not at all."""
        facts = {
            "method": METHOD,
            "when": self.when.isoformat(timespec="seconds"),
            "command": list(self.command),
            "options": dict(self.options),
            "versions": versions(),
            "device": device(),
        }
        text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.folder.mkdir()
        except FileExistsError:
            raise RunError(f"{self.folder} was made by another run meanwhile; give another name") from None
        pages.write(self.folder / RUN, text)


class Saved(NamedTuple):
    """A run as read: the facts of run.json, the rows in order, and what is amiss, one sentence each."""

    run: dict[str, object]
    rows: list[dict[str, object]]
    remarks: tuple[str, ...]


def read(folder: Path) -> Saved:
    """The run that was saved in that folder. A last line cut short (the run was killed) becomes a remark.

    Raises: RunError where the folder is missing, damaged, not a saved run, or of a later METHOD.
    """
    run = _facts(folder)
    path = folder / RECORDS
    if not path.exists():
        return Saved(run, [], (f"{path} is missing: the run ended before its first row",))
    lines = path.read_bytes().split(b"\n")
    rows, remarks = [], []
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)  # a whole file ends with a newline, and its last piece is empty
        if last and not line:
            continue
        row = _object(line)
        if row is not None:
            rows.append(row)
        elif last:
            remarks.append(f"{path}:{number} is cut short: that row is left out")
        else:
            raise RunError(f"{path}:{number} is damaged: not a JSON object; mend or delete that line")
    return Saved(run, rows, tuple(remarks))


def versions() -> dict[str, str]:
    """The versions of Python and of every installed distribution, none of them imported.

    Those of counters that lie in a folder of their own are among them.
    """
    found = {"python": platform.python_version()}
    apart = [str(folder) for folder in sorted((Path(sys.prefix) / "apart").glob("*"))]
    for distribution in metadata.distributions(path=[*sys.path, *apart]):
        name = distribution.metadata["Name"]
        if name:  # None in what a broken uninstall leaves behind
            found.setdefault(name.lower(), distribution.version)
    return dict(sorted(found.items()))


def device() -> dict[str, object]:
    """The machine that runs this: system, architecture, CPU model, cores that this process may use."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def _cpu() -> str:
    """The CPU's model name; Linux tells it in a file, other systems through the platform module."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return named[1].strip() if named else platform.processor() or "unknown"


def _exact(row: Mapping[str, object], where: str) -> str:
    """One line of JSON; integers of any size stay exact."""
    try:
        return json.dumps(row, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RunError(f"{where} cannot be saved: {error}; give finite numbers, text, lists, dicts") from None


def _object(text: bytes) -> dict[str, object] | None:
    """A JSON object, None where the text is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _facts(folder: Path) -> dict[str, object]:
    """What run.json holds."""
    path = folder / RUN
    if not path.is_file():
        have = "no such folder" if not folder.is_dir() else f"it has no {RUN}"
        raise RunError(f"{folder} is not a saved run: {have}; give a folder under runs/")
    run = _object(path.read_bytes())
    if run is None:
        raise RunError(f"{path} is damaged: not a JSON object")
    missing = [key for key in KEYS if key not in run]
    if missing:
        raise RunError(f"{path} is not of this suite: it lacks {', '.join(missing)}")
    method = run["method"]
    if not isinstance(method, int) or method < 1:
        raise RunError(f"{path} is damaged: method is {method!r}, not a whole number of 1 or more")
    if method > METHOD:
        raise RunError(f"{path} was saved with METHOD {method}, this version knows 1 to {METHOD}: update it")
    return run
