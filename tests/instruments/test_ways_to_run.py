"""The same arithmetic costs the same, however it is written, transformed or compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.records import Work

# Each operation of ATen that is written in more than one way: its arguments after the first tensor, and what
# one element costs. In place, with out= and on lists of tensors it costs as much.
VARIANTS: dict[str, tuple[tuple[Any, ...], dict[str, Any], int]] = {
    "abs": ((), {}, 1),
    "add": ((2.5,), {}, 1),
    "sub": ((2.5,), {}, 1),
    "mul": ((2.5,), {}, 1),
    "div": ((2.5,), {}, 1),
    "add_tensor": (("y",), {"alpha": 2.5}, 2),
    "sub_tensor": (("y",), {"alpha": 2.5}, 2),
    "mul_tensor": (("y",), {}, 1),
    "div_tensor": (("y",), {}, 1),
    "lerp_tensor": (("y", 0.5), {}, 3),
    "addcmul": (("y", "y"), {"value": 2.5}, 3),
    "addcdiv": (("y", "y"), {"value": 2.5}, 3),
    "addcmul_once": (("y", "y"), {"value": 1}, 2),
    "sqrt": ((), {}, 1),
    "rsqrt": ((), {}, 2),
    "exp": ((), {}, 1),
    "log": ((), {}, 1),
    "neg": ((), {}, 1),
    "reciprocal": ((), {}, 1),
    "sigmoid": ((), {}, 4),
    "tanh": ((), {}, 1),
    "sign": ((), {}, 1),
    "round": ((), {}, 1),
    "pow": ((2.5,), {}, 1),
    "clamp_min": ((0.5,), {}, 1),
    "clamp_max": ((0.5,), {}, 1),
}


def counted(run: Callable[[], Any]) -> Work:
    """The work of a call."""
    from measurements import counting

    with counting() as work:
        run()
    return work.frozen()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_an_operation_costs_the_same(name: str) -> None:
    """Functional, in place, out= and on a list of two tensors."""
    import torch

    operation = name.removesuffix("_tensor").removesuffix("_once")
    further, keywords, units = VARIANTS[name]
    x, y = torch.full((3, 4), 1.5), torch.full((3, 4), 2.0)
    arguments = [y if value == "y" else value for value in further]
    lists = [[value, value] if isinstance(value, torch.Tensor) else value for value in arguments]
    plain, listed = getattr(torch, operation), getattr(torch, f"_foreach_{operation}", None)

    flop = {
        "plain": counted(lambda: plain(x, *arguments, **keywords)).forward,
        "in place": counted(lambda: getattr(x.clone(), f"{operation}_")(*arguments, **keywords)).forward,
        "out": counted(lambda: plain(x, *arguments, **keywords, out=torch.empty(3, 4))).forward,
    }
    if listed is not None:
        in_place = getattr(torch, f"_foreach_{operation}_")
        flop["list"] = counted(lambda: listed([x, x], *lists, **keywords)).forward // 2
        flop["list in place"] = (
            counted(lambda: in_place([x.clone(), x.clone()], *lists, **keywords)).forward // 2
        )

    assert flop == dict.fromkeys(flop, units * 12)


def test_a_list_of_factors_costs_what_each_factor_costs() -> None:
    """A factor of exactly 1 is none, also one of a list; lists of sizes that differ add up."""
    import torch

    x, y = [torch.ones(3), torch.ones(5)], [torch.ones(3), torch.ones(5)]

    assert counted(lambda: torch._foreach_addcmul(x, y, y, [2.5, 1.0])).forward == 3 * 3 + 2 * 5
    assert counted(lambda: torch._foreach_mul(x, [1.0, 2.5])).forward == 5
    assert counted(lambda: torch._foreach_add(x, y, alpha=2)).forward == 2 * 8
    assert counted(lambda: torch._foreach_norm(x)).forward == 2 * 8
    assert counted(lambda: torch._foreach_norm(x, 1)).forward == 2 * 8 - 2
    assert counted(lambda: torch._foreach_maximum(x, y)).forward == 8


def test_a_factor_of_exactly_one_costs_nothing() -> None:
    """Scaling by 1, dividing by 1, the first power, dropout of nothing."""
    import torch
    from torch.nn import functional as F

    x = torch.ones(4)

    assert counted(lambda: (x * 1, 1.0 * x, x / 1, x**1, F.dropout(x, 0.0))).forward == 0


def test_out_of_a_product_costs_the_product() -> None:
    """mm, bmm and addmm into a given tensor, and in place."""
    import torch

    a, b, batch = torch.ones(3, 4), torch.ones(4, 5), torch.ones(2, 3, 4)
    room = torch.zeros(3, 5)

    assert counted(lambda: torch.mm(a, b, out=room)).contraction.forward == 120
    assert counted(lambda: room.addmm_(a, b)).forward == 120 + 15
    assert counted(lambda: torch.addmm(room, a, b, out=torch.empty(3, 5))).forward == 120 + 15
    assert counted(lambda: torch.bmm(batch, batch.mT, out=torch.empty(2, 3, 3))).contraction.forward == 2 * 72


# The network of the tests below: 16 -> 32 -> 16, tanh between, four rows of data.
FORWARD = 2 * 4 * (16 * 32 + 32 * 16)
BACKWARD = 2 * 4 * (16 * 32 + 2 * 32 * 16)  # the first layer's input is data


def network() -> Any:
    """Two linear layers with tanh between."""
    import torch

    layers = torch.nn.Linear(16, 32, bias=False), torch.nn.Tanh(), torch.nn.Linear(32, 16, bias=False)
    return torch.nn.Sequential(*layers)


def data() -> Any:
    """Four rows."""
    import torch

    return torch.ones(4, 16)


def step(model: Any, x: Any = None) -> tuple[int, int]:
    """Contraction FLOP forward and backward of one step."""
    x = data() if x is None else x
    work = counted(lambda: model(x).sum().backward())
    return work.contraction.forward, work.contraction.backward


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_costs_what_it_computes(backend: str) -> None:
    """In its first call, which compiles, and in the next."""
    import torch

    torch._dynamo.reset()
    model = torch.compile(network(), backend=backend)

    assert [step(model), step(model)] == [(FORWARD, BACKWARD)] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_scripted_model_costs_what_it_computes() -> None:
    """TorchScript runs the same operations."""
    import torch

    assert step(torch.jit.script(network())) == (FORWARD, BACKWARD)


def test_without_gradients_there_is_only_a_forward() -> None:
    """no_grad, and inference mode, which delivers composite operations whole."""
    import torch

    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            model, x = network(), data()
            work = counted(lambda model=model, x=x: model(x.reshape(4, 4, 4).flatten(1)))
        assert (work.contraction.forward, work.backward) == (FORWARD, 0)


def test_autocast_adds_no_product() -> None:
    """The casts are free."""
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        assert step(network()) == (FORWARD, BACKWARD)


def test_a_mapped_function_costs_what_its_calls_cost() -> None:
    """Vmap over three weights runs one product for all."""
    import torch

    weights = torch.ones(3, 16, 32, requires_grad=True)

    work = counted(
        lambda: torch.vmap(lambda w, x: x @ w, in_dims=(0, None))(weights, data()).sum().backward()
    )

    assert (work.contraction.forward, work.contraction.backward) == (3 * 2 * 4 * 16 * 32,) * 2


def test_a_functional_gradient_is_a_backward_pass() -> None:
    """torch.func.grad of a loss in the weight.

    Forward, and the weight's product in backward; nothing is repetition.
    """
    import torch

    weight = torch.ones(16, 32)

    work = counted(lambda: torch.func.grad(lambda w: (data() @ w).square().sum())(weight))

    assert (work.contraction.forward, work.contraction.backward) == (2 * 4 * 16 * 32,) * 2
    assert work.recomputed == 0


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:FutureWarning", "ignore:.*torch.jit.script:DeprecationWarning"
)
def test_a_tangent_costs_both_terms_of_the_product_rule() -> None:
    """Forward mode: the value, and two products.

    The tangent of a constant is zeros, multiplied all the same.
    """
    import torch

    a, b = data(), torch.ones(16, 32)
    one = 2 * 4 * 16 * 32

    weight = counted(lambda: torch.func.jvp(lambda w: a @ w, (b,), (b,)))
    both = counted(lambda: torch.func.jvp(lambda x, w: x @ w, (a, b), (a, b)))

    assert weight.contraction.forward == 3 * one
    assert both.contraction.forward == 3 * one


def test_ragged_rows_count_as_they_are() -> None:
    """A jagged nested tensor of 3, 5 and 2 rows: ten rows, no padding."""
    import torch

    rows = torch.nested.nested_tensor([torch.ones(n, 16) for n in (3, 5, 2)], layout=torch.jagged)
    layer = torch.nn.Linear(16, 32, bias=False)

    work = counted(lambda: layer(rows).values().sum().backward())

    assert (work.contraction.forward, work.contraction.backward) == (2 * 10 * 16 * 32,) * 2


def test_an_empty_batch_costs_nothing() -> None:
    """No rows, no products."""
    import torch

    assert step(network(), torch.ones(0, 16)) == (0, 0)


def test_views_change_nothing() -> None:
    """A product of transposed, expanded and sliced operands."""
    import torch

    a, b = torch.ones(4, 3), torch.ones(5, 8)

    assert counted(lambda: a.T @ torch.ones(1, 5).expand(4, 5)).contraction.forward == 2 * 3 * 4 * 5
    assert counted(lambda: b.T[::2] @ b).contraction.forward == 2 * 4 * 5 * 8
