"""Saved times lie under the device's name, say what they depend on, and are compared by utilization, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from measurements import saved_times

ROOT = Path(__file__).parents[2]

HERE = {"torch": "2.14.1", "driver": "580.1", "gpu": "Tesla P100-PCIE-16GB", "cpu": "AMD EPYC", "cores": 2}


def test_runs_that_differ_in_what_matters_are_told_apart():
    """One sentence for each; what else differs, such as the machine's name, does not matter."""
    there = {**HERE, "torch": "2.7.1", "gpu": None, "dtype": ["tf32", "bf16"], "node": "another"}

    assert saved_times.differing(HERE, HERE) == []
    assert saved_times.differing(HERE, there) == [
        "torch 2.14.1 here, 2.7.1 there",
        "gpu Tesla P100-PCIE-16GB here, none there",
        "dtype none here, tf32, bf16 there",
    ]


def test_machine_info_is_the_same_each_time(monkeypatch):
    """No clock that runs, no load, no name of a host: else every comparison would warn."""
    first, second = saved_times.machine_info(()), saved_times.machine_info(())

    assert first == second
    assert set(saved_times.MATTERS) <= set(first)
    assert first["dtype"] == ["fp32"]
    json.dumps(first)


def test_a_folder_is_the_devices_name():
    """The GPU's where a GPU is timed."""
    assert saved_times.folder(HERE, on_gpu=True) == "Tesla_P100_PCIE_16GB"
    assert saved_times.folder(HERE, on_gpu=False) == "AMD_EPYC"
    assert saved_times.folder({**HERE, "gpu": None}, on_gpu=True) == "AMD_EPYC"


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"flop": 930, "peak_flop_per_s": 9300, "peak_kind": "datasheet"}, "test 20.0% of datasheet"),
        (
            {"flop": 930, "parts": 10, "statistic": "mean", "peak_flop_per_s": 930, "peak_kind": "--peak"},
            "test 10.0% of --peak",
        ),
        ({"flop": 0, "peak_flop_per_s": 9300, "peak_kind": "datasheet"}, "test"),
        ({"flop": 930}, "test"),
        ({}, "test"),
    ],
)
def test_a_name_carries_the_utilization_of_its_own_time(info, name):
    """By hand: 930 FLOP in half a second; a tenth of them in one, of an epoch of ten batches."""
    row = {"name": "test", "median": 0.5, "mean": 1.0, "extra_info": info}

    assert saved_times.with_utilization(row) == name


@pytest.fixture
def timed(tmp_path):
    """A function that runs the timed experiments of a small network with options; files go to tmp_path."""

    def run(*options, experiment="A11"):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "cpu", *options]
        command += ["--experiment", experiment, "--arch", "conv_net", "--batch", "2", "--rounds", "2"]
        command += ["--input-shape", "3x16x16", "--epoch-images", "5", "--run", f"timed-{tmp_path.name}"]
        storage = f"--benchmark-storage=file://{tmp_path}/times"
        folder = ROOT / "runs" / f"timed-{tmp_path.name}"
        try:
            end = subprocess.run(
                [*command, storage], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
            )
            text = (folder / "records.jsonl").read_text(encoding="utf-8")
            return end, [json.loads(line) for line in text.splitlines()]
        finally:
            for path in folder.glob("*"):
                path.unlink()
            folder.rmdir()

    return run


def test_a_timed_run_saves_rows_that_hold_what_they_are_made_of(timed, tmp_path):
    """Study A's four methods on a small network: flop by the theory, time, peak, both conventions."""
    end, rows = timed("--benchmark-save=first", "--peak=1T")

    assert end.returncode == 0, end.stdout
    assert "test_of_an_epoch[conv_net-cpu-b002-fp32]: 4 of 4, " in end.stdout
    assert "Utilization (as study A counts, a multiply-add is 1) <= the roofline's bound:" in end.stdout
    ratios = [row for row in rows if row["kind"] == "utilization"]
    assert {row["axes"]["method"] for row in ratios} == {"theory", "one", "batch", "epoch"}
    for row in ratios:
        assert row["utilization"] == row["flop"] / (row["seconds"] * row["peak_flop_per_s"])
        assert (row["peak"], row["dtype"], row["axes"]["clock"]) in (
            ("--peak", "fp32", "wall"),
            ("measured", "fp32", "wall"),
        )
    flop = {
        (row["axes"]["method"], row["convention"]): row["flop"] for row in ratios if row["peak"] == "--peak"
    }
    for method in ("theory", "one", "batch", "epoch"):
        assert flop[method, "fma2"] == 2 * flop[method, "fma1"]
    assert flop["batch", "fma2"] == 2 * flop["one", "fma2"]
    assert 2 * flop["epoch", "fma2"] == 5 * flop["batch", "fma2"]
    epoch = next(row for row in rows if row["kind"] == "time" and row["axes"]["method"] == "epoch")
    assert len(epoch["rounds"]) == 3
    assert epoch["seconds"] == pytest.approx(sum(epoch["rounds"]))
    assert (epoch["axes"]["images"], epoch["axes"]["data"]) == (5, "synthetic")

    (path,) = (tmp_path / "times").glob("*/0001_first.json")
    saved = json.loads(path.read_text())
    assert path.parent.name == saved_times.folder(saved["machine_info"], on_gpu=False)
    assert {bench["extra_info"]["peak_kind"] for bench in saved["benchmarks"]} == {"--peak"}

    saved["machine_info"]["torch"] = "0.0"
    path.write_text(json.dumps(saved))
    end, _ = timed("--benchmark-compare=0001", "--peak=1T", "-k", "of_a_batch")
    assert end.returncode == 0, end.stdout
    assert "Careful, the runs differ: torch " in end.stdout + end.stderr
    assert "% of --peak (0001_first)" in end.stdout
    command = [str(Path(sys.executable).parent / "pytest-benchmark"), f"--storage=file://{tmp_path}/times"]
    end = subprocess.run(
        [*command, "compare"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert "test_of_a_batch[conv_net-cpu-b002-fp32] " in end.stdout
    assert "% of --peak" in end.stdout


def test_a_peak_that_is_too_low_fails_with_its_parts_and_keeps_the_time(timed):
    """Nothing above 1 without a reason; what was timed is saved."""
    end, rows = timed("--peak=1k", "-k", "of_a_batch")

    assert end.returncode == 1
    assert "no kernel that multiplies less than the dense count; the peak or the count is wrong" in end.stdout
    assert {row["verdict"] for row in rows if row["kind"] == "verdict"} == {"failed"}
    assert sum(row["kind"] == "time" for row in rows) == 1
    assert all(row["utilization"] > 1 for row in rows if row.get("peak") == "--peak")


def test_phases_are_timed_each_by_itself(timed):
    """And bf16 under autocast; tf32 is a skip that says so."""
    end, rows = timed("--dtype=bf16,tf32", experiment="A10")

    assert end.returncode == 0, end.stdout
    times = [row["axes"] for row in rows if row["kind"] == "time"]
    assert [(axes["phase"], axes["dtype"]) for axes in times] == [
        (phase, "bf16") for phase in ("forward", "backward", "update")
    ]
    skipped = {row["reason"] for row in rows if row["kind"] == "verdict" and row["verdict"] == "skipped"}
    assert "needs tf32; a CPU has none" in " ".join(skipped)
