"""Every option narrows or extends the tests as it says, and a wrong value ends in one clear sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SMALL = """
import pytest

@pytest.mark.experiment("A1")
def test_a1(arch, counter): pass

@pytest.mark.experiment("A10")
@pytest.mark.axes(batch=(1, 64))
def test_a10(batch): pass

@pytest.mark.bench
def test_bench(): pass

@pytest.mark.theory
@pytest.mark.axes(arch=("resnet18",), optimizer=("sgd", "adam"))
def test_theory(arch, optimizer): pass
"""

BAD = {  # the option as typed: the sentence about it
    "--arch=resnet5O": "--arch: unknown architecture 'resnet5O'; near: resnet50",
    "--arch=resnet18,": "--arch: unknown architecture ''",
    "--arch=no_such_package:Net": "--arch: 'no_such_package:Net'",
    "--arch=json:dumps": "--arch: 'json:dumps'",
    "--batch=0": "--batch: '0' is not a whole number of 1 or more",
    "--batch=-1": "--batch: '-1' is not a whole number of 1 or more",
    "--batch=1,x": "--batch: 'x' is not a whole number of 1 or more",
    "--batch=1.5": "--batch: '1.5' is not a whole number of 1 or more",
    "--batch=": "--batch: '' is not a whole number of 1 or more",
    "--optimizer=adm": "--optimizer: unknown optimizer 'adm'; have ",
    "--counter=dispach": "--counter: unknown counter 'dispach'; have autograd_profiler, ",
    "--experiment=Z9": "--experiment: unknown experiment 'Z9'; have A1, A10",
    "--experiment=A": "--experiment: unknown experiment 'A'; have A1, A10",
    "--input-shape=3x0x64": "--input-shape: input shape '3x0x64'; give whole numbers",
    "--input-shape=3,64,64": "--input-shape: input shape '3,64,64'; give whole numbers",
    "--classes=0": "--classes: '0' is not a whole number of 1 or more",
    "--classes=ten": "--classes: 'ten' is not a whole number of 1 or more",
    "--run=a/b": "--run: 'a/b' is no plain folder name; give",
    "--run=taken": "--run: 'taken' exists in ",
}

ONE_PROCESS = """
import contextlib, io, json, sys, pytest

ends = {}
for option in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = pytest.main([*sys.argv[2:], option])
    ends[option] = (int(code), err.getvalue())
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory, own_environment):
    """Exit code and standard error of pytest for each wrong option, all in one process."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "runs" / "taken").mkdir(parents=True)
    (folder / "test_small.py").write_text(SMALL)
    arguments = ["-p", "conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pytest.ini")]
    command = [sys.executable, "-c", ONE_PROCESS, json.dumps(list(BAD)), *arguments, "--rootdir", str(folder)]
    end = subprocess.run(
        [*command, str(folder)],
        cwd=folder,
        env=own_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(end.stdout)


@pytest.mark.parametrize("option", BAD)
def test_a_wrong_value_ends_in_one_sentence(ends, option):
    """Exit code 4, and what to change; no traceback and no usage page."""
    code, said = ends[option]

    assert code == pytest.ExitCode.USAGE_ERROR
    assert said.startswith(f"ERROR: {BAD[option]}")
    assert len(said.strip().splitlines()) == 1


def ids(end):
    """The ids that `--collect-only -q` lists, without the file."""
    assert end.returncode == 0, end.stdout + end.stderr
    return [line.partition("::")[2] for line in end.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--experiment=A10"], ["test_a10[b001]", "test_a10[b064]"], id="one_experiment"),
        pytest.param(["--experiment=a10"], ["test_a10[b001]", "test_a10[b064]"], id="lower_case"),
        pytest.param(
            ["--experiment=A1,A10", "--arch=vgg11", "--counter=fvcore", "--batch=2"],
            ["test_a1[vgg11-fvcore]", "test_a10[b002]"],
            id="two_experiments",
        ),
        pytest.param(["-m", "bench"], ["test_bench"], id="bench"),
        pytest.param(
            ["-m", "theory"], ["test_theory[resnet18-sgd]", "test_theory[resnet18-adam]"], id="theory"
        ),
        pytest.param(
            ["-m", "theory", "--arch=alexnet,vgg11", "--optimizer=adam"],
            ["test_theory[alexnet-adam]", "test_theory[vgg11-adam]"],
            id="axes_replaced",
        ),
        pytest.param(
            ["-m", "theory", "--optimizer=adam", "--arch=alexnet", "--arch=vgg11", "--arch=alexnet"],
            ["test_theory[alexnet-adam]", "test_theory[vgg11-adam]"],
            id="repeated",
        ),
    ],
)
def test_options_choose_the_tests(suite, options, expected):
    """Exactly those: A1 is not A10."""
    assert ids(suite(SMALL, "--collect-only", "-q", *options)) == expected


def test_bench_runs_only_where_m_names_it(suite):
    """Without options everything else runs."""
    names = {name.partition("[")[0] for name in ids(suite(SMALL, "--collect-only", "-q"))}

    assert names == {"test_a1", "test_a10", "test_theory"}


def test_a_model_of_ones_own_is_an_architecture(suite, tmp_path):
    """It takes the axis like a listed one, with an id that -k can say, its own input shape and classes."""
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def Small(classes): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))\n"
    )
    end = suite(
        """
def test_step(step):
    assert step.inputs[0].shape == (2, 3, 8, 8)
    assert step.inputs[0].is_meta
    assert step.call().shape == (2, 7)
    assert int(step.targets.shape[0]) == 2
    assert step.optimizer is None
""",
        *("--arch=nets:Small", "--batch=2", "--input-shape=3x8x8", "--classes=7", "-v"),
    )

    assert end.returncode == 0, end.stdout + end.stderr
    assert "test_step[nets_small-b002] PASSED" in end.stdout


def test_the_step_has_the_optimizer_of_the_axis_and_the_device_of_the_counter(suite):
    """A counter that computes has its step on the CPU, and a file may say how large an input is."""
    end = suite(
        """
import pytest

@pytest.fixture
def input_shape(): return (3, 64, 64)

@pytest.mark.axes(arch=("alexnet",), optimizer=("adam",), counter=("dispatch", "fvcore"))
def test_step(step, optimizer, counter):
    assert type(step.optimizer).__name__ == "Adam"
    assert step.inputs[0].shape == (1, 3, 64, 64)
    assert step.inputs[0].device.type == counter.device == ("cpu" if counter.name == "fvcore" else "meta")
"""
    )

    assert end.returncode == 0, end.stdout + end.stderr


def test_an_axis_that_does_not_exist_is_named(suite):
    """A slip in a marker would otherwise leave the test its default."""
    end = suite("import pytest\n@pytest.mark.axes(bacth=(1,))\ndef test_any(batch): pass")

    assert end.returncode != 0
    assert (
        "unknown axis 'bacth'; have arch, device, batch, dtype, clock, optimizer, counter"
        in end.stdout + end.stderr
    )
