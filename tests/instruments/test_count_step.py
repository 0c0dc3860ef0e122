"""`count_step` takes a model, inputs and an optimizer in every usual form, and counts one training step."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from measurements import theory
from tests.instruments.small import PRODUCT, WEIGHT, chain, contractions, linear, net, ones

if TYPE_CHECKING:
    from torch import Tensor, nn

    from measurements.records import Work


def count(*arguments: Any, **options: Any) -> Work:
    """count_step, imported when it is called."""
    from measurements import count_step

    return count_step(*arguments, **options)


def labels() -> Tensor:
    """A class for each of two samples."""
    import torch

    return torch.zeros(2, dtype=torch.long)


# Devices


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_meta_and_cpu_count_the_same(optimizer: str) -> None:
    """Normalization, pooling, dropout, cross entropy and the update: every number of every operation."""
    import torch

    def step(device: str) -> dict[str, Work]:
        with torch.device(device):
            model = chain(
                torch.nn.Conv2d(3, 4, 3),
                torch.nn.BatchNorm2d(4),
                torch.nn.ReLU(),
                torch.nn.MaxPool2d(2),
                torch.nn.Flatten(),
                torch.nn.Dropout(0.5),
                torch.nn.Linear(4 * 3 * 3, 10),
            )
            x, targets = torch.rand(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)
        return count(model, x, targets, optimizer=optimizer).by_phase()

    cpu, meta = step("cpu"), step("meta")

    for phase in cpu:
        assert cpu[phase].total == meta[phase].total > 0
        assert cpu[phase].contraction == meta[phase].contraction


def test_attention_counts_the_same_on_meta_and_cpu() -> None:
    """Its contractions: on CPU one fused operation, on meta its parts."""
    import torch

    def step(device: str) -> Work:
        with torch.device(device):
            return count(
                torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), torch.rand(2, 5, 16)
            )

    cpu, meta = step("cpu").contraction, step("meta").contraction

    assert (cpu.forward, cpu.backward) == (meta.forward, meta.backward)
    assert cpu.recomputed == 2 * 2 * 4 * 5 * 5 * 4  # the scores: 2 · batch · heads · queries · keys · width


# Inputs


def test_inputs_may_be_a_tensor_a_tuple_a_list_or_a_dict() -> None:
    """One model, called in all four ways."""
    model = net(lambda self, x, scale=1.0: self.a(x) * scale, a=linear())

    for inputs in (ones(), (ones(),), [ones()], {"x": ones()}):
        assert contractions(count(model, inputs)) == (PRODUCT, PRODUCT, 0, 0)
    for inputs in ((ones(), 2.0), {"x": ones(), "scale": 2.0}):
        assert count(model, inputs).forward == PRODUCT + 8 + 7


def test_an_input_that_needs_a_gradient_gets_one() -> None:
    """Both operands of the product owe a gradient."""
    assert contractions(count(linear(), ones(requires_grad=True))) == (PRODUCT, 2 * PRODUCT, 0, 0)


# Loss


def test_without_targets_the_loss_is_the_sum_of_all_outputs() -> None:
    """Of two outputs of 8: 7 additions each, and 1 between them."""
    model = net(lambda self, x: (self.a(x), self.b(x)), a=linear(), b=linear())

    work = count(model, ones())

    assert work.forward == 2 * PRODUCT + 7 + 7 + 1
    assert work.contraction.backward == 2 * PRODUCT


def test_with_targets_the_loss_is_cross_entropy() -> None:
    """A log-softmax and a mean of what it gives for the right classes."""
    work = count(linear(), ones(), labels())

    assert {"aten._log_softmax", "aten.nll_loss_forward"} <= set(work.by_op())


def test_a_loss_function_gets_the_output_and_the_targets() -> None:
    """As they are; without targets the output alone."""
    seen: list[tuple[Any, ...]] = []

    def loss(*given: Any) -> Any:
        seen.append(given)
        return given[0].sum()

    targets = {"anything": 1}
    count(linear(), ones(), targets, loss)
    count(linear(), ones(), loss_fn=loss)

    assert [len(given) for given in seen] == [2, 1]
    assert seen[0][1] is targets


def test_a_loss_module_is_a_loss_function() -> None:
    """Mean squared error: difference and square for each of 8, and a mean of 8."""
    import torch

    work = count(linear(), ones(), ones(), torch.nn.MSELoss())

    assert work.forward == PRODUCT + 8 + 8 + 8


def test_auxiliary_heads_are_held_against_targets_too() -> None:
    """Outputs of the first one's shape; another (features, states) trains nothing."""
    heads = net(lambda self, x: (self.a(x), self.b(x)), a=linear(), b=linear())
    features = net(lambda self, x: (self.a(x), self.b(x)[:, :2]), a=linear(), b=linear())

    assert contractions(count(heads, ones(), labels())) == (2 * PRODUCT, 2 * PRODUCT, 0, 0)
    assert contractions(count(features, ones(), labels())) == (2 * PRODUCT, PRODUCT, 0, 0)


