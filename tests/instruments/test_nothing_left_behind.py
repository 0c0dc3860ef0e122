"""A count leaves everything as it was: weights, gradients, state, random numbers, modes, and torch itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.small import PRODUCT, chain, linear, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

# What a model, an optimizer and the process are made of, as values that compare


def bits(x: Any) -> object:
    """Identity, version and elements of a tensor; a meta tensor has no elements."""
    return id(x), x._version, None if x.device.type == "meta" else x.detach().clone().reshape(-1).tolist()


def of_model(model: nn.Module) -> dict[str, object]:
    """Everything that a module holds, at every depth."""
    parts: dict[str, object] = {}
    for path, module in model.named_modules():
        parts[f"{path} mode"] = module.training
        parts[f"{path} attributes"] = sorted(vars(module))
        for kind in ("_parameters", "_buffers"):
            for name, x in getattr(module, kind).items():
                parts[f"{path} {kind} {name}"] = None if x is None else (bits(x), x.requires_grad)
                grad = None if x is None else x.grad
                parts[f"{path} gradient {name}"] = None if grad is None else bits(grad)
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            parts[f"{path} {kind}"] = list(getattr(module, kind))
    return parts


def of_optimizer(optimizer: Any) -> dict[str, object]:
    """State, groups and attributes."""
    import torch

    def plain(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return bits(value)
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    groups = [{key: plain(value) for key, value in group.items()} for group in optimizer.param_groups]
    state = {id(key): plain(value) for key, value in optimizer.state.items()}
    names = {name: id(value) for name, value in vars(optimizer).items()}
    return {
        "state": state,
        "groups": groups,
        "names": names,
        "group ids": [id(g) for g in optimizer.param_groups],
    }


def functions_of_torch() -> Iterator[tuple[str, str, Any]]:
    """Where it is, its name, and itself: of the functions that a counter might replace."""
    import torch
    from torch.utils import checkpoint

    functional = torch, torch.nn.functional, torch.nn.utils, torch.autograd, checkpoint
    for room in (*functional, torch.Tensor, torch.nn.Module, checkpoint._recomputation_hook):
        yield from ((room.__name__, name, value) for name, value in vars(room).items() if callable(value))


def of_process() -> dict[str, object]:
    """Random numbers, modes, global hooks, and the functions of torch that a counter might replace."""
    import torch
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    hooks = {
        f"{room.__name__}.{name}": list(value)
        for room in (module, optimizer)
        for name, value in vars(room).items()
        if name.startswith("_global") and hasattr(value, "keys")
    }
    assert len(hooks) >= 8, "torch keeps its global hooks elsewhere"
    functions = {f"{room}.{name}": id(value) for room, name, value in functions_of_torch()}
    optimizers = {
        f"{kind.__name__}.step": id(kind.step) for kind in vars(torch.optim).values() if hasattr(kind, "step")
    }
    return {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dispatch modes": list(_get_current_dispatch_mode_stack()),
        "function modes": list(_get_current_function_mode_stack()),
        "saved tensor hooks": torch._C._autograd._saved_tensors_hooks_is_enabled(),
        "default dtype": torch.get_default_dtype(),
        "hooks": hooks,
        "functions": functions,
        "optimizers": optimizers,
    }


def changed(before: dict[str, object], after: dict[str, object]) -> dict[str, tuple[object, object]]:
    """What differs, by name."""
    names = before.keys() | after.keys()
    return {
        name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    }


def left_behind(code: Callable[[], object], model: nn.Module, optimizer: Any = None) -> dict[str, object]:
    """What differs after the code."""

    def now() -> dict[str, object]:
        parts = {f"model {name}": value for name, value in of_model(model).items()}
        if optimizer is not None:
            parts |= {f"optimizer {name}": value for name, value in of_optimizer(optimizer).items()}
        return parts | of_process()

    before = now()
    code()
    return changed(before, now())


def everything() -> nn.Module:
    """Normalization, dropout, spectral norm, a buffer that forward replaces and one that it writes into."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        self.sums.add_(x.sum())
        noise = torch.rand(4, device=x.device) + random.random()
        return self.layers(x) * noise

    layers = chain(
        torch.nn.utils.parametrizations.spectral_norm(linear()),
        torch.nn.BatchNorm1d(4),
        torch.nn.Dropout(0.5),
        linear(bias=True),
    )
    model = net(run, layers=layers)
    model.register_buffer("seen", torch.zeros(()))
    model.register_buffer("sums", torch.zeros(()))
    return model


