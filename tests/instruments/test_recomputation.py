"""Work that is done again stands beside the model's work, which is the same with and without it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.small import PRODUCT, chain, contractions, counted, linear, modules, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from measurements.records import Work

KINDS = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "hooks"])
"""The two kinds of activation checkpointing that torch has."""
ELEMENTS = 8
"""Outputs of each layer."""


def block() -> nn.Module:
    """Two products with a ReLU between them."""
    import torch

    return chain(linear(), torch.nn.ReLU(), linear())


def checkpointed(code: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """A checkpoint that runs the forward again to its end, as the reentrant kind always does."""
    from torch.utils import checkpoint as torchs

    with torchs.set_checkpoint_early_stop(False):
        return torchs.checkpoint(code, *inputs, **options)


def step(code: Callable[[Tensor], Tensor], model: nn.Module | None = None) -> Work:
    """Forward, and backward from the sum of the output, for an input that needs a gradient.

    Gradients that the model holds are dropped before, so that the new ones are not added to them.
    """
    x = ones(requires_grad=True)
    (model or code).zero_grad()
    return counted(lambda: code(x).sum().backward())


def same_model_work(work: Work, plain: Work) -> bool:
    """Whether forward, backward and update cost the same, all work and contractions."""
    names = ("forward", "backward", "update", "total")
    return all(
        getattr(some(work), name) == getattr(some(plain), name)
        for some in (lambda w: w, lambda w: w.contraction)
        for name in names
    )


@KINDS
def test_a_checkpoint_repeats_the_forward(reentrant: bool) -> None:
    """Two products and a ReLU of 8 elements, done again in backward."""
    model = block()
    work = step(lambda x: checkpointed(model, x, use_reentrant=reentrant), model)

    assert contractions(work) == (2 * PRODUCT, 4 * PRODUCT, 0, 2 * PRODUCT)
    assert work.recomputed == 2 * PRODUCT + ELEMENTS
    assert same_model_work(work, step(model))


def test_a_checkpoint_that_stops_early_repeats_less() -> None:
    """It stops when the last tensor that backward wants is there: the last product's input."""
    from torch.utils.checkpoint import checkpoint

    model = block()
    work = step(lambda x: checkpoint(model, x, use_reentrant=False), model)

    assert work.recomputed == PRODUCT + ELEMENTS
    assert same_model_work(work, step(model))


@KINDS
def test_what_is_done_again_is_found_in_its_module(reentrant: bool) -> None:
    """As are the gradients of what was done again."""
    model = net(lambda self, x: checkpointed(self.block, x, use_reentrant=reentrant), block=block())
    work = step(model)
    names = "Net.block.0", "Net.block.2"

    assert modules(work, "recomputed") == modules(work, "forward") == dict.fromkeys(names, PRODUCT)
    assert modules(work, "backward") == dict.fromkeys(names, 2 * PRODUCT)


@KINDS
@pytest.mark.filterwarnings(
    "ignore:None of the inputs have requires_grad"
)  # the inner one, in the outer's first forward
def test_a_checkpoint_within_a_checkpoint_is_repeated_twice(reentrant: bool) -> None:
    """The outer one repeats three products, the inner one its own two once more."""
    first, rest = linear(), block()
    model = chain(first, rest)

    def outer(x: Tensor) -> Any:
        return checkpointed(rest, first(x), use_reentrant=reentrant)

    work = step(lambda x: checkpointed(outer, x, use_reentrant=reentrant), model)

    assert contractions(work) == (3 * PRODUCT, 6 * PRODUCT, 0, 5 * PRODUCT)
    assert same_model_work(work, step(model))


@KINDS
def test_segments_are_repeated_but_for_the_last(reentrant: bool) -> None:
    """checkpoint_sequential keeps what the last segment made."""
    from torch.utils import checkpoint as torchs

    model = chain(*(linear() for _ in range(4)))

    def forward(x: Tensor) -> Any:
        with torchs.set_checkpoint_early_stop(False):
            return torchs.checkpoint_sequential(model, 2, x, use_reentrant=reentrant)

    assert contractions(step(forward, model)) == (4 * PRODUCT, 8 * PRODUCT, 0, 2 * PRODUCT)