@dataclass
class Output:
    """What a model may return."""

    logits: Any
    hidden: Any = None


class ModelOutput(OrderedDict):
    """A dictionary whose entries are attributes too, as libraries of transformers return."""

    def __getattr__(self, name: str) -> Any:
        """The entry of that name."""
        return self[name]


Pair = namedtuple("Pair", "logits hidden")


@pytest.mark.parametrize("kind", [Output, Pair, ModelOutput, dict], ids=lambda kind: kind.__name__.lower())
@pytest.mark.parametrize("with_targets", [False, True])
def test_outputs_may_have_fields(kind: Any, with_targets: bool) -> None:
    """Fields are found in order; what is no tensor is passed over."""

    def run(self: Any, x: Tensor) -> Any:
        fields = {"logits": self.a(x), "hidden": None}
        return kind(**fields)

    work = count(net(run, a=linear()), ones(), labels() if with_targets else None)

    assert contractions(work) == (PRODUCT, PRODUCT, 0, 0)


# Models


def test_the_mode_of_each_module_is_respected() -> None:
    """In eval mode dropout costs nothing and normalization keeps no books; what trains trains."""
    import torch

    model = chain(linear(), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4), linear())
    training, evaluating = count(model, ones()), count(model.eval(), ones())

    assert training.contraction == evaluating.contraction
    assert "Sequential.1" in training.by_module()
    assert "Sequential.1" not in evaluating.by_module()
    assert not model.training


def test_frozen_weights_owe_no_gradient() -> None:
    """Of three layers: the first, frozen, 0; the second its weight's 1; the third, frozen, its input's 1."""
    model = chain(linear(), linear(), linear())
    for frozen in (model[0], model[2]):
        frozen.weight.requires_grad_(False)

    work = count(model, ones(), optimizer="sgd")

    assert contractions(work) == (3 * PRODUCT, 2 * PRODUCT, 0, 0)
    assert work.update == 2 * WEIGHT


def test_tied_weights_are_updated_once() -> None:
    """Two uses, two sets of gradients, one sum of them, one update."""
    first, second = linear(), linear()
    second.weight = first.weight

    work = count(chain(first, second), ones(), optimizer="sgd")

    assert contractions(work) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert work.backward == 3 * PRODUCT + WEIGHT
    assert work.update == 2 * WEIGHT


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_scripted_model_counts_as_it_is() -> None:
    """It runs the same operations."""
    import torch

    model = torch.jit.script(chain(linear(), torch.nn.BatchNorm1d(4), linear()))

    assert contractions(count(model, ones())) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)


def test_gradients_are_on_whatever_the_caller_has_set() -> None:
    """A step trains, also under no_grad."""
    import torch

    with torch.no_grad():
        assert contractions(count(linear(), ones())) == (PRODUCT, PRODUCT, 0, 0)


def test_gradients_from_before_are_not_added_to() -> None:
    """A step starts from none."""
    model = linear()
    model(ones()).sum().backward()

    assert count(model, ones()).backward == PRODUCT


# Optimizers


