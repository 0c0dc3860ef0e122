"""Every operation is counted in the module that ran it, forward and backward, as often as it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from measurements import theory
from tests.instruments.small import PRODUCT, chain, contractions, counted, linear, modules, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from measurements.records import Work


def trained(model: nn.Module, *inputs: Tensor) -> Work:
    """Forward, and backward from the sum of the output."""
    return counted(lambda: model(*(inputs or (ones(),))).sum().backward())


# Names


def test_a_module_that_is_called_twice_counts_twice() -> None:
    """The first call has one gradient to find, the second two."""
    work = trained(net(lambda self, x: self.a(self.a(x)), a=linear()))

    assert modules(work, "forward") == {"Net.a": 2 * PRODUCT}
    assert modules(work, "backward") == {"Net.a": 3 * PRODUCT}


def test_a_shared_module_has_the_name_of_the_path_that_called_it() -> None:
    """Two parents hold one layer."""
    shared = linear()
    parts = {name: net(lambda self, x: self.layer(x), layer=shared) for name in "ab"}
    work = trained(net(lambda self, x: self.b(self.a(x)), **parts))

    assert modules(work, "forward") == {"Net.a.layer": PRODUCT, "Net.b.layer": PRODUCT}
    assert modules(work, "backward") == {"Net.a.layer": PRODUCT, "Net.b.layer": 2 * PRODUCT}


def test_a_layer_with_two_names_in_one_parent_has_the_first() -> None:
    """Which of the two was meant, nobody can tell."""
    shared = linear()

    assert modules(trained(net(lambda self, x: self.b(x), a=shared, b=shared)), "forward") == {
        "Net.a": PRODUCT
    }


def test_work_between_layers_is_the_callers() -> None:
    """A product and a sum written in the model's own forward."""
    import torch

    weight = torch.nn.Parameter(ones(4, 4))
    work = trained(net(lambda self, x: self.a(x) @ self.weight, a=linear(), weight=weight))

    assert modules(work, "forward") == {"Net.a": PRODUCT, "Net": PRODUCT}
    assert modules(work, "backward") == {"Net.a": PRODUCT, "Net": 2 * PRODUCT}


def test_work_outside_of_modules_has_no_name() -> None:
    """The sum of 8 outputs."""
    assert trained(linear()).by_module()[""].forward == 7


def test_a_direct_call_of_forward_belongs_to_the_caller() -> None:
    """No hook fires."""
    work = trained(net(lambda self, x: self.a.forward(x), a=linear()))

    assert modules(work, "forward") == modules(work, "backward") == {"Net": PRODUCT}


def test_lists_and_dicts_of_modules_name_their_parts() -> None:
    """By number and by key."""
    import torch

    rows = torch.nn.ModuleList([linear(), linear()])
    table = torch.nn.ModuleDict({"left": linear()})
    work = trained(
        net(lambda self, x: self.table["left"](self.rows[1](self.rows[0](x))), rows=rows, table=table)
    )

    assert modules(work, "forward") == dict.fromkeys(("Net.rows.0", "Net.rows.1", "Net.table.left"), PRODUCT)


def test_a_layer_that_its_parent_does_not_know_is_a_root_of_its_own() -> None:
    """Held in a plain list, it is none of the children."""
    hidden = [linear(), linear()]
    work = trained(net(lambda self, x: hidden[1](hidden[0](self.a(x))), a=linear()))

    assert modules(work, "forward") == {"Net.a": PRODUCT, "Linear": PRODUCT, "Linear#2": PRODUCT}


def test_two_models_of_one_class_have_two_names() -> None:
    """The same model called again keeps its name."""
    first, second = chain(linear()), chain(linear())

    work = counted(lambda: [model(ones()) for model in (first, second, first)])

    assert modules(work, "forward") == {"Sequential.0": 2 * PRODUCT, "Sequential#2.0": PRODUCT}


def test_models_that_come_and_go_keep_apart() -> None:
    """A new model may get the place in memory, and the id, of one that is gone."""
    work = counted(lambda: [chain(linear(), linear())(ones()) for _ in range(20)])

    assert sum(modules(work, "forward").values()) == 2 * 20 * PRODUCT
    assert len(modules(work, "forward")) % 2 == 0


