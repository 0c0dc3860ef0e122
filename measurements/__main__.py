"""The command line: `python -m measurements COMMAND …`.

Exit codes: 0 done; 2 a value or a model that cannot be measured, said in one sentence on stderr; 130
interrupted; 141 the reader of our output went away. Nothing here imports torch; a command does when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from measurements.commands import COMMANDS, CommandError, described
from measurements.commands.arguments import Parser
from measurements.runs import RunError

WRONG, INTERRUPTED, BROKEN_PIPE = 2, 130, 141


def parser() -> Parser:
    """The parser of the whole command line, one subcommand for each row of COMMANDS."""
    whole = Parser(prog="python -m measurements", description="What a training step costs, in FLOP, exactly.")
    kinds = whole.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        module = described(command)
        text = (module.__doc__ or "").partition("\n")[0]
        part = kinds.add_parser(name, help=text, description=text, epilog=module.EPILOG)
        module.add_arguments(part)
        part.set_defaults(command=module.run)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of a command line."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream that somebody put there need not be a text file
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        options = parser().parse_args(arguments)
        code = int(options.command(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("measurements: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # what is still buffered has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in ("measurements", "models"):  # a fault of ours
            raise
        where = "set up .venv with make measure, and use .venv/bin/python"
        print(f"measurements: needs {error.name}; {sys.executable} has none: {where}", file=sys.stderr)
        return WRONG
    except (CommandError, RunError, OSError) as error:
        print(f"measurements: {error}", file=sys.stderr)
        return WRONG
    return code


if __name__ == "__main__":
    sys.exit(main())