@pytest.mark.parametrize("name", theory.UPDATE_COST)
def test_an_optimizer_by_name_costs_its_steady_state(name: str) -> None:
    """From the second step on, or the seventh: FLOP for each parameter.

    NAdam besides keeps the product of its momenta, one number for each tensor.
    """
    model = chain(linear(), linear())
    products = 2 if name == "nadam" else 0

    assert count(model, ones(), optimizer=name).update == theory.UPDATE_COST[name] * 2 * WEIGHT + products


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_an_instance_costs_its_steady_state_however_far_it_is(steps: int) -> None:
    """RAdam's first five steps differ, momentum's first."""
    import torch

    for kind, name, options in (("RAdam", "radam", {}), ("SGD", "momentum", {"lr": 0.1, "momentum": 0.9})):
        model = linear()
        optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
        for _ in range(steps):
            model(ones()).sum().backward()
            optimizer.step()

        work = count(model, ones(), optimizer=optimizer)

        assert work.update == theory.UPDATE_COST[name] * WEIGHT
        assert contractions(work) == (PRODUCT, PRODUCT, 0, 0)


def test_an_instance_over_some_parameters_updates_those() -> None:
    """Gradients are found for all."""
    import torch

    model = chain(linear(), linear())
    work = count(model, ones(), optimizer=torch.optim.SGD(model[1].parameters(), lr=0.1))

    assert contractions(work) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert work.update == 2 * WEIGHT


def test_an_optimizer_that_needs_a_closure_gets_one() -> None:
    """LBFGS with one iteration evaluates it once; its forward and backward are the step's."""
    import torch

    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    work = count(model, ones(), optimizer=optimizer)

    assert contractions(work)[:2] == (PRODUCT, PRODUCT)
    assert work.update > 0


def test_lbfgs_by_name_runs_its_closure() -> None:
    """As often as it likes."""
    work = count(linear(), ones(), labels(), optimizer="lbfgs").contraction

    assert work.forward == work.backward > 0
    assert work.forward % PRODUCT == 0


def test_an_optimizer_of_the_users_own_is_counted() -> None:
    """One that extends torch's announces its step as torch's do."""
    import torch

    class Sign(torch.optim.Optimizer):
        def __init__(self, weights: Any) -> None:
            super().__init__(weights, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.add_(weight.grad.sign(), alpha=-group["lr"])

    model = linear()

    assert count(model, ones(), optimizer=Sign(model.parameters())).update == 3 * WEIGHT


# The result


def test_the_result_is_frozen() -> None:
    """Work, not a live object."""
    from measurements.records import Work

    work = count(linear(), ones())

    assert type(work) is Work
    with pytest.raises(AttributeError):
        work.records = ()  # type: ignore[misc]


def test_the_same_step_counts_the_same_again() -> None:
    """Nothing is left of the first count."""
    import torch

    model = chain(linear(), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    first, second = (count(model, ones(), optimizer=optimizer) for _ in range(2))

    assert first.records == second.records


def test_users_formulas_go_with_a_step(recwarn: pytest.WarningsRecorder) -> None:
    """As with counting()."""
    work = count(linear(), ones(), formulas={"aten::mm": lambda x, w: 1})

    assert contractions(work) == (1, 1, 0, 0)
    assert not recwarn


def test_a_model_is_counted_in_the_number_format_that_it_has() -> None:
    """Half as many bytes, the same FLOP."""
    import torch

    def step(dtype: torch.dtype) -> Work:
        model: nn.Module = linear().to(dtype)
        return count(model, ones(dtype=dtype), optimizer="sgd")

    single, half = step(torch.float32), step(torch.bfloat16)

    assert (single.total, single.update) == (half.total, half.update)
    assert single.bytes > half.bytes


def test_an_optimizer_whose_step_requires_a_closure_gets_one():
    """As SAM's: forward and backward run within its step, once."""
    import torch

    from measurements import count_step

    class Sharp(torch.optim.SGD):
        def step(self, closure):
            closure()
            super().step()

    layer = torch.nn.Linear(3, 3)
    work = count_step(layer, torch.rand(2, 3), optimizer=Sharp(layer.parameters(), lr=0.1))
    plain = count_step(layer, torch.rand(2, 3), optimizer="sgd")

    assert (work.forward, work.backward, work.update) == (plain.forward, plain.backward, plain.update)
    assert work.update == 2 * 12
