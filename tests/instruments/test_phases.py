"""Every operation is counted in the phase of the step that it belongs to."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.small import PRODUCT, WEIGHT, chain, contractions, counted, linear, ones

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn


def sgd(model: nn.Module, **options: Any) -> Any:
    """Plain gradient descent: 2 FLOP for each parameter."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def with_gradients(model: nn.Module) -> nn.Module:
    """The model after a backward pass that nobody counts."""
    model(ones()).sum().backward()
    return model


# Backward


def test_forward_and_backward_are_told_apart() -> None:
    """A sum of 8 outputs is 7 additions; its gradient is a view, and a first layer has one to find."""
    model = linear()

    work = counted(lambda: model(ones()).sum().backward())

    assert (work.forward, work.backward, work.update) == (PRODUCT + 7, PRODUCT, 0)


def test_backward_on_pool_threads_is_backward() -> None:
    """A backward pass within a backward pass, 130 deep, goes to threads that the engine starts for it."""
    import torch

    threads, depth = set(), 130

    class Deeper(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, depth: int) -> Tensor:
            ctx.save_for_backward(x)
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
            threads.add(threading.get_ident())
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = Deeper.apply(x, ctx.depth - 1) if ctx.depth else x @ ones(4, 4)
            y.backward(grad)
            return x.grad, None

    x = ones(requires_grad=True)

    work = counted(lambda: Deeper.apply(x, depth).backward(ones()))

    assert len(threads) > 1
    assert contractions(work) == (0, 2 * PRODUCT, 0, 0)  # the innermost product, and its one gradient


def test_hooks_of_gradients_are_backward() -> None:
    """A factor on the gradient of 8 outputs: 8 products."""

    def step() -> None:
        out = linear()(ones())
        out.register_hook(lambda grad: grad * 2)
        out.sum().backward()

    assert counted(step).backward == PRODUCT + 8


def test_an_accumulated_gradient_is_added_in_backward() -> None:
    """Two micro-batches are two passes; the second adds its 16 gradients to those of the first."""
    model = linear()
    optimizer = sgd(model)

    def step() -> None:
        for _ in range(2):
            model(ones()).sum().backward()
        optimizer.step()

    work = counted(step)

    assert work.forward == 2 * (PRODUCT + 7)
    assert work.backward == 2 * PRODUCT + WEIGHT
    assert work.update == 2 * WEIGHT


def test_a_gradient_penalty_is_backward_and_nothing_is_recomputed() -> None:
    """With f1 and f2 the forward products: their input gradients, then the gradients of those.

    g = (1 · W2ᵀ) · W1ᵀ costs f2 + f1. Its first product is of a constant, and owes the gradient of W2 alone:
    f2; its second owes both: 2·f1.
    """
    import torch

    first, second = linear(4, 3), linear(3, 5)
    f1, f2 = 2 * 2 * 4 * 3, 2 * 2 * 3 * 5
    x = ones(requires_grad=True)

    def step() -> None:
        (grad,) = torch.autograd.grad(second(first(x)).sum(), x, create_graph=True)
        (grad * grad).sum().backward()

    assert contractions(counted(step)) == (f1 + f2, (f2 + f1) + f2 + 2 * f1, 0, 0)


def test_a_second_derivative_is_backward() -> None:
    """Of y², y = x · W: the gradient 2y · Wᵀ costs a product, and its own goes back through both of them."""
    import torch

    x, weight = ones(requires_grad=True), ones(4, 4, requires_grad=True)

    def step() -> None:
        y = x @ weight
        (grad,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)  # 2y · Wᵀ
        torch.autograd.grad(grad.sum(), x)  # 2 · (1 · W) · Wᵀ: through the product above, then through x · W

    assert contractions(counted(step)) == (PRODUCT, 3 * PRODUCT, 0, 0)


def test_functional_gradients_are_backward() -> None:
    """torch.func.grad runs autograd inside a transform."""
    import torch

    grad = torch.func.grad(lambda weight, x: (x @ weight).sum())

    assert contractions(counted(lambda: grad(ones(4, 4), ones()))) == (PRODUCT, PRODUCT, 0, 0)


def test_gradients_by_sample_cost_what_one_gradient_costs() -> None:
    """A map over the batch: the same products, one matrix of gradients for each sample."""
    import torch

    grad = torch.func.grad(lambda weight, x: (x @ weight).sum())
    by_sample = torch.func.vmap(grad, in_dims=(None, 0))

    assert contractions(counted(lambda: by_sample(ones(4, 4), ones()))) == (PRODUCT, PRODUCT, 0, 0)


