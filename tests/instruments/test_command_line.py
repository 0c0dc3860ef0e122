"""The command line says what count_step and the theory say, and every wrong value ends in one sentence."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from measurements import theory
from measurements.__main__ import main
from measurements.commands import arguments, measure, numbers
from measurements.commands.training import Training
from measurements.counters import COUNTERS
from measurements.records import Flop
from measurements.runs import read

ROOT = Path(__file__).parents[2]

NETS = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
    def example_inputs(self, batch): return torch.randint(50, (batch, 7))
    def forward(self, ids): return self.head(self.embed(ids))

class Named(Tokens):
    def example_inputs(self, batch): return {"ids": torch.randint(50, (batch, 7))}

class Listed(Tokens):
    def example_inputs(self, batch): return [1, 2]

class Needy(Tokens):
    def example_inputs(self, batch): raise KeyError("length")

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 4), nn.Linear(6, 4)
    def forward(self, x, y): return self.left(x) + self.right(y)

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
    def forward(self, x):
        print("the model's own words")
        return self.layer(x) if x.sum().item() > -1 else x

class Talks(nn.Linear):
    def __init__(self): super().__init__(8, 4)
    def forward(self, x):
        print("the model's own words")
        return super().forward(x)

class Frozen(nn.Linear):
    def __init__(self):
        super().__init__(8, 4)
        self.requires_grad_(False)

class Half(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 6).requires_grad_(False), nn.Linear(6, 4))

class Classes(nn.Linear):
    def __init__(self): super().__init__(8, 4)
    def forward(self, x): return super().forward(x).argmax(1)

class Normed(nn.Sequential):
    def __init__(self): super().__init__(nn.Linear(8, 4), nn.BatchNorm1d(4))

class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        x = checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
        return self.second(x)

class Backless(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, gradient): raise RuntimeError("no way back")

class OneWay(nn.Linear):
    def __init__(self): super().__init__(8, 4)
    def forward(self, x): return Backless.apply(super().forward(x))

class Small(nn.Sequential):
    def __init__(self): super().__init__(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))

def fails(): raise RuntimeError("no weights today")
def ends(): raise SystemExit(3)
"""

