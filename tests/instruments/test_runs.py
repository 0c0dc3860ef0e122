"""A saved run keeps every row that arrived, exactly, and says what is wrong with a damaged one."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from measurements import METHOD, runs
from measurements.runs import Run, RunError, read


@pytest.fixture
def new(tmp_path):
    """A run that has no row yet."""
    return Run.create(tmp_path / "runs", "one", {"batch": ["1"]}, ["pytest", "-m", "theory"])


@pytest.fixture
def saved(new):
    """The folder of a run of three rows."""
    for number in range(3):
        new.append({"number": number, "name": "Grüße"})
    return new.folder


def test_nothing_is_on_disk_before_the_first_row(new):
    """A run that measured nothing leaves no folder."""
    assert not new.folder.parent.exists()

    new.append({"flop": 1})

    assert sorted(path.name for path in new.folder.iterdir()) == ["records.jsonl", "run.json"]


def test_run_json_says_how_the_rows_came_about(saved):
    """METHOD, when, command, options, versions, device."""
    run = read(saved).run

    assert run["method"] == METHOD
    assert str(run["when"]).endswith("+00:00")
    assert run["command"] == ["pytest", "-m", "theory"]
    assert run["options"] == {"batch": ["1"]}
    assert run["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert run["versions"]["pytest"] == pytest.__version__
    assert run["device"]["cores"] >= 1
    assert run["device"]["cpu"]


def test_versions_are_read_without_importing_torch(tmp_path):
    """A command that only reads or saves runs starts in no time."""
    script = (
        "import sys; from pathlib import Path; from measurements.runs import Run, read\n"
        "run = Run.create(Path(sys.argv[1]), None, {}, []); run.append({}); facts = read(run.folder).run\n"
        "print(facts['versions']['torch'], 'torch' in sys.modules)"
    )
    root = Path(runs.__file__).parents[1]

    out = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=root, capture_output=True, text=True, check=True
    )

    version, imported = out.stdout.split()
    assert version[0].isdigit()
    assert imported == "False"


def test_a_row_is_on_disk_when_append_returns(new):
    """Each row is a line of its own, in the order of arrival."""
    for number in range(5):
        new.append({"number": number})

        lines = (new.folder / "records.jsonl").read_text().splitlines()
        assert [json.loads(line)["number"] for line in lines] == list(range(number + 1))
        assert new.rows == number + 1


@pytest.mark.parametrize("flop", [0, -1, 2**53 + 1, 2**63, 10**40 + 1], ids=lambda flop: f"{flop:.0e}")
def test_integers_stay_exact(new, flop):
    """A count past 2^53 is no float anywhere on the way."""
    new.append({"flop": flop})

    assert read(new.folder).rows == [{"flop": flop}]
    assert f": {flop}}}" in (new.folder / "records.jsonl").read_text()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, object(), {1}, 1j])
def test_what_json_cannot_say_is_refused_and_not_written(saved, new, value):
    """A row is saved whole or not at all."""
    before = (saved / "records.jsonl").read_bytes()

    with pytest.raises(RunError, match="row 4 of one cannot be saved"):
        new.append({"number": 3, "value": value})

    assert (saved / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "/a", "../a", "..", ".a", "-a", "a.", "a b", "a\\b", "a\n", "a\0", "a:b", "ä", "a" * 101],
    ids=repr,
)
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, name):
    """One folder below the root, wherever the run is copied to."""
    with pytest.raises(RunError, match="is no plain folder name; give"):
        Run.create(tmp_path, name, {}, [])


@pytest.mark.parametrize("name", ["a", "A1", "p100.fp32", "2026-11-29_a", "a" * 100])
def test_a_plain_name_is_the_folder(tmp_path, name):
    """What the user says is where the rows are."""
    run = Run.create(tmp_path, name, {}, [])
    run.append({})

    assert read(tmp_path / name).rows == [{}]


def test_a_name_that_exists_is_refused(saved):
    """Rows of two runs never meet in one folder."""
    with pytest.raises(RunError, match=r"'one' exists in .*; give another name"):
        Run.create(saved.parent, "one", {}, [])


def test_of_two_runs_of_one_name_the_later_row_is_refused(tmp_path):
    """Also where both names were free when they were given."""
    first, second = (Run.create(tmp_path, "same", {}, []) for _ in range(2))
    first.append({"from": "first"})

    with pytest.raises(RunError, match="made by another run meanwhile"):
        second.append({"from": "second"})

    assert read(tmp_path / "same").rows == [{"from": "first"}]


def test_a_run_without_a_name_has_one_of_its_own(tmp_path):
    """Named by the moment and the process: sorted by time, and two processes never share one."""
    run = Run.create(tmp_path, None, {}, [])

    day, time, process = run.folder.name.split("-")
    assert f"{run.when:%Y%m%d %H%M%S}" == f"{day} {time}"
    assert process.isdigit()


def test_run_json_is_written_whole_or_not_at_all(new, monkeypatch):
    """A crash before the last step leaves no run.json, however much of it was written."""

    def crash(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)

    with pytest.raises(KeyboardInterrupt):
        new.append({"flop": 1})

    assert not (new.folder / "run.json").exists()
    with pytest.raises(RunError, match=r"it has no run\.json"):
        read(new.folder)


def test_a_last_line_cut_short_costs_that_row_alone_and_is_remarked(saved):
    """Cut anywhere: a run that was killed while it wrote."""
    path = saved / "records.jsonl"
    whole = path.read_bytes()
    begin = whole.rstrip(b"\n").rindex(b"\n") + 1

    for cut in range(begin + 1, len(whole) - 1):
        path.write_bytes(whole[:cut])
        _, rows, remarks = read(saved)
        assert [row["number"] for row in rows] == [0, 1], f"cut at byte {cut}"
        assert remarks == (f"{path}:3 is cut short: that row is left out",), f"cut at byte {cut}"


def test_a_last_line_that_lacks_its_newline_alone_is_kept(saved):
    """Nothing of the row is missing."""
    path = saved / "records.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    _, rows, remarks = read(saved)
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert remarks == ()


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"7", b'{"number": \xff}'], ids=repr)
def test_a_damaged_line_in_the_middle_is_named(saved, damage):
    """Rows after it would be read as if nothing were missing."""
    path = saved / "records.jsonl"
    first, _, third, end = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, damage, third, end]))

    with pytest.raises(RunError, match=r"records\.jsonl:2 is damaged"):
        read(saved)


def test_a_run_without_records_is_remarked(saved):
    """It ended between run.json and its first row, or somebody deleted them."""
    (saved / "records.jsonl").unlink()

    _, rows, remarks = read(saved)
    assert rows == []
    assert "records.jsonl is missing" in remarks[0]


def facts(**changes):
    """A run.json with some of its facts changed; None takes one away."""
    whole = dict.fromkeys(runs.KEYS, "") | {"method": METHOD} | changes
    return json.dumps({key: value for key, value in whole.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "is damaged: not a JSON object", id="empty"),
        pytest.param('{"method": 1, "wh', "is damaged: not a JSON object", id="cut"),
        pytest.param("[1]", "is damaged: not a JSON object", id="list"),
        pytest.param("{}", "is not of this suite: it lacks method, when, command", id="foreign"),
        pytest.param(facts(device=None), "is not of this suite: it lacks device", id="lacks_device"),
        pytest.param(facts(method="1"), "method is '1', not a whole number", id="method_is_text"),
        pytest.param(facts(method=0), "method is 0, not a whole number", id="method_is_0"),
        pytest.param(facts(method=METHOD + 1), f"saved with METHOD {METHOD + 1}, .*: update it", id="later"),
    ],
)
def test_what_is_wrong_with_run_json_is_said_in_one_sentence(saved, text, sentence):
    """Damaged, foreign, or of a later METHOD."""
    (saved / "run.json").write_text(text)

    with pytest.raises(RunError, match=sentence):
        read(saved)


def test_a_folder_that_is_missing_is_said_to_be(tmp_path):
    """The most usual mistake: a name without its folder."""
    with pytest.raises(RunError, match="is not a saved run: no such folder; give a folder under runs/"):
        read(tmp_path / "nothing")


# What pytest saves

SMALL = """
import os
import pytest
from measurements.records import OpRecord, Phase, Work

