"""Every explained difference is there, by exactly its formula, and none is explained that is not."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from measurements.counters import COUNTERS
from measurements.counters.differences import DIFFERENCES, Difference, explained, holds
from measurements.records import Phase

if TYPE_CHECKING:
    from torch import nn

    from measurements.records import Work
    from measurements.step import Step

pytestmark = pytest.mark.counters

IDS = [f"{row.counter}-{row.op.removeprefix('aten.')}-{row.amount.__name__}" for row in DIFFERENCES]
MODELS = ("alexnet", "mobilenet_v2", "efficientnet_b0", "one_net", "conv_net")


def step_of(model: nn.Module, *shape: int, needs_gradient: bool = False) -> Step:
    """A training step of the model on ones, with the sum of its outputs as loss."""
    import torch

    from measurements.step import Step

    device = next(model.parameters()).device
    x = torch.ones(shape, device=device, requires_grad=needs_gradient)
    return Step(model, (x,), targets=None, loss_fn=lambda out, *_: out.sum(), optimizer=None)


def counted(step: Step) -> Work:
    """The dispatch counter's work, whose contractions are the theory."""
    return COUNTERS["dispatch"](step)


def residual(counter: str, phase: Phase, step: Step, without: Difference | None = None) -> int:
    """FLOP that the counter reports and neither the theory nor a row (other than `without`) explains."""
    if reason := COUNTERS[counter].why_not():
        pytest.skip(reason)
    theory = counted(step)
    known = [amount for row, amount in explained(counter, phase, theory.records) if row is not without]
    reported = getattr(COUNTERS[counter](step).contraction, phase)
    return reported - getattr(theory.contraction, phase) - sum(known)