def test_a_child_that_appears_during_the_block_has_its_name() -> None:
    """Names are learnt again where one is missing."""
    model = net(lambda self, x: self.extra(x) if hasattr(self, "extra") else self.a(x), a=linear())

    def grow() -> None:
        model(ones())
        model.extra = linear()
        model(ones())

    assert modules(counted(grow), "forward") == {"Net.a": PRODUCT, "Net.extra": PRODUCT}


def test_a_recursive_module_counts_each_turn() -> None:
    """It calls itself until nothing is left to do."""

    def descend(self: Any, x: Tensor, depth: int) -> Tensor:
        x = self.a(x)
        return self(x, depth - 1) if depth else x

    model = net(descend, a=linear())
    work = counted(lambda: model(ones(), 3).sum().backward())

    assert modules(work, "forward") == {"Net.a": 4 * PRODUCT}
    assert modules(work, "backward") == {"Net.a": (1 + 3 * 2) * PRODUCT}


# Wrappers


def test_a_distributed_model_names_its_parts(tmp_path: Path) -> None:
    """Under the wrapper's own name for what it wraps."""
    import torch

    if not torch.distributed.is_available():
        pytest.skip("needs torch.distributed; has none in this build of torch")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    try:
        work = trained(torch.nn.parallel.DistributedDataParallel(chain(linear(), linear())))
    finally:
        torch.distributed.destroy_process_group()

    names = [f"DistributedDataParallel.module.{place}" for place in (0, 1)]
    assert modules(work, "forward") == dict.fromkeys(names, PRODUCT)
    assert modules(work, "backward") == dict(zip(names[::-1], (2 * PRODUCT, PRODUCT), strict=True))


def test_a_data_parallel_model_names_its_parts() -> None:
    """Without a GPU it calls what it wraps."""
    import torch

    assert modules(trained(torch.nn.DataParallel(chain(linear()))), "forward") == {
        "DataParallel.module.0": PRODUCT
    }


def test_a_compiled_model_counts_what_it_runs() -> None:
    """Under a dispatch mode it runs as it was written."""
    import torch

    work = trained(torch.compile(chain(linear(), linear())))

    assert contractions(work) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert {name.rpartition(".")[2] for name in modules(work, "forward")} == {"0", "1"}


# Backward


@pytest.mark.parametrize("arch", ["resnet50", "efficientnet_b0"])
def test_every_layer_of_a_network_obeys_the_law_by_itself(arch: str) -> None:
    """Forward and backward contractions of each module are those of the closed form of that layer."""
    import torch

    import models
    from measurements.layers import layers_of

    with torch.device("meta"):
        model = models.build(arch, 10)
        x = torch.rand(2, *models.input_shape(arch))
    expected = theory.closed_form(layers_of(model, x))

    work = trained(model, x)

    assert modules(work, "forward") == modules(expected, "forward")
    assert modules(work, "backward") == modules(expected, "backward")


def test_modules_sum_to_the_whole() -> None:
    """All work, of a network with normalization, activation, pooling and a loss."""
    import torch

    import models

    with torch.device("meta"):
        model, x = models.build("resnet18", 10), torch.rand(2, 3, 224, 224)
        targets = torch.zeros(2, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        torch.nn.functional.cross_entropy(model(x), targets).backward()
        optimizer.step()

    work = counted(step)
    parts = work.by_module().values()

    for phase in ("forward", "backward", "update", "recomputed", "total", "bytes"):
        assert sum(getattr(part, phase) for part in parts) == getattr(work, phase)
    assert sum(len(part.records) for part in parts) == len(work.records)


def test_the_step_counter_of_normalization_takes_no_other_modules_work() -> None:
    """BatchNorm adds 1 in place, which makes no node: the node made before it keeps its module."""
    import torch

    model = chain(linear(), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), linear())
    work = trained(model)

    assert modules(work, "backward") == {"Sequential.3": 2 * PRODUCT, "Sequential.0": PRODUCT}
    assert "aten.native_batch_norm_backward" in work.by_module()["Sequential.1"].by_op()