def test_a_function_with_its_own_backward_has_both_phases() -> None:
    """Its forward is forward although gradients are off in there; its backward is backward."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), x.t() @ grad

    x, weight = ones(requires_grad=True), ones(4, 4, requires_grad=True)

    work = counted(lambda: Product.apply(x, weight).sum().backward())

    assert contractions(work) == (PRODUCT, 2 * PRODUCT, 0, 0)


# Update


@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
@pytest.mark.parametrize(("name", "units"), [("sgd", 2), ("adam", 13)])
def test_an_optimizer_step_is_update(name: str, units: int, implementation: str) -> None:
    """Whatever stream of operations it runs as; the net's second layer has both gradients to find."""
    from measurements.step import make_optimizer

    model = chain(linear(), linear())
    optimizer = make_optimizer(name, model.parameters(), implementation)

    def step() -> None:
        model(ones()).sum().backward()
        optimizer.step()

    work = counted(step)

    assert (work.forward, work.backward, work.update) == (2 * PRODUCT + 7, 3 * PRODUCT, units * 2 * WEIGHT)


def test_setting_gradients_to_zero_costs_nothing() -> None:
    """Zeros are written, nothing is computed."""
    optimizer = sgd(with_gradients(linear()))

    assert counted(lambda: optimizer.zero_grad(set_to_none=False)).total == 0


def test_several_optimizers_are_all_update() -> None:
    """Each for its own weights."""
    first, second = with_gradients(linear()), with_gradients(linear())
    optimizers = sgd(first), sgd(second, foreach=True)

    work = counted(lambda: [optimizer.step() for optimizer in optimizers])

    assert (work.forward, work.backward, work.update) == (0, 0, 2 * 2 * WEIGHT)


def test_a_closure_keeps_its_own_phases() -> None:
    """LBFGS calls it as often as it likes, inside its step."""
    import torch

    model, calls = linear(), []
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, lr=0.01)

    def closure() -> Tensor:
        calls.append(1)
        optimizer.zero_grad()
        loss = (model(ones()) ** 2).sum()
        loss.backward()
        return loss

    work = counted(lambda: optimizer.step(closure))

    assert len(calls) == 3
    assert work.contraction.forward == work.contraction.backward == 3 * PRODUCT
    assert work.update > 2 * WEIGHT  # its directions and steps


def test_a_closure_given_by_name_keeps_its_own_phases() -> None:
    """Any optimizer takes one, and computes the loss with it before the update."""
    model = with_gradients(linear())

    work = counted(lambda: sgd(model).step(closure=lambda: model(ones()).sum()))

    assert (work.forward, work.backward, work.update) == (PRODUCT + 7, 0, 2 * WEIGHT)


def test_an_update_written_by_hand_announces_itself() -> None:
    """By a record function whose name begins as torch's own do: w - 0.1 · g is 2 for each weight."""
    import torch

    model = with_gradients(linear())

    def update() -> None:
        with torch.profiler.record_function("Optimizer.step#mine"), torch.no_grad():
            model.weight.add_(model.weight.grad, alpha=-0.1)

    work = counted(update)

    assert (work.forward, work.backward, work.update) == (0, 0, 2 * WEIGHT)


def test_another_record_function_changes_no_phase() -> None:
    """Neither around the step, nor within it."""
    import torch

    model = linear()

    def step() -> None:
        with torch.profiler.record_function("epoch 1"):
            loss = model(ones()).sum()
            with torch.profiler.record_function("Optimizer.step#mine"):
                with torch.profiler.record_function("inner"):
                    pass
                ones() * 2
            loss.backward()

    work = counted(step)

    assert (work.forward, work.backward, work.update) == (PRODUCT + 7, PRODUCT, 8)


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_by_norm_is_update(foreach: bool) -> None:
    """With n gradients in k tensors: k norms 2·n, their norm 2·k, the coefficient 4, and a factor on each n.

    The coefficient: a small number added, reciprocal, times the wanted norm, at most 1.
    """
    import torch

    model = with_gradients(chain(linear(), linear()))

    work = counted(lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0, foreach=foreach))

    n, k = 2 * WEIGHT, 2
    assert (work.forward, work.backward, work.update) == (0, 0, 2 * n + 2 * k + 4 + n)


@pytest.mark.parametrize("foreach", [False, True])
def test_clipping_by_value_is_update(foreach: bool) -> None:
    """Two compares for each gradient."""
    import torch

    model = with_gradients(linear())

    work = counted(lambda: torch.nn.utils.clip_grad_value_(model.parameters(), 1.0, foreach=foreach))

    assert (work.forward, work.backward, work.update) == (0, 0, 2 * WEIGHT)


