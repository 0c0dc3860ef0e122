"""Every explained difference is there, by exactly its formula, and none is explained that is not."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from measurements.counters import COUNTERS, Counter
from measurements.counters.differences import DIFFERENCES, Difference, explained, holds, seen
from measurements.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from measurements.records import Work
    from measurements.step import Step

pytestmark = pytest.mark.counters

IDS = [
    f"{row.counter}-{row.phase}-{row.op.removeprefix('aten.')}-{row.amount.__name__}" for row in DIFFERENCES
]
MODELS = ("alexnet", "resnet18", "mobilenet_v2", "efficientnet_b0", "one_net", "conv_net")


MODES = {counter.evaluates: name for name, counter in COUNTERS.items()}
"""A counter of each mode."""


OTHERS = [name for name, counter in COUNTERS.items() if counter.package]


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


def available(counter: str) -> Counter:
    """The counter, or a skip that says what is missing."""
    if reason := COUNTERS[counter].why_not():
        pytest.skip(reason)
    return COUNTERS[counter]


class Held(NamedTuple):
    """FLOP of one phase beyond the theory, as the counter reports them and by the rows that explain them."""

    beyond: int
    rows: dict[Difference, int]

    @property
    def residual(self) -> int:
        """FLOP that no row explains."""
        return self.beyond - sum(self.rows.values())


def held(counter: str, step: Step) -> dict[Phase, Held]:
    """The counter held against the theory on this step, in every phase that it sees but the update."""
    reported, theory, what = (
        available(counter)(step).contraction,
        counted(step).contraction,
        seen(counter, step),
    )
    return {
        phase: Held(getattr(reported, phase) - getattr(theory, phase), dict(explained(counter, phase, what)))
        for phase in COUNTERS[counter].phases
        if phase is not Phase.UPDATE
    }


def residuals(counter: str, step: Step) -> dict[Phase, int]:
    """FLOP of each phase that the counter reports and neither the theory nor a row explains."""
    return {phase: found.residual for phase, found in held(counter, step).items()}


def nothing(counter: str) -> dict[Phase, int]:
    """No residual in any phase."""
    return {phase: 0 for phase in COUNTERS[counter].phases if phase is not Phase.UPDATE}


@pytest.fixture(scope="module")
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
            self.plain = nn.ReLU()
            self.relu6 = nn.ReLU6(inplace=True)
            self.silu = nn.SiLU(inplace=True)
            self.maximum = nn.MaxPool2d(2)
            self.average = nn.AdaptiveAvgPool2d(3)
            self.squeeze = nn.AdaptiveAvgPool2d(1)
            self.drop = nn.Dropout(0.5)
            self.head = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.relu(self.norm(self.grouped(self.first(x))))
            y = self.silu(self.mix(self.relu6(self.mix(x))))
            x = self.average(self.maximum(self.plain(x + y)))
            x = x * self.squeeze(x)
            x += self.squeeze(x)
            x = F.adaptive_avg_pool2d(x, 1)
            return F.relu(self.head(self.drop(x.flatten(1))))

    return Witness()


@pytest.fixture(scope="module")
def witnessed(witness: nn.Module) -> Callable[[str, int], dict[Phase, Held]]:
    """A counter held against the theory on the witness, once for each number of samples."""

    @cache
    def on_samples(counter: str, samples: int) -> dict[Phase, Held]:
        return held(counter, step_of(witness, samples, 3, 16, 16))

    return on_samples


@pytest.mark.parametrize("samples", [1, 4], ids=["one", "four"])
@pytest.mark.parametrize("row", DIFFERENCES, ids=IDS)
def test_a_counter_still_differs_by_each_row(row, samples, witnessed):
    """What the other rows leave unexplained is this row, to the last FLOP."""
    installed = available(row.counter).version()
    if not holds(row, installed):
        pytest.skip(f"needs {row.versions}; has {installed}")
    found = witnessed(row.counter, samples)[row.phase]
    formula = found.rows.get(row, 0)

    left = found.residual + formula

    assert formula != 0, "the witness does not show this row: give it the operation"
    assert left != 0, (
        f"remove this row or end {row.versions!r}: {installed} counts {row.op} as the theory does"
    )
    assert left == formula


@pytest.mark.parametrize("name", [name for name in COUNTERS if name != "dispatch"])
def test_the_rows_together_explain_a_counter(name, witnessed):
    """In every phase that it sees, whatever the batch."""
    for samples in (1, 2, 4):
        assert {phase: found.residual for phase, found in witnessed(name, samples).items()} == nothing(name)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("name", OTHERS)
def test_batch_norm_differs_by_mode_and_weight(name, mode, affine):
    """For each element 5, 4, 2 and 1 MACs in fvcore, 2 and 1 in both modes in ptflops, 4 and 2 in thop."""
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).train(mode == "train")

    assert residuals(name, step_of(model, 2, 3, 6, 6)) == nothing(name)


DRAWN = {  # layers that keep 8 channels: (class, what its settings are drawn from)
    "conv": (
        "Conv2d",
        {
            "in_channels": st.just(8),
            "out_channels": st.just(8),
            "kernel_size": st.integers(1, 3),
            "stride": st.integers(1, 2),
            "padding": st.integers(1, 2),
            "groups": st.sampled_from([1, 2, 8]),
            "bias": st.booleans(),
        },
    ),
    "norm": ("BatchNorm2d", {"num_features": st.just(8), "affine": st.booleans()}),
    "relu": ("ReLU", {"inplace": st.booleans()}),
    "relu6": ("ReLU6", {"inplace": st.just(True)}),
    "silu": ("SiLU", {"inplace": st.just(True)}),
    "drop": ("Dropout", {"p": st.just(0.5)}),
    "maximum": ("MaxPool2d", {"kernel_size": st.integers(2, 3), "stride": st.just(1), "padding": st.just(1)}),
    "average": ("AdaptiveAvgPool2d", {"output_size": st.integers(1, 4)}),
}


@st.composite
def stacks(draw: st.DrawFn) -> list[tuple[str, dict[str, object]]]:
    """Layers that follow each other: (class, settings)."""
    chosen = draw(st.lists(st.sampled_from(sorted(DRAWN)), min_size=1, max_size=6))
    return [
        (DRAWN[layer][0], {name: draw(values) for name, values in DRAWN[layer][1].items()})
        for layer in chosen
    ]


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stack=stacks(), samples=st.integers(2, 3))
def test_the_rows_explain_any_stack_of_the_layers_that_they_know(name, stack, samples):
    """Convolution, normalization, activation, pooling and dropout in any order, and a linear layer."""
    from torch import nn

    layers = []
    for kind, chosen in stack:
        if chosen.get("inplace"):
            layers.append(
                nn.Conv2d(8, 8, 1, bias=False)
            )  # keeps its input, and lets its output be written to
        layers.append(getattr(nn, kind)(**chosen))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    assert residuals(name, step_of(model, samples, 3, 9, 9)) == nothing(name)


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
    assert residuals("flop_counter_mode", step) == nothing("flop_counter_mode")


def test_every_row_is_used_on_a_model_of_ours():
    """A row without a model to show it explains nothing."""
    import torch
    from torch import nn

    import models
    from measurements.step import Step

    used = set()
    with torch.device("meta"):
        plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())  # torchvision's are all in place
        steps = [Step(plain, (torch.ones(2, 3, 5, 5),))]
        for name in MODELS:
            x, targets = torch.ones(2, *models.input_shape(name)), torch.ones(2, dtype=torch.long)
            steps.append(Step(models.build(name), (x,), targets))
        for step in steps:
            what = {evaluates: seen(name, step) for evaluates, name in MODES.items()}
            for counter, phase in {(row.counter, row.phase) for row in DIFFERENCES}:
                if COUNTERS[counter].why_not() is None:
                    used |= {row for row, _ in explained(counter, phase, what[COUNTERS[counter].evaluates])}

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
        assert ".py" in row.source or ".cpp" in row.source
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
    records = seen("flop_counter_mode", step_of(witness, 2, 3, 16, 16))
    before = explained("flop_counter_mode", Phase.BACKWARD, records)

    monkeypatch.setattr(Counter, "version", lambda _: "2.6.0")

    assert [row.op for row, _ in before] == ["aten.convolution_backward"]
    assert explained("flop_counter_mode", Phase.BACKWARD, records) == []