def test_work_that_makes_no_node_takes_no_other_modules_work() -> None:
    """What starts a module is often data: zeros, a position, a mask."""

    def start(self: Any, x: Tensor) -> Tensor:
        return self.layer(x + x.new_zeros(4))

    parts = [net(start, layer=linear()) for _ in range(3)]

    backward = {
        "Sequential.2.layer": 2 * PRODUCT,
        "Sequential.1.layer": 2 * PRODUCT,
        "Sequential.0.layer": PRODUCT,
    }
    assert modules(trained(chain(*parts)), "backward") == backward


def own_product() -> Callable[[Tensor, Tensor], Tensor]:
    """A product with a backward of its own."""
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

    return Product.apply


def test_a_function_with_its_own_backward_is_found_in_its_module() -> None:
    """In forward gradients are off inside of it."""
    import torch

    product = own_product()
    layers = [
        net(lambda self, x: product(x, self.weight), weight=torch.nn.Parameter(ones(4, 4))) for _ in range(2)
    ]
    work = trained(chain(*layers, linear()))

    assert modules(work, "forward") == dict.fromkeys((f"Sequential.{n}" for n in range(3)), PRODUCT)
    assert modules(work, "backward") == dict.fromkeys((f"Sequential.{n}" for n in (2, 1, 0)), 2 * PRODUCT)


def test_a_product_in_place_of_a_view_is_found_in_its_module() -> None:
    """Autograd copies slices for it, in a node that no operation made."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        out = torch.zeros(3, 2, 4)
        out[0].addmm_(x, self.weight)
        return out.sum(0)

    layers = [net(run, weight=torch.nn.Parameter(ones(4, 4))) for _ in range(2)]
    work = trained(chain(*layers, linear()))

    assert modules(work, "forward") == dict.fromkeys((f"Sequential.{n}" for n in range(3)), PRODUCT)
    backward = {"Sequential.2": 2 * PRODUCT, "Sequential.1": 2 * PRODUCT, "Sequential.0": PRODUCT}
    assert modules(work, "backward") == backward


def test_gradients_of_gradients_belong_to_the_module_of_the_forward() -> None:
    """A gradient penalty repeats both layers' products, each under its own name."""
    import torch

    model, x = chain(linear(), linear()), ones(requires_grad=True)

    def step() -> None:
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (grad * grad).sum().backward()

    # first pass: a product each; second: of layer 0 both operands owe a gradient, of layer 1 one (it
    # multiplies a constant)
    assert modules(counted(step), "backward") == {"Sequential.1": 2 * PRODUCT, "Sequential.0": 3 * PRODUCT}


def test_forward_in_another_thread_is_named_there() -> None:
    """Each thread is in modules of its own."""
    import threading

    from measurements import counting

    first, second = chain(linear()), net(lambda self, x: self.a(x), a=linear())

    def other(mode: Any) -> None:
        with mode:
            second(ones())

    with counting() as work:
        thread = threading.Thread(target=other, args=(work._mode,))
        inside = net(lambda self, x: (thread.start(), thread.join(), self.a(x))[-1], a=first)
        inside(ones())

    assert modules(work, "forward") == {"Net#2.a": PRODUCT, "Net.a.0": PRODUCT}


# Errors


def test_a_module_that_fails_leaves_no_name_behind() -> None:
    """Neither for what follows outside, nor for its next call."""

    def run(self: Any, x: Tensor, fails: bool) -> Tensor:
        if fails:
            raise ArithmeticError("stop")
        return self.a(x)

    model, other = net(lambda self, x, fails: self.inner(x, fails), inner=net(run, a=linear())), linear()

    def steps() -> None:
        for fails in (True, False):
            try:
                model(ones(), fails)
            except ArithmeticError:
                other(ones())
                ones() @ ones(4, 4)

    assert modules(counted(steps), "forward") == {"Linear": PRODUCT, "": PRODUCT, "Net.inner.a": PRODUCT}


def test_a_failure_that_the_caller_mends_leaves_the_caller_its_name() -> None:
    """A model that falls back on another layer."""

    def run(self: Any, x: Tensor) -> Tensor:
        try:
            return self.wide(x)
        except RuntimeError:
            return self.right(x) @ self.weight

    import torch

    model = net(run, wide=linear(9), right=linear(), weight=torch.nn.Parameter(ones(4, 4)))

    assert modules(trained(model), "forward") == {"Net.right": PRODUCT, "Net": PRODUCT}