def test_what_a_selective_checkpoint_keeps_is_not_repeated() -> None:
    """It keeps the products; the ReLU between them is done again."""
    import torch
    from torch.utils import checkpoint as torchs

    kept = [torch.ops.aten.mm.default]
    contexts = functools.partial(torchs.create_selective_checkpoint_contexts, kept)
    model = block()
    work = step(lambda x: checkpointed(model, x, use_reentrant=False, context_fn=contexts), model)

    assert contractions(work) == (2 * PRODUCT, 4 * PRODUCT, 0, 0)
    assert work.recomputed == ELEMENTS
    assert same_model_work(work, step(model))


def test_a_policy_chooses_what_a_selective_checkpoint_keeps() -> None:
    """The other way round: it keeps the ReLU, and repeats the products."""
    import torch
    from torch.utils import checkpoint as torchs

    def policy(context: Any, op: Any, *arguments: Any, **named: Any) -> Any:
        keeps = op is torch.ops.aten.relu.default
        return torchs.CheckpointPolicy.MUST_SAVE if keeps else torchs.CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(torchs.create_selective_checkpoint_contexts, policy)
    model = block()
    work = step(lambda x: checkpointed(model, x, use_reentrant=False, context_fn=contexts), model)

    assert contractions(work) == (2 * PRODUCT, 4 * PRODUCT, 0, 2 * PRODUCT)
    assert work.recomputed == 2 * PRODUCT
    assert same_model_work(work, step(model))


@KINDS
@pytest.mark.parametrize("preserve", [True, False])
def test_dropout_is_done_again(reentrant: bool, preserve: bool) -> None:
    """With the same random numbers, or with others: a mask and a scale, 2 for each of 8 elements."""
    import torch

    model = chain(linear(), torch.nn.Dropout(0.5), linear())
    work = step(lambda x: checkpointed(model, x, use_reentrant=reentrant, preserve_rng_state=preserve), model)

    assert work.recomputed == step(model).forward - (ELEMENTS - 1)  # all of forward but the sum at its end
    assert work.contraction.recomputed == 2 * PRODUCT
    assert same_model_work(work, step(model))


@KINDS
def test_work_without_gradients_in_a_checkpoint_is_done_again_too(reentrant: bool) -> None:
    """A product of data, made under no_grad in the middle of the forward."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            factor = ones() @ ones(4, 4)
        return self.a(x) * factor

    model = net(run, a=linear())
    work = step(lambda x: checkpointed(model, x, use_reentrant=reentrant), model)

    assert contractions(work) == (2 * PRODUCT, 2 * PRODUCT, 0, 2 * PRODUCT)
    assert same_model_work(work, step(model))


@KINDS
def test_a_function_with_its_own_backward_is_done_again(reentrant: bool) -> None:
    """In its forward gradients are off, also the second time."""
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

    model = net(lambda self, x: Product.apply(x, self.weight), weight=torch.nn.Parameter(ones(4, 4)))
    work = step(lambda x: checkpointed(model, x, use_reentrant=reentrant), model)

    assert contractions(work) == (PRODUCT, 2 * PRODUCT, 0, PRODUCT)
    assert same_model_work(work, step(model))


@KINDS
def test_a_checkpoint_around_a_plain_function_repeats_it(reentrant: bool) -> None:
    """No module is called."""
    weight = ones(4, 4, requires_grad=True)
    x = ones(requires_grad=True)

    def run() -> None:
        checkpointed(lambda x: (x @ weight).relu() @ weight, x, use_reentrant=reentrant).sum().backward()

    work = counted(run)

    assert contractions(work) == (2 * PRODUCT, 4 * PRODUCT, 0, 2 * PRODUCT)


def test_a_checkpoint_under_a_gradient_penalty_repeats_the_forward() -> None:
    """Gradients of gradients are the model's work; what the checkpoint repeats for them is not."""
    import torch

    model, x = chain(linear(), torch.nn.Tanh(), linear()), ones(requires_grad=True)

    def penalty(forward: Callable[[Tensor], Tensor]) -> Work:
        def step() -> None:
            (grad,) = torch.autograd.grad(forward(x).sum(), x, create_graph=True)
            (grad * grad).sum().backward(inputs=list(model.parameters()))

        model.zero_grad()
        return counted(step)

    plain = penalty(model)
    work = penalty(lambda x: checkpointed(model, x, use_reentrant=False))

    # g = (1 · W2ᵀ · tanh') · W1ᵀ: two products. Its gradients: in W1 and in what W1 multiplies, in W2, and,
    # through tanh', in the W1 of the forward. Two passes go through the forward's nodes, and each
    # asks for it again.
    assert contractions(plain) == (2 * PRODUCT, (2 + 2 + 1 + 1) * PRODUCT, 0, 0)
    assert same_model_work(work, plain)
    assert work.contraction.recomputed == 2 * 2 * PRODUCT