COUNTERS_OF_OUR_OWN = """
def raises(step): raise RuntimeError("this model has too many legs")
def interrupted(step):
    if type(step.model).__name__ == "OneNet":
        raise KeyboardInterrupt
    return theory(step)
def theory(step):
    from measurements.counters.closed_form import count
    return count(step)
def one_more(step):
    from measurements.records import Work
    first, *others = theory(step).records
    return Work((first._replace(flop=first.flop + 1, contraction=first.contraction + 1), *others))
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """A function from the words of a command line to exit code, standard output and standard error."""
    (tmp_path / "our_nets.py").write_text(NETS)
    (tmp_path / "our_counters.py").write_text(COUNTERS_OF_OUR_OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        try:
            code = main(words)
        except SystemExit as end:  # argparse ends so
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    yield run
    for name in ("our_nets", "our_counters"):
        sys.modules.pop(name, None)


def answer(command, *words):
    """The JSON of `count`, which stands alone on standard output."""
    code, out, err = command("count", *words, "--json")
    assert code == 0, err
    return json.loads(out)


# Bad input

SMALL = ("our_nets:Small", "--input-shape", "8")

BAD = {  # the words: the sentence about them
    ("count",): "the following arguments are required: ARCH",
    ("cuont", "mlp"): "COMMAND: invalid choice: 'cuont'",
    ("count", "mlp", "--btach", "3"): "unrecognized arguments: --btach 3",
    ("count", "resnet5O"): "unknown architecture 'resnet5O'; near: resnet50",
    ("count", "no_such_package:Net"): "'no_such_package:Net': no module 'no_such_package'",
    ("count", "mlp", "--batch", "0"): "--batch: '0' is not a whole number of 1 or more",
    ("count", "mlp", "--batch", "-4"): "--batch: '-4' is not a whole number of 1 or more",
    ("count", "mlp", "--batch", "ten"): "--batch: 'ten' is not a whole number of 1 or more",
    ("count", "mlp", "--optimizer", "adm"): "--optimizer: unknown optimizer 'adm'; have adadelta, ",
    ("count", "mlp", "--by", "layer"): "--by: unknown kind 'layer'; have module, op, phase",
    ("count", "mlp", "--input-shape", "3x0"): "--input-shape: input shape '3x0'; give whole numbers",
    ("count", "mlp", "--input-shape", "8,"): "--input-shape: input shape ''; give whole numbers",
    ("count", "mlp", "--classes", "0"): "--classes: '0' is not a whole number of 1 or more",
    ("count", "mlp", "--samples", "0"): "--samples: '0' is not a whole number of 1 or more",
    ("count", "mlp", "--samples", "9", "--epochs", "-1"): "--epochs: '-1' is not a whole number of 1 or more",
    ("count", "mlp", "--epochs", "2"): "--epochs 2 needs --samples: give how many",
    (
        "count",
        "our_nets:fails",
    ): "'our_nets:fails' failed to build its model (RuntimeError: no weights today)",
    ("count", "our_nets:ends"): "'our_nets:ends' ended the program while it was imported or built (exit 3)",
    ("count", "our_nets:Listed"): "Listed: example_inputs returned list; return a tensor, a tuple",
    ("count", "our_nets:Needy"): "Needy: example_inputs(1) failed: KeyError: 'length'",
    ("count", "our_nets:Frozen", "--input-shape", "8"): "optimizer 'sgd' has no parameter to update",
    ("count", "our_nets:Classes", "--input-shape", "8"): "no floating-point tensor to sum; make the model",
    (
        "count",
        "our_nets:OneWay",
        "--input-shape",
        "8",
    ): " of OneWay failed: RuntimeError: no way back",
    ("count", *SMALL[:2], "9"): "the forward of Small failed on inputs of 1x9 float32 on meta: ",
    (
        "count",
        "our_nets:Two",
        "--input-shape",
        "8",
    ): "missing 1 required positional argument: 'y'; give --input",
    ("count", "our_nets:Normed", "--input-shape", "8", "--batch", "4", "--samples", "9"): (
        "each epoch ends with a batch of 1, which fails: the forward of Normed failed"
    ),
    ("measure", "--run", "a/b"): "--run: 'a/b' is no plain folder name; give",
    ("measure", "--arch", "resnet5O"): "--arch: unknown architecture 'resnet5O'; near: resnet50",
    ("measure", "--arch", "mlp,"): "--arch: 'mlp,' holds an empty name",
    ("measure", "--counter", "dispach"): "--counter: unknown counter 'dispach'; have autograd_profiler, ",
}


@pytest.mark.parametrize("words", [pytest.param(words, id="_".join(words)) for words in BAD])
def test_a_wrong_value_ends_in_one_sentence(command, words):
    """Exit code 2, one line on standard error, no usage page, no traceback, nothing saved."""
    code, out, err = command(*words)

    assert code == 2
    assert out == ""
    assert BAD[words] in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_an_operation_without_a_formula_is_named(command, monkeypatch):
    """It never counts as zero in silence."""
    from measurements.counters.dispatch.mode import WorkedOut
    from measurements.formulas import FORMULAS

    monkeypatch.delitem(FORMULAS, "aten.addmm")
    monkeypatch.setattr("measurements.counters.dispatch.mode.SHARED", WorkedOut())
    code, out, err = command("count", *SMALL)

    assert (code, out) == (2, "")
    assert err.startswith("measurements: no formula for aten.addmm on [")
    assert len(err.strip().splitlines()) == 1


def test_a_name_that_exists_is_refused_before_anything_is_measured(command):
    """A run is never continued."""
    Path("runs/mine").mkdir(parents=True)
    code, _, err = command("measure", "--run", "mine")

    assert code == 2
    assert "--run: 'mine' exists in runs; give another name" in err


WITHOUT_TORCH = (
    *(["--help"], ["count", "--help"], ["measure", "--help"], [], ["count", "mlp", "--batch", "0"]),
    *(["count", "mlp", "--optimizer", "adm"], ["count", "mlp", "--epochs", "2"], ["measure", "--run", "a/b"]),
)

ONE_PROCESS = """
import contextlib, io, json, sys
from measurements.__main__ import main