def trained(model: nn.Module, optimizer: Any, steps: int = 2) -> None:
    """Some steps that nobody counts; the last gradients stay."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(ones(8, 4)).sum().backward()
        optimizer.step()


def count(*arguments: Any, **options: Any) -> Any:
    """count_step, imported when it is called."""
    from measurements import count_step

    return count_step(*arguments, **options)


def test_the_comparison_sees_changes() -> None:
    """An ordinary step changes weights, buffers, gradients, optimizer state and random numbers."""
    import torch

    model = everything()
    optimizer = torch.optim.Adam(model.parameters())

    names = left_behind(lambda: trained(model, optimizer), model, optimizer).keys()

    parts = (
        "_parameters weight",
        "_buffers seen",
        "_buffers sums",
        "_buffers running_mean",
        "gradient weight",
    )
    for part in (*parts, "state", "torch", "python"):
        assert any(part in name for name in names), part


# After a count


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


def versions_aside(left: dict[str, Any]) -> dict[str, Any]:
    """What differs in more than versions: a tensor that was written and written back counts two writes."""

    def without(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], int):
            return value[0], value[2]
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items()}
        return type(value)(map(without, value)) if isinstance(value, list | tuple) else value

    return {name: pair for name, pair in left.items() if without(pair[0]) != without(pair[1])}


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


# After an error


def failing(place: str) -> tuple[nn.Module, Any]:
    """A model with an optimizer, of which that part fails when the rest has left its traces."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        out = self.all(x)
        if place == "forward":
            raise ArithmeticError("stop")
        if place == "backward":
            out.register_hook(self.fail)
        return out

    class Late(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            raise ArithmeticError("stop")

    def fail(grad: Tensor) -> None:
        raise ArithmeticError("stop")

    model = net(run, all=everything())
    model.fail = fail
    kind = Late if place == "update" else torch.optim.SGD
    return model, kind(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("place", ["forward", "backward", "update", "loss"])
def test_an_error_leaves_everything_as_it_was(place: str) -> None:
    """Wherever in the step it comes."""
    from measurements.records import MeasurementError

    model, optimizer = failing(place)
    options = {"loss_fn": (lambda out: out)} if place == "loss" else {}

    def step() -> None:
        with pytest.raises(MeasurementError):
            count(model, ones(8, 4), optimizer=optimizer, **options)

    step()  # whatever is imported at the first step is there now

    assert versions_aside(left_behind(step, model, optimizer)) == {}


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer"])
def test_an_unknown_operation_leaves_everything_as_it_was(where: str) -> None:
    """It ends the step in the middle of the operation."""
    import torch

    from measurements import UnknownOp

    model = everything()
    optimizer = torch.optim.Adam(model.parameters())
    ops = {
        "forward": "aten::native_batch_norm",
        "backward": "aten::native_batch_norm_backward",
        "optimizer": "aten::addcdiv",
    }

    def formula(x: object) -> int:
        raise ValueError("unknown")

    def step() -> None:
        with pytest.raises(UnknownOp):
            count(model, ones(8, 4), optimizer=optimizer, formulas={ops[where]: formula})

    step()

    assert versions_aside(left_behind(step, model, optimizer)) == {}


@pytest.mark.parametrize(
    "error",
    [ArithmeticError, KeyboardInterrupt, GeneratorExit, SystemExit],
    ids=lambda kind: kind.__name__.lower(),
)
def test_a_block_that_is_left_by_an_error_leaves_nothing(error: type[BaseException]) -> None:
    """Neither mode nor hook, whoever raised."""
    from measurements import counting

    def fail() -> None:
        with counting():
            linear()(ones())
            raise error

    def block() -> None:
        with pytest.raises(error):
            fail()

    assert left_behind_in_process(block) == {}


def left_behind_in_process(code: Callable[[], object]) -> dict[str, object]:
    """What differs in the process, random numbers aside."""
    before = of_process()
    code()
    return {
        name: pair for name, pair in changed(before, of_process()).items() if name not in ("torch", "python")
    }


def test_blocks_leave_nothing() -> None:
    """One, one within another, and one that never counts."""
    from measurements import counting

    def blocks() -> None:
        with counting():
            linear()(ones()).sum().backward()
            with counting(on_unknown="warn"):
                linear()(ones())
        with counting():
            pass

    assert left_behind_in_process(blocks) == {}


@pytest.mark.parametrize(
    "options", [{"on_unknown": "no"}, {"formulas": {3: len}}, {"formulas": {"aten::mm": 3}}]
)
def test_bad_options_leave_nothing(options: dict[str, Any]) -> None:
    """They are refused before anything is installed."""
    from measurements import counting

    def block() -> None:
        with pytest.raises((ValueError, TypeError)), counting(**options):
            pass

    assert left_behind_in_process(block) == {}


def test_no_function_of_torch_is_ours_afterwards() -> None:
    """While a block counts one may be; whatever this process has counted before, none is left."""
    from measurements import counting

    with counting():
        linear()(ones())

    rooms = {name: str(getattr(value, "__module__", "")) for _, name, value in functions_of_torch()}
    assert [name for name, room in rooms.items() if room.startswith("measurements")] == []


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
