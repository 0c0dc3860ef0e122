"""Every counter says what its package says, in FLOP, and leaves the model as it found it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from measurements import theory
from measurements.counters import COUNTERS, CounterError
from measurements.records import MeasurementError, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from measurements.step import Step

pytestmark = pytest.mark.counters

ROOT = Path(__file__).parents[2]
OTHERS = [name for name, counter in COUNTERS.items() if counter.package]


@pytest.fixture(params=list(COUNTERS))
def name(request: pytest.FixtureRequest) -> str:
    """The name of a counter that can run here."""
    return available(request.param)


def available(name: str) -> str:
    """The name, or a skip that says what is missing."""
    if reason := COUNTERS[name].why_not():
        pytest.skip(reason)
    return name


@pytest.fixture
def net() -> Callable[[], nn.Module]:
    """A maker of a small network with everything that counting could disturb, on the CPU."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 8, 3, groups=2)
            self.norm = nn.BatchNorm2d(8)
            self.act = nn.ReLU(inplace=True)
            self.drop = nn.Dropout(0.5)
            self.pool = nn.AdaptiveAvgPool2d(2)
            self.head = nn.Linear(32, 5)
            self.frozen = nn.BatchNorm2d(8).eval()
            self.note = {"written by": "the user"}
            self.conv.register_forward_hook(lambda *_: None)

        def forward(self, x: Tensor, scale: Tensor | float = 1.0) -> Tensor:
            x = self.act(self.frozen(self.norm(self.conv(x))) * scale)
            return F.relu(self.head(self.pool(self.drop(x)).flatten(1)))

    def make() -> nn.Module:
        torch.manual_seed(0)
        model = Net()
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
        return model

    return make


def step_of(model: nn.Module, inputs: tuple[object, ...] | dict[str, object] | None = None) -> Step:
    """A training step of `net`, batch 3, where no other inputs are given."""
    import torch
    from torch.nn import functional as F

    from measurements.step import Step

    inputs = (torch.ones(3, 4, 6, 6),) if inputs is None else inputs
    return Step(
        model, inputs, targets=torch.zeros(3, dtype=torch.long), loss_fn=F.cross_entropy, optimizer=None
    )


def traces(model: nn.Module) -> dict[str, object]:
    """All that a counter could leave behind, as comparable values."""
    import torch
    from torch import nn

    def public(owner: object) -> dict[str, int]:
        return {name: id(value) for name, value in vars(owner).items() if not name.startswith("_")}

    return {
        "weights and buffers": {name: value.tolist() for name, value in model.state_dict().items()},
        "gradients": [(id(weight.grad), weight.grad.tolist()) for weight in model.parameters()],
        "needs gradient": [weight.requires_grad for weight in model.parameters()],
        "mode": [module.training for module in model.modules()],
        "attributes": [
            {
                name: sorted(map(str, value)) if isinstance(value, dict) else id(value)
                for name, value in vars(m).items()
            }
            for m in model.modules()
        ],
        "random state": torch.get_rng_state().tolist(),
        "global hooks": [
            len(hooks) for name, hooks in vars(nn.modules.module).items() if name.endswith("_hooks")
        ],
        "functions": [
            public(nn.functional),
            set(vars(torch.Tensor)) - {"__slotnames__"},  # where pickle remembers that it has none
            torch.matmul,
            torch.add,
            torch.Tensor.add,
        ],
        "gradient mode": torch.is_grad_enabled(),
    }


def test_a_counter_leaves_the_model_as_it_found_it(name, net):
    """Weights, buffers, gradients, modes, attributes, hooks, random state and torch's functions."""
    model = net()
    step = step_of(model)
    before = traces(model)

    COUNTERS[name](step)

    after = traces(model)
    assert {what for what in before if before[what] != after[what]} == set()


def test_a_model_that_fails_is_left_as_it_was(name, net, capfd):
    """The model's own words reach the user, once, and no hook, mode or patched function stays behind."""
    import torch

    model = net()
    step = step_of(model, (torch.ones(3, 5, 6, 6),))
    before = traces(model)

    with pytest.raises(MeasurementError, match=r"channels|input\.shape\[1\]"):
        COUNTERS[name](step)

    after = traces(model)
    assert {what for what in before if before[what] != after[what]} == set()
    assert capfd.readouterr() == ("", "")


def test_counting_twice_counts_the_same(name, net):
    """Nothing of the first count is in the second."""
    step = step_of(net())

    assert COUNTERS[name](step).records == COUNTERS[name](step).records