ends = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    ends.append((code, out.getvalue(), "torch" in sys.modules))
print(json.dumps(ends))
"""


def test_help_and_wrong_options_import_no_torch():
    """Torch costs seconds, and none of these needs it."""
    words = [sys.executable, "-c", ONE_PROCESS, json.dumps(WITHOUT_TORCH)]
    end = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)

    ends = json.loads(end.stdout)
    assert [code for code, _, _ in ends] == [0] * 3 + [2] * 5
    assert [torch for _, _, torch in ends] == [False] * 8
    assert "example_inputs(batch)" in ends[1][1]


@pytest.mark.parametrize("words", [("count", "mlp"), ("measure", "--arch", "mlp", "--counter", "dispatch")])
def test_a_reader_that_goes_away_ends_the_command_in_silence(words, tmp_path):
    """As in `… | head`: no traceback, and the code that a shell gives a program killed by SIGPIPE."""
    with subprocess.Popen(
        [sys.executable, "-m", "measurements", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        run.stdout.close()
        said = run.stderr.read()
        code = run.wait(timeout=300)

    assert code == 141, said
    assert "Traceback" not in said
    assert "Error" not in said


def test_ctrl_c_says_so(command, monkeypatch):
    """Exit code 130, as a shell expects."""
    monkeypatch.setattr("measurements.commands.count.counted", interrupt)

    assert command("count", "mlp") == (130, "", "measurements: interrupted\n")


def interrupt(*_):
    """What Ctrl-C does."""
    raise KeyboardInterrupt


# One step


def flop(work):
    """All work as JSON says it."""
    numbers = Flop(work.forward, work.backward, work.update, work.recomputed)
    return phases(numbers)


def phases(numbers):
    """FLOP as JSON says them."""
    names = ("forward", "backward", "update", "recomputed", "total")
    return {name: getattr(numbers, name) for name in names}


@pytest.fixture
def counted(command):
    """The work of ConvNet's step at batch 3 with Adam, by count_step."""
    import torch

    import models
    from measurements import count_step

    with torch.device("meta"):
        model = models.build("conv_net", 10)
        x, targets = torch.rand(3, 3, 224, 224), torch.randint(10, (3,))
    return count_step(model, x, targets, optimizer="adam")


CONV_NET = ("conv_net", "--batch", "3", "--optimizer", "adam")


@pytest.mark.parametrize("by", ["op", "module", "phase"])
def test_json_is_what_count_step_says(command, counted, by):
    """Exact integers: of the step, and of each part, whose sum is the step."""
    said = answer(command, *CONV_NET, "--by", by)

    assert said["contraction"] == phases(counted.contraction)
    assert said["all_work"] == flop(counted)
    parts = getattr(counted, f"by_{by}")()
    assert {part["name"]: part["all_work"] for part in said[f"by_{by}"]} == {
        str(name): flop(part) for name, part in parts.items()
    }
    for kind in ("contraction", "all_work"):
        for name, total in said[kind].items():
            assert sum(part[kind][name] for part in said[f"by_{by}"]) == total


def test_json_is_the_closed_form(command):
    """The command line against the theory, which shares no code with it."""
    said = answer(command, *CONV_NET)

    terms = theory.conv_net(optimizer="adam")
    assert said["contraction"] == phases(theory.contraction_at(terms, 3))
    assert said["all_work"] == phases(theory.flop_at(terms, 3))
    parameters = 32 * 3 * 7 * 7 + 64 * 32 * 7 * 7 + 64 * 10 + 10
    assert (said["parameters"], said["trained"]) == (parameters, parameters)
    assert said["inputs"] == ["3x3x224x224 float32"]
    assert (said["loss"], said["device"], said["remark"]) == ("cross entropy", "meta", None)