def test_unscaling_is_update() -> None:
    """The loss is scaled in forward (1), its gradient in backward (1); the inverse scale is 1 of the update.

    Unscaling: a product and a look for infinity for each gradient. Plain descent: 2.
    """
    import torch

    model = linear()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")

    def step() -> None:
        scaler.scale(model(ones()).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    work = counted(step)

    assert (work.forward, work.backward) == (PRODUCT + 7 + 1, PRODUCT + 1)
    assert work.update == 1 + 2 * WEIGHT + 2 * WEIGHT


def test_an_average_of_weights_is_update() -> None:
    """An exponential moving average: lerp, 3 for each weight; the first time it copies."""
    import torch

    model = linear()
    average = torch.optim.swa_utils
    averaged = average.AveragedModel(model, multi_avg_fn=average.get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(model)

    work = counted(lambda: averaged.update_parameters(model))

    assert (work.forward, work.backward, work.update) == (0, 0, 3 * WEIGHT)


def test_a_step_inside_backward_is_update() -> None:
    """Each gradient is used as soon as it is there, in a hook; what that hook does else stays backward."""
    model = chain(linear(), linear())
    for layer in model:
        optimizer = sgd(layer)
        layer.weight.register_post_accumulate_grad_hook(lambda weight, step=optimizer.step: step())

    work = counted(lambda: model(ones()).sum().backward())

    assert (work.forward, work.backward, work.update) == (2 * PRODUCT + 7, 3 * PRODUCT, 2 * 2 * WEIGHT)


def test_backward_inside_a_step_is_backward() -> None:
    """An update written by hand that computes its own gradients."""
    import torch

    model = linear()

    def step() -> None:
        loss = model(ones()).sum()
        with torch.profiler.record_function("Optimizer.step#mine"):
            loss.backward()
            with torch.no_grad():
                model.weight.add_(model.weight.grad, alpha=-0.1)

    work = counted(step)

    assert (work.forward, work.backward, work.update) == (PRODUCT + 7, PRODUCT, 2 * WEIGHT)


# Forward


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_evaluation_inside_a_training_loop_is_forward(mode: str) -> None:
    """Without gradients, after an update: a product, and a mean of 8 outputs."""
    import torch

    model = linear()
    optimizer = sgd(model)

    def step() -> None:
        model(ones()).sum().backward()
        optimizer.step()
        with getattr(torch, mode)():
            model(ones()).mean()

    work = counted(step)

    assert (work.forward, work.backward, work.update) == (2 * PRODUCT + 7 + 8, PRODUCT, 2 * WEIGHT)


def test_autocast_changes_no_count() -> None:
    """Another number format is a cast, which costs nothing."""
    import torch

    model = chain(linear(), torch.nn.ReLU(), linear())
    optimizer = sgd(model)

    def step(precision: Any) -> None:
        with precision:
            loss = model(ones()).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    plain = counted(lambda: step(nullcontext()))
    mixed = counted(lambda: step(torch.autocast("cpu", torch.bfloat16)))

    assert any("bfloat16" in shape.dtype for record in mixed.records for shape in record.shapes)
    assert mixed.by_phase().keys() == plain.by_phase().keys()
    assert (mixed.forward, mixed.backward, mixed.update) == (plain.forward, plain.backward, plain.update)


def test_distributed_data_parallel_keeps_the_phases(tmp_path: Path) -> None:
    """One rank: the products of the bare model, and its update; averaging belongs to backward."""
    import torch

    if not torch.distributed.is_available():
        pytest.skip("needs torch.distributed; has none in this build of torch")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    try:
        model = torch.nn.parallel.DistributedDataParallel(chain(linear(), linear()))
        optimizer = sgd(model)

        def step() -> None:
            model(ones()).sum().backward()
            optimizer.step()

        work = counted(step)
    finally:
        torch.distributed.destroy_process_group()

    assert contractions(work) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert (work.forward, work.update) == (2 * PRODUCT + 7, 2 * 2 * WEIGHT)


# Errors


def test_an_error_in_forward_leaves_the_phases_right() -> None:
    """Work after it, in the same block and in the next one, is where it belongs."""
    model, broken = linear(), chain(linear(), linear(5, 5))

    def step() -> None:
        with pytest.raises(RuntimeError, match="shapes"):
            broken(ones())
        model(ones()).sum().backward()

    for _ in range(2):
        assert contractions(counted(step)) == (2 * PRODUCT, PRODUCT, 0, 0)


def test_an_error_in_backward_leaves_the_phases_right() -> None:
    """Autograd's graph task ends with it."""
    model = linear()

    def fail(grad: Tensor) -> None:
        raise ArithmeticError("stop")

    def step() -> None:
        out = model(ones())
        out.register_hook(fail)
        with pytest.raises(ArithmeticError):
            out.sum().backward()
        model(ones()).sum().backward()
        model.zero_grad()

    for _ in range(2):
        work = counted(step)
        assert (work.forward, work.backward, work.update) == (2 * (PRODUCT + 7), PRODUCT, 0)


def test_an_error_in_an_update_leaves_the_phases_right() -> None:
    """Also where its closure fails, which is outside of the update."""
    model = linear()

    def fail() -> float:
        raise ArithmeticError("stop")

    def step() -> None:
        with pytest.raises(ArithmeticError):
            sgd(model).step(fail)
        model(ones()).sum().backward()
        sgd(model).step()
        model.zero_grad()

    for _ in range(2):
        work = counted(step)
        assert (work.forward, work.backward, work.update) == (PRODUCT + 7, PRODUCT, 2 * WEIGHT)