@pytest.fixture
def witness() -> nn.Module:
    """A small network with every operation that has a row, as module and as function where both have one."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Witness(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3)
            self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4)
            self.norm = nn.BatchNorm2d(8)
            self.mix = nn.Conv2d(8, 8, 1, bias=False)
            self.relu = nn.ReLU(inplace=True)
            self.relu6 = nn.ReLU6(inplace=True)
            self.silu = nn.SiLU(inplace=True)
            self.maximum = nn.MaxPool2d(2)
            self.average = nn.AdaptiveAvgPool2d(3)
            self.squeeze = nn.AdaptiveAvgPool2d(1)
            self.head = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.relu(self.norm(self.grouped(self.first(x))))
            x = self.silu(self.mix(self.relu6(self.mix(x))))
            x = self.average(self.maximum(x))
            x = F.adaptive_avg_pool2d(x * self.squeeze(x), 1)
            return F.relu(self.head(x.flatten(1)))

    return Witness()


@pytest.mark.parametrize("samples", [1, 4], ids=["one", "four"])
@pytest.mark.parametrize("row", DIFFERENCES, ids=IDS)
def test_a_counter_still_differs_by_each_row(row, samples, witness):
    """What the other rows leave unexplained is this row, to the last FLOP."""
    installed = metadata.version(row.package)
    if not holds(row, installed):
        pytest.skip(f"needs {row.versions}; has {installed}")
    step = step_of(witness, samples, 3, 16, 16)
    formula = dict(explained(row.counter, row.phase, counted(step).records)).get(row, 0)

    left = residual(row.counter, row.phase, step, without=row)

    assert formula != 0, "the witness does not show this row: give it the operation"
    assert left != 0, (
        f"remove this row or end {row.versions!r}: {installed} counts {row.op} as the theory does"
    )
    assert left == formula


@pytest.mark.parametrize("name", [name for name in COUNTERS if name != "dispatch"])
def test_the_rows_together_explain_a_counter(name, witness):
    """In every phase that it sees, whatever the batch."""
    for samples in (1, 2, 5):
        step = step_of(witness, samples, 3, 16, 16)
        for phase in (phase for phase in COUNTERS[name].phases if phase is not Phase.UPDATE):
            assert residual(name, phase, step) == 0


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("name", ["fvcore", "ptflops_pytorch"])
def test_batch_norm_differs_by_mode_and_weight(name, mode, affine):
    """For each element 5, 4, 2 and 1 in fvcore, 2 and 1 in both modes in ptflops."""
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).train(mode == "train")

    assert residual(name, Phase.FORWARD, step_of(model, 2, 3, 6, 6)) == 0


LAYERS = {
    "depthwise": ("Conv2d", {"groups": 8}, (2, 8, 7, 7)),
    "two_groups": ("Conv2d", {"groups": 2, "stride": 2, "padding": 1}, (2, 8, 9, 5)),
    "one_group": ("Conv2d", {"dilation": 2}, (2, 8, 9, 9)),
    "1d": ("Conv1d", {"groups": 4}, (3, 8, 11)),
    "3d": ("Conv3d", {"groups": 2}, (2, 8, 4, 5, 6)),
    "transposed": ("ConvTranspose2d", {"groups": 4, "stride": 2, "output_padding": 1}, (2, 8, 5, 6)),
    "transposed_1d": ("ConvTranspose1d", {"groups": 2, "padding": 1}, (2, 8, 5)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("needs", ["both", "weight", "input"])
def test_a_grouped_weight_gradient_counts_once_for_each_group(layer, needs):
    """Its backward is forward x (1 for the input + g for the weight), each where it is asked for."""
    from torch import nn

    kind, settings, shape = LAYERS[layer]
    model = getattr(nn, kind)(8, 16, 3, **settings)
    model.weight.requires_grad_(needs != "input")
    step = step_of(model, *shape, needs_gradient=needs != "weight")

    work = COUNTERS["flop_counter_mode"](step)

    times = (needs != "weight") + (needs != "input") * settings.get("groups", 1)
    assert work.backward == times * work.forward
    assert residual("flop_counter_mode", Phase.BACKWARD, step) == 0
    assert residual("flop_counter_mode", Phase.FORWARD, step) == 0


def test_every_row_is_used_on_a_model_of_ours():
    """A row without a model to show it explains nothing."""
    import torch
    from torch.nn import functional as F

    import models
    from measurements.step import Step

    used = set()
    with torch.device("meta"):
        for name in MODELS:
            x, targets = torch.ones(2, *models.input_shape(name)), torch.ones(2, dtype=torch.long)
            step = Step(models.build(name), (x,), targets=targets, loss_fn=F.cross_entropy, optimizer=None)
            records = counted(step).records
            for counter, phase in {(row.counter, row.phase) for row in DIFFERENCES}:
                if COUNTERS[counter].why_not() is None:
                    used |= {row for row, _ in explained(counter, phase, records)}

    expected = {row for row in DIFFERENCES if COUNTERS[row.counter].why_not() is None}
    assert {IDS[DIFFERENCES.index(row)] for row in expected - used} == set()


def test_rows_are_told_apart_and_complete():
    """Each has a phase that its counter sees, a sentence, a source and a range of versions of its package."""
    assert len(set(IDS)) == len(IDS)
    for row in DIFFERENCES:
        counter = COUNTERS[row.counter]
        assert row.phase in counter.phases
        assert row.op.startswith("aten.")
        assert row.package == counter.package
        assert " " in row.cause
        assert ".py" in row.source
        assert not holds(row, "0.0.1")


@pytest.mark.parametrize(
    ("versions", "installed", "inside"),
    [
        ("torch>=2.7", "2.7.1", True),
        ("torch>=2.7", "2.14.1+cpu", True),
        ("torch>=2.7", "2.6.0", False),
        ("torch>=2.7", "1.13", False),
        ("torch>=2.7,<2.15", "2.15.0", False),
        ("torch>=2.7, <2.15", "2.14.9", True),
        ("torch<=2.7", "2.7.0", True),
        ("torch>2.7", "2.7.0", False),
        ("torch!=2.8.0", "2.8", False),
        ("fvcore==0.1.5.post20221221", "0.1.5.post20221221", True),
        ("fvcore==0.1.5.post20221221", "0.1.6", False),
        ("fvcore>=0.1.5.post20221221", "0.1.5.post20210101", False),
    ],
)
def test_a_row_holds_in_its_range_of_versions(versions, installed, inside):
    """Numbers are compared as numbers, 2.14 after 2.7, and a build's local part is no part of them."""
    row = Difference("dispatch", Phase.FORWARD, "aten.mm", lambda _: 0, "", "", versions)

    assert holds(row, installed) is inside


@pytest.mark.parametrize("versions", ["torch", "torch~=2.7", "torch>=2.7;python", "torch=>2"])
def test_a_range_that_says_nothing_is_refused(versions):
    """The sentence shows how to write one."""
    row = Difference("dispatch", Phase.FORWARD, "aten.mm", lambda _: 0, "", "", versions)

    with pytest.raises(ValueError, match=r"names no range of versions; write it like 'torch>=2\.7,<3'"):
        holds(row, "2.7.1")


def test_rows_out_of_their_range_explain_nothing(witness, monkeypatch):
    """An older package is not corrected by what holds for a newer one."""
    records = counted(step_of(witness, 2, 3, 16, 16)).records
    before = explained("flop_counter_mode", Phase.BACKWARD, records)

    monkeypatch.setattr(metadata, "version", lambda _: "2.6.0")

    assert [row.op for row, _ in before] == ["aten.convolution_backward"]
    assert explained("flop_counter_mode", Phase.BACKWARD, records) == []