def test_a_number_past_2_to_the_63_is_exact(command):
    """10^12 epochs of 10^9 samples; integers throughout."""
    said = answer(command, "mlp", "--samples", str(10**9), "--epochs", str(10**12), "--batch", str(10**5))

    forward = 2 * (24 * 16 + 16 * 12 + 12 * 10)
    assert said["training"]["contraction"]["forward"] == forward * 10**21


def table(out, head):
    """The rows below the line under that head, up to the total: name and integers; a dash is None."""
    lines = out.splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(rf"{head} .*(update|operations)", line)) + 2
    rows = []
    for line in filter(str.strip, lines[start:]):
        name, *cells = re.split(r"\s{2,}", line.strip())
        rows.append((name, [cell.replace(",", "") for cell in cells]))
        if name == "total":
            return rows
    raise AssertionError("no total")


@pytest.mark.parametrize(("by", "columns"), [("module", 5), ("op", 6), ("phase", 4)])
def test_the_rows_of_a_table_sum_to_its_total(command, counted, by, columns):
    """What is printed, added up; the last row is the step."""
    code, out, _ = command("count", *CONV_NET, "--by", by)
    *rows, (_, total) = table(out, by)

    assert code == 0
    sums = [sum(int(cells[n]) for _, cells in rows) for n in range(columns)]
    assert sums == [int(cell) for cell in total[:columns]]
    if by == "module":
        contraction = counted.contraction
        assert sums[:3] == [counted.forward, counted.backward, counted.update]
        assert sums[3:] == [contraction.forward, contraction.backward]


def test_modules_stand_in_tree_order(command):
    """As they are built, not as they run or by size; what runs in none of them comes last."""
    _, out, _ = command("count", *CONV_NET, "--by", "module")

    names = [name for name, _ in table(out, "module")]
    assert names == [
        "conv1",
        "relu",
        "maxpool",
        "conv2",
        "avgpool",
        "fc1",
        "(outside)",
        "(1 without work)",
        "total",
    ]


def test_ratios_are_those_of_the_law(command):
    """LinearNet at batch 1: 1 for the first layer, 2 for the others, and Adam's 13 for each parameter."""
    _, out, _ = command("count", "mlp", "--optimizer", "adam")

    first, others, parameters = 2 * 24 * 16, 2 * (16 * 12 + 12 * 10), 24 * 16 + 16 * 12 + 12 * 10
    said = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    found = {cells[0]: cells[1] for cells in said if len(cells) > 1}
    assert found["backward : forward"] == f"{float(theory.ratio(first, others)):.3f}"
    with_update = theory.ratio(first, others, 13 * parameters)
    assert found["(backward + all of update) : forward"] == f"{float(with_update):.3f}"
    assert found["forward"] == f"{first + others:,}"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_is_cut_off(command, monkeypatch, width):
    """Where exact numbers do not fit they are rounded, and that is said."""
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = command("count", "alexnet", "--batch", "512", "--by", "module", "--samples", str(10**7))

    assert code == 0
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    _, first, others = by_hand("alexnet")
    assert (f"{512 * (first + others):,}" in out) == (width > 60)
    assert ("Rounded" in out) == (width < 160)


def test_work_done_again_stands_beside_the_sums(command):
    """Activation checkpointing: a row of its own, in no total."""
    words = ("our_nets:Again", "--input-shape", "8", "--batch", "5")
    said = answer(command, *words)
    _, out, _ = command("count", *words)

    again = 2 * 5 * 8 * 8
    assert said["contraction"]["recomputed"] == again
    assert said["contraction"]["total"] == sum(
        said["contraction"][p] for p in ("forward", "backward", "update")
    )
    assert re.search(rf"recomputed, not in the total +{again}\b", out)


# Models of one's own


@pytest.mark.parametrize("net", ["Tokens", "Named"])
def test_a_model_may_say_what_it_takes(command, net):
    """A method example_inputs(batch): a tensor, or a dict of arguments; integers are tokens."""
    said = answer(command, f"our_nets:{net}", "--batch", "3", "--samples", "12", "--epochs", "2")

    assert said["inputs"] == ["3x7 int64"]
    assert said["tokens"] == 7
    assert said["loss"] == "the sum of all outputs"
    parameters = 50 * 8 + 8 * 50 + 50
    assert said["training"]["rule_of_thumb"] == 6 * parameters * 12 * 2 * 7
    assert said["training"]["contraction"]["forward"] == 2 * 8 * 50 * 12 * 2 * 7


