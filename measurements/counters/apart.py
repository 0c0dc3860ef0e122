"""Counters that need a process of their own: they leave state behind, or share a module's name with another.

One process for each such counter, started when it is first asked and ended with this one. A step goes there
as a temporary file, which the process maps: weights are written once and read where they are used. Its Work
comes back as bytes; the model here is never touched. A process that dies or does not answer in time is ended,
and the next question starts another.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

import cloudpickle

from measurements.counters.limit import CounterError, too_long
from measurements.records import MeasurementError, Work

if TYPE_CHECKING:
    from measurements.step import Step

PROGRAM = """
import sys
sys.path[:] = {path!r}
from measurements.counters import apart
apart.answer({channel})
"""


class Process:
    """A Python process that counts; `folders` come first on its path."""

    def __init__(self, folders: list[str]) -> None:
        """Starts it; it imports nothing before the first question."""
        self.channel, theirs = Pipe()
        end = theirs.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(path=[*folders, *sys.path], channel=end)],
            pass_fds=[end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()

    def ask(self, question: str, seconds: float) -> Any:
        """The answer to the question in that file.

        Raises: TimeoutError where there is none after that many seconds, EOFError where the process has died.
        """
        try:
            self.channel.send(question)
            if not self.channel.poll(seconds):
                raise TimeoutError
            return self.channel.recv()
        except ConnectionError:
            raise EOFError from None

    def end(self) -> None:
        """Ends it, whatever it does."""
        self.channel.close()
        self.process.kill()
        self.process.wait()


_processes: dict[str, Process] = {}


def count(name: str, function: str, folders: list[str], step: Step, seconds: float) -> Work:
    """Work of the step by "module:function", called in the process of that name.

    Raises: CounterError with what the counter said, where the step cannot be sent, where the process ends or
    needs more than that many seconds.
    """
    kind = type(step.model).__name__
    with tempfile.NamedTemporaryFile() as question:
        try:
            write((function, step), question.name)
        except Exception as error:  # whatever a user's object raises
            raise CounterError(
                f"{name} cannot count {kind}: it runs in a process of its own, where the step "
                f"cannot be sent: {type(error).__name__}: {error}; leave this counter out"
            ) from error
        process = _processes.get(name) or _processes.setdefault(name, Process(folders))
        try:
            answer = process.ask(question.name, seconds)
        except TimeoutError:
            end(name)
            raise CounterError(too_long(name, seconds)) from None
        except EOFError:
            end(name)
            said = f"{name} cannot count {kind}: its process died; leave this counter out"
            raise CounterError(said) from None
        except BaseException:
            end(name)  # it may still answer the old question
            raise
    if isinstance(answer, Work):
        return answer
    raise CounterError(answer or f"{name} cannot count {kind}: it returned nothing; leave this counter out")


def write(question: tuple[str, Any], file: str) -> None:
    """Writes a question, "module:function" and its argument, whatever class that is of."""
    import torch

    torch.save(question, file, pickle_module=cloudpickle, pickle_protocol=pickle.DEFAULT_PROTOCOL)


def end(name: str) -> None:
    """Ends the process of that name, if there is one."""
    process = _processes.pop(name, None)
    if process is not None:
        process.end()


@atexit.register
def end_all() -> None:
    """Ends every process."""
    for name in list(_processes):
        end(name)


def answer(channel_number: int) -> None:
    """What the process does: it answers questions until nobody asks any more, or whoever asked is gone."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    channel = Connection(channel_number)
    while True:
        try:
            question = channel.recv()
        except (EOFError, ConnectionError):
            os._exit(0)
        channel.send(_answer(question))


def _end_with(parent: int) -> None:
    """Ends this process, whatever it is doing, soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answer(question: str) -> Work | str:
    try:
        import torch

        function, step = torch.load(question, mmap=True, weights_only=False)
        module, _, name = function.partition(":")
        work: Work = getattr(importlib.import_module(module), name)(step)
        return work
    except MeasurementError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