WORK = Work((
    OpRecord(Phase.FORWARD, "aten.mm", flop=12, contraction=12),
    OpRecord(Phase.BACKWARD, "aten.mm", flop=24, contraction=24),
    OpRecord(Phase.BACKWARD, "aten.mul", flop=3, recomputed=5),
))
"""


def only(folder):
    """The one run under that folder."""
    (found,) = (folder / "runs").iterdir()
    return read(found)


def test_work_is_saved_before_the_asserts_and_the_verdict_after_them(suite, tmp_path):
    """A test that fails still saves its rows, and says why it failed."""
    end = suite(
        SMALL
        + """
@pytest.mark.experiment("B6")
@pytest.mark.parametrize("depth", [3])
def test_fails(record_work, depth):
    work = record_work(WORK, counter="dispatch", kind="conv")
    assert work.contraction.backward == 23
""",
        "--run=mine",
    )

    assert end.returncode == 1, end.stdout
    assert "4 rows saved in runs/mine" in end.stdout
    _, (*counts, verdict), remarks = read(tmp_path / "runs" / "mine")
    assert remarks == ()
    common = {"experiment": ["B6"], "test": "test_small.py::test_fails[3]"}
    axes = {"axes": {"depth": 3, "kind": "conv"}, "counter": "dispatch"}
    assert counts == [
        {"kind": "count", **common, **axes, "phase": phase, "flop": flop, "contraction": contraction}
        | {"recomputed": recomputed, "recomputed_contraction": 0}
        for phase, flop, contraction, recomputed in [
            ("forward", 12, 12, 0),
            ("backward", 27, 24, 5),
            ("update", 0, 0, 0),
        ]
    ]
    reason = verdict.pop("reason")
    assert verdict == {"kind": "verdict", **common, "verdict": "failed"}
    assert reason.startswith("assert 24 == 23")


def test_a_phase_that_a_counter_does_not_see_has_no_row(suite, tmp_path):
    """Not seen is not the same as 0 FLOP."""
    end = suite(SMALL + "def test_forward(record_work): record_work(WORK, counter='fvcore')")

    assert end.returncode == 0, end.stdout
    rows = only(tmp_path).rows
    assert [row["phase"] for row in rows if row["kind"] == "count"] == ["forward"]


def test_verdicts_are_those_of_experiments_and_of_every_skip(suite, tmp_path):
    """A skip is one line with its reason."""
    end = suite(
        SMALL
        + """