def test_several_inputs_have_several_shapes(command):
    """Joined by commas, in the order of forward's arguments."""
    said = answer(command, "our_nets:Two", "--input-shape", "8,6", "--batch", "3", "--optimizer", "none")

    assert said["inputs"] == ["3x8 float32", "3x6 float32"]
    assert said["contraction"]["forward"] == 2 * 3 * (8 + 6) * 4
    assert said["all_work"]["update"] == 0


def test_frozen_parameters_are_told_apart(command):
    """They count for the rule of thumb, not for the update."""
    said = answer(command, "our_nets:Half", "--input-shape", "8")
    _, out, _ = command("count", "our_nets:Half", "--input-shape", "8")

    frozen, trained = 8 * 6 + 6, 6 * 4 + 4
    assert (said["parameters"], said["trained"]) == (frozen + trained, trained)
    assert said["all_work"]["update"] == 2 * trained
    assert f"{frozen + trained} parameters, {trained} trained, {frozen} frozen" in out


def test_a_model_that_reads_numbers_is_counted_on_the_cpu(command):
    """Said in a sentence; what the model prints is no part of the answer."""
    code, out, err = command("count", "our_nets:Reads", "--input-shape", "8", "--json")

    assert code == 0
    said = json.loads(out)
    assert said["device"] == "cpu"
    assert said["contraction"]["forward"] == 2 * 8 * 4
    assert "our_nets:Reads cannot run on meta, where nothing is computed (RuntimeError" in said["remark"]
    assert f"measurements: {said['remark']}\n" in err
    assert "the model's own words" in err


def test_a_model_that_prints_leaves_json_alone(command):
    """A program reads standard output."""
    assert answer(command, "our_nets:Talks", "--input-shape", "8")["device"] == "meta"


def test_every_optimizer_of_the_step_has_its_name_here():
    """The command line knows them without torch."""
    from measurements.step import OPTIMIZERS

    assert set(arguments.OPTIMIZERS) == {arguments.NO_UPDATE, *OPTIMIZERS}
    assert set(theory.UPDATE_COST) <= set(OPTIMIZERS)


# A whole training run


@pytest.mark.parametrize(("samples", "epochs"), [(6, 1), (7, 2), (2, 3)], ids=["whole", "rest", "less"])
def test_a_training_run_is_the_sum_of_its_steps(command, samples, epochs):
    """Every batch of every epoch counted by itself, the smaller last one as itself."""
    import torch

    import models
    from measurements import count_step

    said = answer(command, "mlp", "--batch", "3", "--samples", str(samples), "--epochs", str(epochs))[
        "training"
    ]

    with torch.device("meta"):
        model = models.build("mlp", 10)
        batches = [x for _ in range(epochs) for x in torch.rand(samples, 24).split(3)]
        works = [count_step(model, x, torch.randint(10, (len(x),)), optimizer="sgd") for x in batches]
    for name in ("forward", "backward", "update", "total"):
        assert said["all_work"][name] == sum(getattr(work, name) for work in works)
        assert said["contraction"][name] == sum(getattr(work.contraction, name) for work in works)
    assert said["steps"] == len(works)


def test_the_rule_of_thumb_stands_beside_the_count(command):
    """6 x params x samples x epochs, one token a sample for what is no token sequence."""
    code, out, _ = command("count", "mlp", "--batch", "4", "--samples", "100", "--epochs", "3")

    parameters = 24 * 16 + 16 * 12 + 12 * 10
    assert code == 0
    assert "Training: 100 samples x 3 epochs, 75 steps of 4\n" in out
    assert f"6 x {parameters} x 100 x 3 x 1 = {6 * parameters * 300 / 1e6:.3f} MFLOP" in out
    assert "(1 token a sample: the input is no token sequence)" in out


