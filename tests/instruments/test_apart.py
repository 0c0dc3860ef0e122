"""Counters in a process of their own: they answer, die, hang and are interrupted without ending the run."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from measurements.counters import CounterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements.step import Step

ODD = """
import os, time
from measurements.records import OpRecord, Phase, Work

def number(step):
    return Work((OpRecord(Phase.FORWARD, "process", flop=os.getpid(), contraction=os.getpid()),))
def path(step):
    import sys
    return Work((OpRecord(Phase.FORWARD, sys.path[0], flop=1, contraction=1),))
def raises(step): raise ValueError("these are the counter's words")
def dies(step): os._exit(3)
def hangs(step): time.sleep(600)
def nothing(step): return None
def prints(step):
    print("x" * 10**6, flush=True)
    return number(step)
"""


@pytest.fixture
def ask(tmp_path, monkeypatch) -> Iterator[Callable[..., Any]]:
    """A function that asks one function of ODD, in the process "odd"."""
    from measurements.counters import apart

    (tmp_path / "odd_counter.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)

    def count(function: str, step: Step | None = None, seconds: float = 60, folders: list[str] | None = None):
        return apart.count("odd", f"odd_counter:{function}", folders or [], step or step_of(), seconds)

    yield count
    apart.end("odd")


def step_of(model: Any = None) -> Step:
    """A step of a linear layer."""
    import torch

    from measurements.step import Step

    return Step(model or torch.nn.Linear(2, 3), (torch.ones(1, 2),))


def process_of(work: Any) -> int:
    """The number of the process that counted."""
    return work.total


def lives(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_answers_all_questions(ask):
    """It is another one than this, and starts once."""
    first, second = process_of(ask("number")), process_of(ask("number"))

    assert first == second != os.getpid()


def test_a_folder_comes_first_on_the_path(ask, tmp_path):
    """So that of two packages with modules of the same name each is found."""
    assert [record.op for record in ask("path", folders=[str(tmp_path / "own")]).records] == [
        str(tmp_path / "own")
    ]


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("raises", "ValueError: these are the counter's words"),
        ("dies", "odd cannot count Linear: its process died; leave this counter out"),
        ("nothing", "odd cannot count Linear: it returned nothing; leave this counter out"),
        ("missing", "AttributeError: module 'odd_counter' has no attribute 'missing'"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_the_next_question_is_answered(ask, function, sentence):
    """An error, a death, no work."""
    with pytest.raises(CounterError) as error:
        ask(function)

    assert str(error.value) == sentence
    assert process_of(ask("number")) > 0


def test_a_counter_that_hangs_is_ended(ask):
    """After the time that it may take, in one sentence; its process is gone."""
    process = process_of(ask("number"))
    start = time.monotonic()
    with pytest.raises(CounterError, match=r"odd has no answer after 0\.5 seconds"):
        ask("hangs", seconds=0.5)

    assert time.monotonic() - start < 30
    assert not lives(process)
    assert process_of(ask("number")) != process


def test_an_interrupted_question_leaves_no_answer_for_the_next(ask):
    """Ctrl-C while the counter works: the old process would answer the next question with the old work."""
    process = process_of(ask("number"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ask("hangs")
    finally:
        signal.signal(signal.SIGINT, before)

    assert not lives(process)
    assert process_of(ask("number")) != process


def test_what_a_counter_prints_is_no_answer(ask, capfd):
    """It goes nowhere, however long it is."""
    assert process_of(ask("prints")) > 0
    assert capfd.readouterr() == ("", "")


def test_a_step_that_cannot_be_sent_is_said(ask):
    """The sentence has the reason."""
    import torch

    model = torch.nn.Linear(2, 3)
    model.lock = threading.Lock()

    with pytest.raises(CounterError, match=r"odd cannot count Linear: .* cannot be sent: .*lock"):
        ask("number", step_of(model))


def test_classes_of_a_function_can_be_sent(ask):
    """A user's model may be defined in a notebook."""
    import torch

    class Net(torch.nn.Linear):
        pass

    assert process_of(ask("number", step_of(Net(2, 3)))) > 0


def test_a_process_ends_with_the_one_that_asked(ask, tmp_path):
    """Also where that one is killed."""
    import subprocess
    import sys

    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import torch
from measurements.counters import apart
from measurements.step import Step
step = Step(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
print(apart.count("odd", "odd_counter:number", [], step, 60).total, flush=True)
sys.stdin.read()
"""
    asker = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
    process = int(asker.stdout.readline())
    assert lives(process)
    asker.kill()
    asker.communicate()

    for _ in range(100):
        if not lives(process):
            break
        time.sleep(0.1)
    assert not lives(process)


CHILD = """
import os, sys
from measurements.counters import apart
process = apart.Process([])
print(process.process.pid, flush=True)
apart.write(("time:sleep", 600), sys.argv[1])
process.channel.send(sys.argv[1])
__import__("time").sleep(600)
"""


def test_a_process_does_not_outlive_whoever_asked(tmp_path):
    """Killed in the middle of a question, it leaves nobody behind who goes on counting."""
    import os
    import subprocess
    import sys
    import time
    from pathlib import Path

    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "question")], cwd=root, stdout=subprocess.PIPE, text=True
    ) as asker:
        pid = int(asker.stdout.readline())
        time.sleep(2)
        asker.kill()
    end = time.monotonic() + 30
    while time.monotonic() < end and Path(f"/proc/{pid}").exists():
        time.sleep(0.1)
    gone = not Path(f"/proc/{pid}").exists()
    if not gone:
        os.kill(pid, 9)
    assert gone
