"""A count leaves a model, its inputs, its optimizer and the random numbers as they were."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.left_behind import (
    count,
    everything,
    left_behind,
    trained,
    versions_aside,
)
from tests.instruments.small import PRODUCT, chain, linear, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "radam", "asgd", "rprop", "adafactor", "lbfgs"])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_step_leaves_a_model_and_an_optimizer_as_they_were(name: str, steps: int) -> None:
    """Weights, buffers, gradients and optimizer state: the same tensors with the same elements."""
    from measurements.step import make_optimizer

    model = everything()
    optimizer = make_optimizer(name, model.parameters())
    if name != "lbfgs":
        trained(model, optimizer, steps)
    count(model, ones(8, 4), optimizer=optimizer)  # whatever is imported at the first step is there now

    left = left_behind(lambda: count(model, ones(8, 4), optimizer=optimizer), model, optimizer)

    assert versions_aside(left) == {}


def test_what_does_not_change_keeps_its_version() -> None:
    """So that a graph that was made before still runs backward after a count."""
    import torch

    model = chain(linear(), torch.nn.BatchNorm1d(4).eval(), linear())
    loss = model(ones()).sum()

    assert left_behind(lambda: count(model, ones(), torch.zeros(2, dtype=torch.long)), model) == {}
    loss.backward()


def test_the_count_of_an_optimizer_by_name_leaves_the_weights() -> None:
    """The optimizer is made for the count, and goes with it."""
    model = everything()

    assert versions_aside(left_behind(lambda: count(model, ones(8, 4), optimizer="adam"), model)) == {}


def test_gradients_from_before_are_still_there() -> None:
    """The same tensors with the same elements."""
    model, x = linear(), ones(requires_grad=True)
    model(x).sum().backward()
    of_weight, of_input = (model.weight.grad, model.weight.grad.clone()), (x.grad, x.grad.clone())

    count(model, x, optimizer="sgd")

    for holder, (grad, elements) in ((model.weight, of_weight), (x, of_input)):
        assert holder.grad is grad
        assert grad.equal(elements)


def test_the_graph_that_made_an_input_is_left_alone() -> None:
    """Backward ends at the input: what is before it gets no gradient, and can still run backward itself."""
    before, model = linear(), linear()
    for pack in (lambda x: x, lambda x: (x,), lambda x: {"input": x}):
        x = before(ones())

        work = count(model, pack(x))

        assert (work.contraction.forward, work.contraction.backward) == (PRODUCT, 2 * PRODUCT)
        assert before.weight.grad is None
        x.sum().backward()
        before.zero_grad()


def test_an_input_that_forward_writes_into_is_as_before() -> None:
    """In place."""
    model = net(lambda self, x: self.a(x.mul_(2)), a=linear())
    x = ones()

    count(model, x)

    assert x.equal(ones())


def test_training_goes_on_as_if_nothing_had_been_counted() -> None:
    """Five steps with a count between each two: the same bits as without, momentum and dropout included."""
    import torch

    def train(between: Callable[..., object]) -> list[Tensor]:
        torch.manual_seed(1)
        random.seed(1)
        model = everything()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(5):
            trained(model, optimizer, 1)
            schedule.step()
            between(model, optimizer)
        return [*model.state_dict().values(), torch.tensor(optimizer.param_groups[0]["lr"])]

    plain = train(lambda model, optimizer: None)
    counted = train(lambda model, optimizer: count(model, ones(8, 4), optimizer=optimizer))

    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))


def test_a_schedule_of_the_learning_rate_does_not_notice() -> None:
    """It counts the steps of its optimizer, and warns where it is asked before the first."""
    import torch

    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = dict(schedule.state_dict())

    left = left_behind(lambda: count(model, ones(), optimizer=optimizer), model, optimizer)

    assert versions_aside(left) == {}
    assert schedule.state_dict() == before
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_numpys_random_numbers_go_on() -> None:
    """A model may draw from them."""
    numpy = pytest.importorskip("numpy", reason="needs numpy; has none")
    model = net(lambda self, x: self.a(x) * float(numpy.random.rand()), a=linear())
    numpy.random.seed(1)
    expected = numpy.random.rand()
    numpy.random.seed(1)

    count(model, ones())

    assert numpy.random.rand() == expected


def test_the_generators_of_a_model_go_on():
    """Those that it keeps for itself: torch's, Python's, numpy's."""
    import torch

    numpy = pytest.importorskip("numpy", reason="needs numpy; has none")

    def drawn(model):
        return (
            torch.rand(1, generator=model.torchs).item(),
            model.pythons.random(),
            float(model.numpys.random()),
        )

    model = net(lambda self, x: self.a(x) * sum(drawn(self)), a=linear())
    found = []
    for counted in (False, True):
        model.torchs = torch.Generator().manual_seed(1)
        model.pythons, model.numpys = random.Random(1), numpy.random.default_rng(1)
        if counted:
            count(model, ones())
        found.append(drawn(model))

    assert found[0] == found[1]