def test_a_counter_is_silent(name, net, capfd, caplog):
    """Packages print, log and warn; their adapters do not pass it on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        COUNTERS[name](step_of(net()))

    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_rows_hold_contractions_of_the_phases_that_a_counter_sees(name, net):
    """Each row stands in one of them, and what another package reports is all in `contraction`."""
    counter = COUNTERS[name]
    work = counter(step_of(net()))

    assert work.records
    assert {record.phase for record in work.records} <= set(counter.phases)
    if counter.package:
        assert all(record.contraction == record.flop > 0 for record in work.records)


def test_fvcore_reports_macs_in_the_mode_of_the_step(net):
    """The adapter says two FLOP for each MAC of FlopCountAnalysis on the same model."""
    available("fvcore")
    step = step_of(net())
    from measurements.counters import fvcore

    macs = fvcore.FlopCountAnalysis(step.model, step.inputs).unsupported_ops_warnings(False).total()

    assert COUNTERS["fvcore"](step).forward == 2 * macs > 0


def test_fvcore_names_modules_as_we_do(net):
    """One row for each module that counted, without those of its parents."""
    available("fvcore")

    rows = {(record.module, record.op) for record in COUNTERS["fvcore"](step_of(net())).records}

    assert rows == {
        ("Net.conv", "conv"),
        ("Net.norm", "batch_norm"),
        ("Net.frozen", "batch_norm"),
        ("Net.pool", "adaptive_avg_pool2d"),
        ("Net.head", "linear"),
    }


@pytest.mark.parametrize("backend", ["pytorch", "aten"])
def test_ptflops_reports_macs_of_one_sample(net, backend):
    """For a batch of one the adapter says two FLOP for each MAC of get_model_complexity_info."""
    import torch

    name = available(f"ptflops_{backend}")
    from ptflops import get_model_complexity_info

    macs, _ = get_model_complexity_info(
        net(), (4, 6, 6), print_per_layer_stat=False, as_strings=False, backend=backend
    )

    assert COUNTERS[name](step_of(net(), (torch.ones(1, 4, 6, 6),))).forward == 2 * macs > 0


@pytest.mark.parametrize("backend", ["pytorch", "aten"])
def test_ptflops_counts_the_model_in_evaluation(backend):
    """An auxiliary head that runs in training alone is not in its count; the step's mode comes back."""
    import torch
    from torch import nn

    class Auxiliary(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if self.training else x

    name = available(f"ptflops_{backend}")
    model = nn.Sequential(nn.Linear(5, 5, bias=False), Auxiliary(5, 5))

    work = COUNTERS[name](step_of(model, (torch.ones(2, 5),)))

    assert work.forward == 2 * 2 * 5 * 5
    assert model[1].training


def test_ptflops_multiplies_functions_by_the_batch_twice(net):
    """Its hooks are linear in the batch; its functions quadratic, since they are not divided by the batch."""
    import torch

    available("ptflops_pytorch")
    one, three = (
        COUNTERS["ptflops_pytorch"](step_of(net(), (torch.ones(batch, 4, 6, 6),))).by_op() for batch in (1, 3)
    )

    assert three["hook"].forward == 3 * one["hook"].forward
    assert three["functional"].forward == 9 * one["functional"].forward


def test_flop_counter_mode_is_read_between_the_phases(net):
    """Forward is what the mode says of a forward alone, backward what it then says of both, less that."""
    from torch.utils.flop_counter import FlopCounterMode

    step = step_of(net())
    with FlopCounterMode(display=False) as forward:
        step.forward()
    with FlopCounterMode(display=False) as both:
        step.backward(step.forward())

    work = COUNTERS["flop_counter_mode"](step)

    assert work.forward == forward.get_total_flops()
    assert work.forward + work.backward == both.get_total_flops()
    assert work.update == 0


@pytest.mark.parametrize("update", theory.UPDATES)
def test_the_closed_form_knows_the_optimizer_by_class_and_settings(net, update):
    """Its update is the cost of that name for each parameter that trains, all work and no contraction."""
    import torch

    model = net()
    model.head.bias.requires_grad_(False)
    row = theory.UPDATES[update]
    step = step_of(model)
    step.optimizer = getattr(torch.optim, row.optimizer)(model.parameters(), **row.settings)

    work = COUNTERS["closed_form"](step)

    trained = sum(weight.numel() for weight in model.parameters()) - 5
    tensors = sum(weight.requires_grad for weight in model.parameters())
    assert work.update == theory.UPDATE_COST[update] * trained + (tensors if update == "nadam" else 0)
    assert work.contraction.update == 0


@pytest.mark.parametrize(
    "settings", [{"maximize": True}, {"momentum": 0.9, "dampening": 0.1}], ids=["maximize", "dampening"]
)
def test_the_closed_form_refuses_an_optimizer_that_it_does_not_know(net, settings):
    """Negating the gradient, or scaling it, costs more than any row says."""
    import torch

    step = step_of(net())
    step.optimizer = torch.optim.SGD(step.model.parameters(), **settings)

    with pytest.raises(
        CounterError, match=r"no update cost for SGD\(.*=.*\); have sgd, .*: leave the optimizer out"
    ):
        COUNTERS["closed_form"](step)


def test_the_closed_form_warns_of_weights_that_it_does_not_know(net):
    """A module that holds a matrix of its own may multiply with it."""
    import torch

    model = net()
    model.table = torch.nn.Parameter(torch.ones(2, 2))

    with pytest.warns(UserWarning, match="closed_form does not know Net: contractions there are not counted"):
        COUNTERS["closed_form"](step_of(model))


@pytest.mark.parametrize("inputs", ["keywords", "two_tensors", "number", "tensor"])
def test_inputs_of_every_form_count_alike(net, name, inputs):
    """Packages that take one tensor, or tensors alone, are given them so."""
    import torch

    if name == "pthflops" and inputs != "tensor":
        with pytest.raises(CounterError, match="takes one tensor as input"):
            COUNTERS[name](step_of(net(), (torch.ones(3, 4, 6, 6), 1.0)))
        return
    x, scale = torch.ones(3, 4, 6, 6), torch.ones(())
    plain = COUNTERS[name](step_of(net(), (x,) if name == "pthflops" else (x, scale)))
    forms = {"keywords": {"x": x, "scale": scale}, "two_tensors": (x, scale), "number": (x, 1.0), "tensor": x}

    work = COUNTERS[name](step_of(net(), forms[inputs]))

    assert work.contraction.forward == plain.contraction.forward
    assert work.contraction.backward == plain.contraction.backward


@pytest.mark.parametrize("name", [name for name in OTHERS if COUNTERS[name].device == "cpu"])
def test_a_counter_that_computes_refuses_meta_tensors(net, name):
    """The sentence names what to change."""
    import torch

    available(name)
    step = step_of(net().to("meta"), (torch.ones(3, 4, 6, 6, device="meta"),))

    with pytest.raises(CounterError, match=f"counter {name} has to compute; .* build it on the CPU"):
        COUNTERS[name](step)


@pytest.mark.parametrize("name", OTHERS)
def test_a_missing_package_is_named(name, monkeypatch):
    """Both by why_not, which skips print, and by the call."""
    monkeypatch.setattr(metadata, "distributions", lambda **_: iter(()))
    counter = COUNTERS[name]

    assert counter.why_not() == f"needs {counter.package}; has none"
    with pytest.raises(CounterError, match=f"counter {name} needs .*: pip install .*{counter.package}"):
        counter(None)


def test_a_counter_knows_its_version(name):
    """The distribution's for a package, METHOD for ours."""
    from measurements import METHOD

    counter = COUNTERS[name]

    if counter.package is None:
        assert counter.version() == str(METHOD)
    elif not counter.folders():
        assert counter.version() == metadata.version(counter.package)
    else:
        assert f"{counter.package.replace('-', '_')}-{counter.version()}.dist-info" in {
            path.name for path in Path(counter.folders()[0]).iterdir()
        }
    assert counter.why_not() is None


def test_the_table_is_complete(name):
    """Each row has its key's name, phases in order, a known unit and device, and a function that exists."""
    import importlib

    counter = COUNTERS[name]
    module, _, function = counter.function.partition(":")
    if counter.apart:
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        assert f"def {function}(step: Step) -> Work:" in source
        return

    assert counter.name == name
    assert counter.phases == tuple(phase for phase in Phase if phase in counter.phases) != ()
    assert (counter.unit in {"FLOP", "MAC"}, counter.device in {"meta", "cpu"}) == (True, True)
    assert isinstance(loaded := importlib.import_module(module), ModuleType)
    assert callable(getattr(loaded, function))


def test_tables_import_no_torch():
    """Collecting tests and comparing runs read the tables, and must not wait for torch."""
    code = "import sys; from measurements.counters import differences; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_fvcore_imports_under_warnings_as_errors():
    """It scripts functions at import, which torch warns of."""
    available("fvcore")
    code = "import torch, warnings; warnings.simplefilter('error'); import measurements.counters.fvcore"

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
