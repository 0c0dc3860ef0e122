"""`roofline` says what count_step and the roofline say, and every wrong value ends in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from measurements.__main__ import main
from measurements.devices import gpu
from measurements.roofline import Roof, bound, least_seconds, model_flop

ROOT = Path(__file__).parents[2]
P100 = ("--device", "Tesla P100-PCIE-16GB")
RATES = ("--peak", "9.3e12", "--bandwidth", "732e9")


@pytest.fixture
def command(monkeypatch, capsys):
    """A function from the words after `roofline` to exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        try:
            code = main(("roofline", *words))
        except SystemExit as end:  # argparse ends so
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def answer(command, *words):
    """The JSON, which stands alone on standard output."""
    code, out, err = command(*words, "--json")
    assert code == 0, err
    return json.loads(out)


BAD = {  # the words: the sentence about them
    P100: "the following arguments are required: ARCH",
    ("mlp",): "needs a ceiling: give --device NAME, or --peak FLOP/S and --bandwidth BYTES/S",
    ("mlp", "--peak", "9.3e12"): "needs a ceiling: give --device NAME, or --peak FLOP/S and --bandwidth",
    ("mlp", "--bandwidth", "732e9"): "needs a ceiling: give --device NAME, or --peak FLOP/S and --bandwidth",
    ("mlp", "--device", "P100"): (
        "--device: unknown device 'P100'; near: Tesla P100-PCIE-16GB, Tesla P100-PCIE-12GB, "
        "Tesla P100-SXM2-16GB; or give --peak and --bandwidth"
    ),
    ("mlp", "--device", "P100", "--peak", "9.3e12"): "--device: unknown device 'P100'; near: ",
    ("mlp", *P100, "--dtype", "bf16"): "--dtype: Tesla P100-PCIE-16GB has no bf16; has fp16, fp32",
    ("mlp", *P100, "--dtype", "tf32"): "--dtype: Tesla P100-PCIE-16GB has no tf32; has fp16, fp32",
    ("mlp", *P100, "--dtype", "half"): "--dtype: unknown dtype 'half'; have bf16, fp16, fp32, tf32",
    ("mlp", *P100, "--dtype", "fp16"): "--dtype fp16: bytes are counted on meta tensors, where autocast does",
    (
        "mlp",
        *RATES,
        "--dtype",
        "bf16",
    ): "--dtype bf16: bytes are counted on meta tensors, where autocast does",
    ("mlp", *P100, "--peak", "0"): "--peak: '0' is not a rate above 0, such as 9.3e12",
    ("mlp", *P100, "--peak", "-1"): "--peak: '-1' is not a rate above 0, such as 9.3e12",
    ("mlp", *P100, "--peak", "nan"): "--peak: 'nan' is not a rate above 0, such as 9.3e12",
    ("mlp", *P100, "--peak", "inf"): "--peak: 'inf' is not a rate above 0, such as 9.3e12",
    ("mlp", *P100, "--bandwidth", "fast"): "--bandwidth: 'fast' is not a rate above 0, such as 9.3e12",
    ("mlp", *P100, "--batch", "0"): "--batch: '0' is not a whole number of 1 or more",
    ("mlp", *P100, "--by", "phase"): "--by: unknown kind 'phase'; have module, op",
    ("mlp", *P100, "--optimizer", "adm"): "--optimizer: unknown optimizer 'adm'; have adadelta, ",
    ("resnet5O", *P100): "unknown architecture 'resnet5O'; near: resnet50",
}


@pytest.mark.parametrize("words", [pytest.param(words, id="_".join(words)) for words in BAD])
def test_a_wrong_value_ends_in_one_sentence(command, words):
    """Exit code 2, one line on standard error, nothing on standard output."""
    code, out, err = command(*words)

    assert code == 2
    assert out == ""
    assert BAD[words] in err
    assert len(err.strip().splitlines()) == 1


WITHOUT_TORCH = """
import sys
from measurements.__main__ import main

try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("words", [("--help",), ("mlp", "--device", "P100")], ids=["help", "device"])
def test_help_and_a_wrong_device_import_no_torch(words):
    """Torch costs seconds, and neither needs it."""
    command = [sys.executable, "-c", WITHOUT_TORCH, "roofline", *words]
    end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)

    assert end.stdout.splitlines()[-1] == "False"


@pytest.fixture(scope="module")
def records():
    """The records of mobilenet_v2's SGD step at batch 64, by count_step."""
    import torch

    import models
    from measurements import count_step

    with torch.device("meta"):
        model = models.build("mobilenet_v2")
        x, targets = torch.rand(64, 3, 224, 224), torch.zeros(64, dtype=torch.long)
    return count_step(model, x, targets, optimizer="sgd").records