def test_the_mode_of_each_module_stays() -> None:
    """Also where forward switches it."""

    def run(self: Any, x: Tensor) -> Tensor:
        self.eval()
        return self.a(x)

    model = net(run, a=linear(), b=linear())
    model.b.eval()

    count(model, ones())

    assert [module.training for module in (model, model.a, model.b)] == [True, True, False]


def test_a_weight_that_forward_writes_into_is_as_before() -> None:
    """Without an optimizer, too: a maximum norm, as an embedding has it."""
    import torch

    model = chain(torch.nn.Embedding(4, 3, max_norm=0.1))
    before = model[0].weight.detach().clone()

    count(model, torch.tensor([[0, 1, 2]]))

    assert torch.equal(model[0].weight, before)


def test_a_buffer_that_forward_adds_is_gone() -> None:
    """And one that it replaces by another object is the old one."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.zeros(1))
        self.table = self.table * 2
        return self.a(x)

    model = net(run, a=linear())
    model.register_buffer("table", ones(1))
    table = model.table

    count(model, ones())

    assert model.table is table
    assert not hasattr(model, "cache")


def test_a_weight_that_forward_replaces_is_the_old_one() -> None:
    """And a layer that it adds is gone."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        self.a.weight = torch.nn.Parameter(self.a.weight.detach() * 2)
        self.b = linear()
        return self.b(self.a(x))

    model = net(run, a=linear())
    weight = model.a.weight

    count(model, ones())

    assert model.a.weight is weight
    assert not hasattr(model, "b")


def test_a_meta_model_is_as_before() -> None:
    """There are no elements; objects, gradients and modes there are."""
    import torch

    with torch.device("meta"):
        model, x = everything(), ones(8, 4)
        optimizer = torch.optim.Adam(model.parameters())

    assert versions_aside(left_behind(lambda: count(model, x, optimizer=optimizer), model, optimizer)) == {}


def test_sparse_gradients_from_before_are_still_there() -> None:
    """An embedding's."""
    import torch

    model = chain(torch.nn.Embedding(4, 3, sparse=True))
    x = torch.tensor([[0, 1, 2]])
    model(x).sum().backward()
    grad = model[0].weight.grad

    count(model, x, optimizer="sgd")

    assert model[0].weight.grad is grad
    assert grad.to_dense().equal(torch.tensor([[1.0] * 3] * 3 + [[0.0] * 3]))


def odd_state():
    """A module whose forward changes what is hard to bring back, and the functions that look at it."""
    import warnings

    import torch

    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)
            self.register_buffer("shown", torch.zeros(1, 3))
            self.register_buffer("view", self.shown.expand(4, 3))
            self.register_buffer("sparse", torch.eye(3).to_sparse())
            with warnings.catch_warnings(action="ignore"):  # "support is experimental"
                self.register_buffer("data", torch.zeros(3, dtype=torch.complex32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.shown.add_(1)
            self.sparse.mul_(2)
            self.layer.bias.requires_grad_(False)
            self.layer.double()
            return self.layer(x.double())

    return Odd()


def test_what_is_hard_to_bring_back_is_brought_back():
    """A buffer and a view of it, sparse elements, a dtype, whether a weight is trained; optimizer state."""
    import torch

    from measurements import count_step

    model = odd_state()
    optimizer = torch.optim.Adam(model.parameters())
    weight = model.layer.weight.detach().clone()
    model.layer.weight.grad = gradient = torch.ones(3, 3)

    work = count_step(model, torch.rand(2, 3), optimizer=optimizer)

    assert work.contraction.forward == 2 * 2 * 3 * 3
    assert not optimizer.state
    assert model.layer.weight.grad is gradient
    assert torch.equal(model.layer.weight, weight)  # also by dtype
    assert model.layer.weight.dtype == torch.float32
    assert model.layer.bias.requires_grad
    assert torch.equal(model.shown, torch.zeros(1, 3))
    assert torch.equal(model.view, torch.zeros(4, 3))
    assert torch.equal(model.sparse.to_dense(), torch.eye(3))
