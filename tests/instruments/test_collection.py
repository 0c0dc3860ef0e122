"""Collection is quick, its ids are stable, and its markers are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = ("torch", "torchvision", "timm", "fvcore", "ptflops", "deepspeed", "cloudpickle", "numpy")
"""What costs a second or more to import, or brings in what does."""

PINNED = (  # a renamed id silently restarts a user's history
    "tests/instruments/test_collection.py::test_collection_imports_nothing_heavy",
    "tests/instruments/test_options.py::test_a_wrong_value_ends_in_one_sentence[--arch=resnet5O]",
    "tests/test_counters_agree.py::test_what_runs_is_what_the_closed_form_says[resnet50-b001-dispatch]",
    "tests/test_counters_agree.py::test_a_counter_is_the_theory_and_what_explains_the_rest[vgg16-b001-ptflops_aten]",
    "tests/test_linear_in_batch.py::test_a_counter_is_linear_less_what_is_explained[alexnet-b064-fvcore]",
    "tests/test_roofline.py::test_memory_caps_the_outliers_and_no_other[mobilenet_v2-b064-sgd]",
    "tests/test_roofline.py::test_what_was_published_is_below_the_bound[tensorflow-vgg16-b064]",
    "tests/test_time_by_batch.py::test_an_image_in_a_batch[resnet50-cpu-b008-fp32-profiler]",
    "tests/test_time_of_phases.py::test_a_phase[resnet50-cuda-b064-fp32-sgd-backward]",
    "tests/test_utilization.py::test_of_a_batch[resnet50-cuda-b064-fp32]",
    "tests/instruments/test_runs.py::test_a_plain_name_is_the_folder[p100.fp32]",
)

MARKERS = ("theory", "counters", "cpu", "gpu", "bench", "experiment", "axes")

COLLECT = """
import sys, pytest
everything = ["-m", "cpu or gpu or bench or not bench"]
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *everything])
print("exit", int(code))
print("imported", *(name for name in sys.argv[1:] if name in sys.modules))
"""


@pytest.fixture(scope="module")
def collected():
    """What collecting the whole suite prints; its exit code; the heavy packages that it imported."""
    end = subprocess.run(
        [sys.executable, "-c", COLLECT, *HEAVY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return end.stdout.splitlines()


def test_collection_imports_nothing_heavy(collected):
    """Tables hold lazy strings; tests import torch inside functions and fixtures."""
    *_, code, imported = collected

    assert code == "exit 0", "\n".join(collected[-20:])
    assert imported == "imported", f"--collect-only {imported}: import inside a function or a fixture instead"


@pytest.mark.parametrize("name", PINNED)
def test_ids_are_pinned(collected, name):
    """An id is what saved runs are compared by."""
    assert name in collected, (
        f"no test has the id {name} any more: runs saved before cannot be compared with it"
    )


def test_ids_can_be_said_on_a_command_line(collected):
    """No = (it breaks -k), no object's repr, no address."""
    ids = [line for line in collected if line.startswith("tests/") and "/instruments/" not in line]

    assert [name for name in ids if "=" in name or " object" in name or " at 0x" in name] == []


AXES = """
import pytest

@pytest.mark.axes(arch=("resnet50", "torch.nn:Linear", "timm:ViT-B"), batch=(1, 64, 1024))
@pytest.mark.axes(optimizer=("adam",), counter=("ptflops_aten",))
@pytest.mark.parametrize("mode", ["train"])
def test_law(mode, counter, optimizer, batch, arch): pass

def test_defaults(arch, batch, counter, optimizer): pass

@pytest.mark.parametrize("batch", [7])
def test_own(batch): assert batch == 7
"""


def test_axes_make_ids_of_arch_batch_optimizer_and_counter(suite):
    """Lower case, words with _, axes with - in one order whatever the test's, batches with zeros in front."""
    end = suite(AXES, "--collect-only", "-q", "-k", "law")

    found = [line.partition("::")[2] for line in end.stdout.splitlines() if "::" in line]
    assert sorted(found) == sorted(
        f"test_law[{arch}-{batch}-adam-ptflops_aten-train]"
        for arch in ("resnet50", "torch_nn_linear", "timm_vit_b")
        for batch in ("b001", "b064", "b1024")
    )


def test_axes_default_to_the_studies_architectures_one_image_sgd_and_every_counter(suite):
    """A test that says nothing about its axes asks what the studies asked."""
    end = suite(AXES, "--collect-only", "-q", "-k", "defaults")

    found = [line.partition("[")[2].rstrip("]") for line in end.stdout.splitlines() if "::" in line]
    counters = (
        *("dispatch", "closed_form", "fvcore", "ptflops_pytorch", "ptflops_aten", "flop_counter_mode"),
        *("torch_profiler", "autograd_profiler", "pthflops", "thop", "ultralytics_thop", "calflops"),
        *("torchinfo", "torchprofile", "deepspeed"),
    )
    archs = (
        *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19"),
        *("wide_resnet50_2", "alexnet", "mobilenet_v2", "efficientnet_b0"),
    )
    assert sorted(found) == sorted(f"{arch}-b001-sgd-{counter}" for arch in archs for counter in counters)


def test_a_name_that_a_test_parametrizes_itself_is_no_axis(suite):
    """Then its values are the test's affair."""
    end = suite(AXES, "-k", "own")

    assert end.returncode == 0, end.stdout
    assert "1 passed" in end.stdout


@pytest.mark.parametrize("name", MARKERS)
def test_markers_are_registered(pytestconfig, name):
    """With --strict-markers, a slip in a marker is an error and not a test that -m never finds."""
    assert any(line.startswith((f"{name}:", f"{name}(")) for line in pytestconfig.getini("markers"))


def test_an_unknown_marker_is_an_error(suite):
    """`-m theroy` on a test marked theroy would otherwise run it, and `-m theory` leave it out."""
    end = suite("import pytest\n@pytest.mark.theroy\ndef test_any(): pass", "--collect-only")

    assert end.returncode != 0
    assert "'theroy' not found in `markers`" in end.stdout