@pytest.mark.experiment("A2")
@pytest.mark.experiment("A3")
def test_both(): pass

def test_no_experiment(): pass

@pytest.mark.skip(reason="needs a P100; has none")
def test_marked(): pass

def test_skips(): pytest.skip("needs fvcore; has none")

@pytest.mark.experiment("A1")
def test_broken(missing_fixture): pass
"""
    )

    assert end.returncode == 1, end.stdout
    rows = [(row["test"].partition("::")[2], row["verdict"], row["reason"]) for row in only(tmp_path).rows]
    assert rows[:3] == [
        ("test_both", "passed", None),
        ("test_marked", "skipped", "needs a P100; has none"),
        ("test_skips", "skipped", "needs fvcore; has none"),
    ]
    assert rows[3][:2] == ("test_broken", "failed")
    assert only(tmp_path).rows[0]["experiment"] == ["A2", "A3"]


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "os._exit(9)"], ids=["interrupted", "killed"])
def test_an_interrupted_run_keeps_its_rows(suite, tmp_path, end):
    """Whatever ends the process, what was measured is on disk."""
    suite(
        SMALL
        + f"""
@pytest.mark.experiment("A1")
def test_first(record_work): record_work(WORK)

def test_second(record_work):
    record_work(WORK)
    {end}
"""
    )

    rows = only(tmp_path).rows
    assert [row["kind"] for row in rows] == ["count"] * 3 + ["verdict"] + ["count"] * 3


@pytest.mark.parametrize("options", [("--collect-only",), ("-k", "nothing")], ids=["collect_only", "no_test"])
def test_a_run_without_rows_makes_no_folder(suite, tmp_path, options):
    """Looking at a suite leaves nothing behind."""
    suite(SMALL + "def test_any(record_work): record_work(WORK)", *options)

    assert not (tmp_path / "runs").exists()


def test_a_failed_comparison_prints_counted_against_theory_op_by_op(suite):
    """The op that differs is found without a debugger."""
    end = suite(
        SMALL
        + """
def test_work(): assert WORK == Work((*WORK.records[:2], OpRecord(Phase.BACKWARD, "aten.add", flop=10_000)))
def test_flop(): assert WORK.contraction == Work(WORK.records[:1]).contraction
def test_order(): assert WORK == Work(WORK.records[::-1])
"""
    )

    assert end.returncode == 1
    assert "backward aten.mul flop: counted 3, theory 0, differs by +3" in end.stdout
    assert "backward aten.add flop: counted 0, theory 10,000, differs by -10,000" in end.stdout
    assert "backward: counted 24, theory 0, differs by +24" in end.stdout
    assert "the FLOP of every op agree; order, modules" in end.stdout
