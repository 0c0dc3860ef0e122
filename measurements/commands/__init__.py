"""The commands of `python -m measurements`: one module each.

It has EPILOG, `add_arguments(parser)` and `run(options)`, which returns the exit code.
A new command is a module and a row here. Importing a command's module imports no torch.
"""

from __future__ import annotations

import importlib
from types import ModuleType

COMMANDS = {
    "count": "measurements.commands.count",
    "measure": "measurements.commands.measure",
    "roofline": "measurements.commands.roofline",
}


class CommandError(Exception):
    """Why a command cannot do what it was asked: one sentence that names what to change."""


def described(command: str) -> ModuleType:
    """The command's module."""
    return importlib.import_module(command)


def first_line(error: BaseException) -> str:
    """The error's type and the first line of what it says."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