def test_a_gradient_inside_a_checkpointed_forward_is_done_again() -> None:
    """Forces, say: the gradient of an energy is a part of what is repeated.

    The gradient of x · W costs a product. Its own, of a constant times Wᵀ, owes the weight's: one more.
    Both passes, the inner and the outer, want what the checkpoint did not keep, so both repeat the
    two products.
    """
    import torch

    weight = ones(4, 4, requires_grad=True)

    def forces(x: Tensor) -> Tensor:
        energy = (x @ weight).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    x = ones(requires_grad=True)

    def run(forward: Callable[[Tensor], Tensor]) -> Work:
        weight.grad = None
        return counted(lambda: forward(x).sum().backward())

    plain = run(forces)
    work = run(lambda x: checkpointed(forces, x, use_reentrant=False))

    assert contractions(plain) == (PRODUCT, 2 * PRODUCT, 0, 0)
    assert same_model_work(work, plain)
    assert work.contraction.recomputed == 2 * 2 * PRODUCT


def test_an_outer_block_sees_recomputation_after_an_inner_one_has_ended() -> None:
    """And an inner one, what began before it."""
    from measurements import counting

    model, x = block(), ones(requires_grad=True)
    with counting() as outer:
        first, second = (checkpointed(model, x, use_reentrant=False).sum() for _ in range(2))
        with counting() as inner:
            first.backward()
        second.backward()

    assert contractions(inner) == (0, 4 * PRODUCT, 0, 2 * PRODUCT)
    assert contractions(outer) == (4 * PRODUCT, 8 * PRODUCT, 0, 4 * PRODUCT)


def test_gradients_on_in_backward_are_not_recomputation() -> None:
    """With create_graph=True backward makes nodes, as a forward does."""
    import torch

    model, x = block(), ones(requires_grad=True)

    work = counted(lambda: torch.autograd.grad(model(x).sum(), x, create_graph=True))

    assert contractions(work) == (2 * PRODUCT, 2 * PRODUCT, 0, 0)
    assert work.recomputed == 0


# Attention

HEADS, LENGTH, HEAD_WIDTH = 2, 16, 8
SCORES = 2 * HEADS * LENGTH * LENGTH * HEAD_WIDTH
"""FLOP of the product of queries with keys; the product with the values costs as much."""


def attention(device: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """Scaled dot product attention: one fused operation on CPU, its parts on meta."""
    import torch

    sizes = 1, HEADS, LENGTH, HEAD_WIDTH
    inputs = [torch.ones(sizes, device=device, requires_grad=True) for _ in range(3)]
    return torch.nn.functional.scaled_dot_product_attention, inputs


@pytest.mark.parametrize(("device", "again"), [("cpu", SCORES), ("meta", 0)])
def test_fused_attention_repeats_the_scores_in_backward(device: str, again: int) -> None:
    """Two products forward, four gradients; the fused kernel kept no scores, and finds them again."""
    attend, inputs = attention(device)

    work = counted(lambda: attend(*inputs).sum().backward())

    assert contractions(work) == (2 * SCORES, 4 * SCORES, 0, again)


@KINDS
@pytest.mark.parametrize(("device", "again"), [("cpu", SCORES), ("meta", 0)])
def test_a_checkpoint_around_attention_repeats_both(reentrant: bool, device: str, again: int) -> None:
    """Its forward by the checkpoint, and the scores by the kernel."""
    attend, inputs = attention(device)

    work = counted(lambda: checkpointed(attend, *inputs, use_reentrant=reentrant).sum().backward())

    assert contractions(work) == (2 * SCORES, 4 * SCORES, 0, 2 * SCORES + again)


@KINDS
def test_the_counts_of_a_whole_model_do_not_change(reentrant: bool) -> None:
    """A transformer layer with dropout, on meta: forward and backward as without a checkpoint, op by op."""
    import torch

    with torch.device("meta"):
        model = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        x = torch.rand(2, 5, 16, requires_grad=True)

    def by_op(forward: Callable[[Tensor], Tensor]) -> dict[str, dict[str, int]]:
        model.zero_grad()
        x.grad = None
        work = counted(lambda: forward(x).sum().backward())
        return {
            phase: {op: part.total for op, part in sorted(of_phase.by_op().items()) if part.total}
            for phase, of_phase in work.by_phase().items()
        }

    assert by_op(lambda x: checkpointed(model, x, use_reentrant=reentrant)) == by_op(model)