def test_it_needs_no_gpu_and_ends_with_the_bound(command):
    """The device, its dtype and what sets the bound stand above the line that answers the question."""
    code, out, err = command("mobilenet_v2", *P100)

    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[-1] == "bound of utilization: 0.27"
    assert sum(line.startswith("bound of utilization") for line in lines) == 1
    assert lines[1].startswith(
        "Tesla P100-PCIE-16GB, fp32: 9.300 TFLOP/s, 732.0 GB/s (NVIDIA Tesla P100 PCIe"
    )
    row = next(line for line in lines if line.startswith("aten.native_batch_norm_backward"))
    assert " ".join(row.split()).endswith(" 52 3.847 GFLOP 5.129 GB 0.75 7.007 15.6% memory")


@pytest.mark.parametrize("by", ["op", "module"])
def test_json_is_what_the_roofline_says(command, records, by):
    """The same bound and, part by part, the same sums."""
    said = answer(command, "mobilenet_v2", *P100, "--by", by)
    row = gpu("Tesla P100-PCIE-16GB")
    roof = Roof(row.peak("fp32"), row.bytes_per_s)

    assert said["bound_of_utilization"] == pytest.approx(bound(records, roof))
    assert said["least_seconds"] == pytest.approx(least_seconds(records, roof))
    assert said["contraction_flop"] == model_flop(records)
    assert (said["device"], said["dtype"], said["batch"], said["optimizer"]) == (row.name, "fp32", 64, "sgd")
    assert (said["peak_flop_per_s"], said["bytes_per_s"], said["source"]) == (9.3e12, 732e9, row.source)
    parts = said[f"by_{by}"]
    assert sum(part["runs"] for part in parts) == len(records)
    assert sum(part["flop"] for part in parts) == sum(record.flop for record in records)
    assert sum(part["bytes"] for part in parts) == sum(record.bytes for record in records)
    assert sum(part["seconds"] for part in parts) == pytest.approx(said["least_seconds"])
    assert parts[0]["seconds"] == max(part["seconds"] for part in parts)


def test_a_ceiling_can_be_given(command):
    """Both rates without a device, or one instead of the device's; the source says which."""
    named = answer(command, "conv_net", *P100)
    given = answer(command, "conv_net", *RATES)
    one = answer(command, "conv_net", *P100, "--peak", "4.65e12")
    unknown = answer(command, "conv_net", "--device", "My GPU", *RATES)

    assert given["bound_of_utilization"] == named["bound_of_utilization"]
    assert (given["device"], given["source"]) == (None, "--peak and --bandwidth")
    assert (unknown["device"], unknown["source"]) == ("My GPU", "--peak and --bandwidth")
    assert (one["peak_flop_per_s"], one["bytes_per_s"]) == (4.65e12, 732e9)
    assert one["source"] == f"--peak and {named['source']}"
    assert one["bound_of_utilization"] > named["bound_of_utilization"]


def test_tf32_has_float32s_bytes_and_its_own_peak(command):
    """Products are faster, memory is not: the bound falls."""
    a100 = ("--device", "NVIDIA A100-SXM4-40GB")
    fp32, tf32 = (answer(command, "conv_net", *a100, "--dtype", dtype) for dtype in ("fp32", "tf32"))

    moved = [{row["name"]: row["bytes"] for row in said["by_op"]} for said in (fp32, tf32)]
    assert moved[0] == moved[1]
    assert tf32["peak_flop_per_s"] == 8 * fp32["peak_flop_per_s"]
    assert tf32["bound_of_utilization"] < fp32["bound_of_utilization"]


def test_an_update_costs_time_and_is_no_model_work(command):
    """Without it the bound is higher; the contractions are the same."""
    without, sgd, adam = (
        answer(command, "alexnet", *P100, "--optimizer", name) for name in ("none", "sgd", "adam")
    )

    assert without["contraction_flop"] == sgd["contraction_flop"] == adam["contraction_flop"]
    bounds = [said["bound_of_utilization"] for said in (without, sgd, adam)]
    assert bounds == sorted(bounds, reverse=True)


def test_rows_of_little_time_are_shown_together_unless_all_are_asked_for(command):
    """Both tables have the same total."""
    short, every = (command("mobilenet_v2", *P100, *words)[1] for words in ((), ("--all",)))

    totals = [
        [line.split() for line in out.splitlines() if line.startswith("total")] for out in (short, every)
    ]
    assert totals[0] == totals[1] != []
    assert "others)" in short
    assert "others)" not in every
    assert len(every.splitlines()) > len(short.splitlines())
    assert "aten.nll_loss_backward" in every


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_the_bound_is_the_last_line_whatever_the_width(command, monkeypatch, width):
    """The tables give way, it does not."""
    monkeypatch.setenv("COLUMNS", str(width))

    for by in ("op", "module"):
        code, out, _ = command("resnet18", *P100, "--by", by)
        assert code == 0
        assert out.splitlines()[-1] == "bound of utilization: 0.86"