def test_a_training_run_steps_once_for_each_batch():
    """Samples that no batch is filled with make a smaller one, in every epoch."""
    assert [Training(10, 3, batch).steps for batch in (1, 3, 5, 10, 11)] == [30, 12, 6, 3, 3]
    assert [Training(10, 3, batch).last_batch for batch in (1, 3, 5, 10, 11)] == [0, 1, 0, 0, 10]
    assert Training(10, 3, 4).flop(Flop(8, 16, 1), Flop(4, 8, 1)) == Flop(60, 120, 9)


# The main job

ALEXNET = (  # (outputs, inputs, side of the filter, side of the output); a linear layer has sides of 1
    *((64, 3, 11, 55), (192, 64, 5, 27), (384, 192, 3, 13), (256, 384, 3, 13), (256, 256, 3, 13)),
    *((4096, 256 * 6 * 6, 1, 1), (4096, 4096, 1, 1), (10, 4096, 1, 1)),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What `measure` prints for two architectures by every counter, and the folder that it saves in."""
    folder = tmp_path_factory.mktemp("measure")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "220")
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        code = main(["measure", "--arch", "alexnet,conv_net", "--run", "mine"])
    assert code == 0, err.getvalue()
    return out.getvalue(), err.getvalue(), folder / "runs" / "mine"


@pytest.fixture(scope="module")
def lines(run):
    """The lines of measure.csv by architecture."""
    with (run[2] / "measure.csv").open(newline="", encoding="utf-8") as file:
        return {line["arch"]: line for line in csv.DictReader(file)}


def by_hand(arch):
    """Parameters, and contraction FLOP of the first layer and of the others, forward."""
    if arch == "conv_net":
        terms = [t.per_sample for t in theory.conv_net() if t.contraction and t.phase == "forward"]
        return 32 * 3 * 49 + 64 * 32 * 49 + 64 * 10 + 10, terms[0], sum(terms[1:])
    first, *others = [2 * o * i * k * k * side * side for o, i, k, side in ALEXNET]
    return sum(o * i * k * k + o for o, i, k, _ in ALEXNET), first, sum(others)


@pytest.mark.parametrize("arch", ["alexnet", "conv_net"])
@pytest.mark.parametrize("counter", ["theory", "dispatch"])
def test_the_csv_holds_what_the_law_says(lines, arch, counter):
    """Exact integers, by hand: first layer 1:1, others 2:1, SGD 2 and Adam 13 for each parameter."""
    parameters, first, others = by_hand(arch)
    line = lines[arch]

    assert int(line["parameters"]) == parameters
    assert int(line[f"{counter}_forward"]) == first + others
    assert int(line[f"{counter}_backward"]) == first + 2 * others
    assert int(line[f"{counter}_update_sgd"]) == 2 * parameters
    assert int(line[f"{counter}_update_adam"]) == 13 * parameters
    ratio = float(theory.ratio(first, others))
    assert float(line["theory_backward_to_forward"]) == pytest.approx(ratio, abs=5e-7)
    ratio = float(theory.ratio(first, others, 13 * parameters))
    assert float(line["theory_with_update_adam_to_forward"]) == pytest.approx(ratio, abs=5e-7)


def test_the_csv_explains_every_difference(lines):
    """Counter = theory + explained, for every counter and phase, or the reason why there is none."""
    for line in lines.values():
        for name, counter in COUNTERS.items():
            for phase in counter.phases if name not in ("closed_form", "dispatch") else ():
                if reason := counter.why_not():
                    assert line[f"{name}_{phase}"] == reason
                    continue
                said = int(line[f"{name}_{phase}"])
                explained = int(line[f"{name}_{phase}_explained"])
                assert said == int(line[f"theory_{phase}"]) + explained
                assert line[f"{name}_{phase}_verdict"] == ("explained" if explained else "equal")


def test_every_cell_is_a_row_of_the_saved_run(run, lines):
    """One line for each counter and phase, with the same numbers as the CSV."""
    saved = read(run[2])

    expected = {
        (arch, counter.name, phase, optimizer)
        for arch in lines
        for counter in COUNTERS.values()
        for phase in counter.phases
        for optimizer in (("sgd", "adam") if phase == "update" else (None,))
    }
    rows = {
        (row["axes"]["arch"], row["counter"], row["phase"], row["axes"].get("optimizer")): row
        for row in saved.rows
    }
    assert set(rows) == expected
    assert len(saved.rows) == len(expected)
    assert saved.remarks == ()
    for (arch, counter, phase, optimizer), row in rows.items():
        if row["kind"] == "count" and counter != "closed_form":
            name = f"{counter}_{phase}" + (f"_{optimizer}" if optimizer else "")
            assert int(lines[arch][name]) == row["flop" if optimizer else "contraction"]


def test_the_screen_shows_the_theory_and_where_everything_lies(run, lines):
    """Exact at 220 columns; the last lines name the files."""
    out, err, _ = run

    for arch, line in lines.items():
        row = next(text for text in out.splitlines() if text.startswith(arch))
        assert row.split()[1:3] == [f"{int(line['theory_forward']):,}", "="]
    assert "The dispatch counter equals the theory on 2 of 2" in out
    assert "Why flop_counter_mode" not in out  # neither has a grouped convolution
    assert out.splitlines()[-2].startswith("runs/mine/measure.csv: 2 architectures")
    assert out.splitlines()[-1].startswith("runs/mine/records.jsonl: 48 rows")
    assert "A1 1 of 2, " in err
    assert "elapsed, about" in err


def test_the_markdown_shows_the_same(run, lines):
    """For the README: well-formed tables, exact numbers."""
    text = (run[2] / "measure.md").read_text(encoding="utf-8")

    rows = [line for line in text.splitlines() if line.startswith("| conv_net |")]
    assert f"| conv_net | {int(lines['conv_net']['theory_forward']):,} | = |" in rows[0]
    assert f"| {int(lines['conv_net']['theory_update_adam']):,} |" in rows[1]
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count(" | ") for line in block.splitlines()}) == 1
    assert not list(run[2].glob("*.draft"))


@pytest.fixture
def with_counter(monkeypatch):
    """A function that puts a function of our own, or another package, in the place of ptflops_aten."""

    def put(**changes):
        monkeypatch.setitem(COUNTERS, "ptflops_aten", replace(COUNTERS["ptflops_aten"], **changes))

    return put


QUICK = ("--counter", "ptflops_aten", "--run", "mine")


def test_a_counter_that_raises_is_a_cell_that_says_so(command, with_counter):
    """The run goes on, and the reason is on the screen, in the CSV and in the saved run."""
    with_counter(function="our_counters:raises", package=None)
    code, out, _ = command("measure", "--arch", "mlp,one_net", *QUICK)

    reason = "RuntimeError: this model has too many legs"
    assert code == 0
    assert f"ptflops_aten failed on mlp: {reason}" in out
    assert re.search(r"^mlp .* failed$", out, flags=re.MULTILINE)
    _, rows, _ = read(Path("runs/mine"))
    failed = [row for row in rows if row["kind"] == "verdict"]
    assert [(row["verdict"], row["reason"]) for row in failed] == [("failed", reason)] * 2
    assert reason in Path("runs/mine/measure.csv").read_text()
    assert "The dispatch counter equals the theory on 2 of 2" in out


def test_a_missing_package_is_a_column_that_says_so(command, with_counter):
    """It is not the run's fault, nor its end."""
    with_counter(package="no-such-package")
    code, out, _ = command("measure", "--arch", "mlp", *QUICK)

    assert code == 0
    head = out.partition("───")[0]
    assert all(word in head.split() for word in ("needs", "no-such-package;", "has", "none"))
    assert "ptflops_aten: needs no-such-package; has none" in out
    assert "needs no-such-package; has none" in Path("runs/mine/measure.csv").read_text()
    _, rows, _ = read(Path("runs/mine"))
    assert [row["verdict"] for row in rows if row["kind"] == "verdict"] == ["skipped"]


def test_a_difference_that_nothing_explains_is_marked(command, with_counter):
    """One FLOP is enough."""
    with_counter(function="our_counters:one_more", package=None)
    code, out, _ = command("measure", "--arch", "mlp", *QUICK)

    assert code == 0
    assert re.search(r"^mlp .* \+1!$", out, flags=re.MULTILINE)
    assert "ptflops_aten forward of mlp: +1 FLOP are not explained" in out
    assert "differences of the other counters are explained" not in out


def test_an_interrupted_run_keeps_what_it_has(command, with_counter):
    """Exit code 130; the architectures that were done are in the CSV, the cells of the other in the rows."""
    with_counter(function="our_counters:interrupted", package=None)
    code, out, err = command("measure", "--arch", "mlp,one_net,conv_net", *QUICK)

    assert code == 130
    assert "interrupted after 1 of 3 architectures" in err
    assert "runs/mine/measure.csv: 1 architectures" in out
    lines = list(csv.DictReader(io.StringIO(Path("runs/mine/measure.csv").read_text())))
    assert [line["arch"] for line in lines] == ["mlp"]
    _, rows, remarks = read(Path("runs/mine"))
    seen = [(row["axes"]["arch"], row["counter"]) for row in rows]
    assert (
        seen
        == [("mlp", "closed_form")] * 4
        + [("mlp", "dispatch")] * 4
        + [("mlp", "ptflops_aten")]
        + [("one_net", "closed_form")] * 4
        + [("one_net", "dispatch")] * 4
    )
    assert remarks == ()


def test_a_run_that_ends_before_its_first_row_leaves_nothing(command, monkeypatch):
    """No folder that looks like a run."""
    monkeypatch.setattr("measurements.commands.measure.measured", interrupt)
    code, out, _ = command("measure", "--arch", "mlp", "--run", "mine")

    assert code == 130
    assert "Nothing was saved" in out
    assert not Path("runs").exists()


@pytest.mark.parametrize("width", [80, 100])
def test_the_main_table_fits_a_terminal(command, monkeypatch, width):
    """Every line within the terminal's width; the counters in as many blocks as that takes, each once."""
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = command("measure", "--arch", "mlp", "--run", "mine")

    assert code == 0
    shown = out.partition("runs/mine")[0]
    assert max(map(len, shown.splitlines())) <= width
    blocks = shown.partition("One training step")[0]
    cells = [line.split()[3:] for line in blocks.splitlines() if line.startswith("mlp")]
    others = [name for name, counter in COUNTERS.items() if counter.package]
    assert sum(map(len, cells)) == sum(len(COUNTERS[name].phases) for name in others)


def test_the_main_job_measures_the_studies_architectures_by_default():
    """Thirteen classifiers, every counter."""
    assert len(measure.studied()) == 13
    assert [counter.name for counter in measure.all_counters()] == list(COUNTERS)


# Numbers


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1000, "1.000 kFLOP"),
        (999_999, "1.000 MFLOP"),
        (8_178_000_000, "8.178 GFLOP"),
        (81_780_000_000, "81.78 GFLOP"),
        (817_800_000_000, "817.8 GFLOP"),
        (10**33, "1,000 QFLOP"),
        (None, "–"),
    ],
)
def test_a_scaled_number_has_four_digits(number, text):
    """And a prefix of the SI; 999,999 rounds to the next one."""
    assert numbers.scaled(number, "FLOP") == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (1, "<0.01%"),
        (-1, "-0.00%"),
        (6900, "+0.69%"),
        (-123_000, "-12.3%"),
        (19_710_000, "+1971%"),
        (0, "+0.00%"),
    ],
)
def test_a_share_has_three_digits(part, text):
    """Of a million."""
    assert numbers.percent(numbers.ratio(part, 10**6)) == text


@pytest.mark.parametrize("batch", [9 * 10**18, 10**30])
def test_a_batch_beyond_64_bits_is_refused_in_one_sentence(command, batch):
    """Torch's own message is a page of frames."""
    code, _, err = command("count", "mlp", "--batch", str(batch))

    assert code == 2
    assert f"no tensor can have the size {batch}x24" in err
    assert "give a smaller --batch" in err
    assert err.count("\n") == 1
