"""`counting()` goes around any code, can be read at any time, and takes a user's formulas."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.small import PRODUCT, chain, contractions, counted, linear, ones

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# A live object


def test_a_count_can_be_read_at_any_time() -> None:
    """It grows while code runs, and stays as it is after the block."""
    from measurements import counting

    model = linear()
    with counting() as work:
        assert (work.total, work.records) == (0, ())
        model(ones())
        assert work.contraction.forward == PRODUCT
        loss = model(ones()).sum()
        assert work.forward == 2 * PRODUCT + 7
        assert work.backward == 0
        loss.backward()
        assert work.backward == work.by_phase()["backward"].total == PRODUCT
    model(ones())

    assert work.forward == 2 * PRODUCT + 7
    assert work.frozen().total == work.total


def test_a_frozen_count_no_longer_grows() -> None:
    """What was read keeps its value."""
    from measurements import counting

    with counting() as work:
        linear()(ones())
        before = work.frozen()
        linear()(ones())

    assert (before.forward, work.forward) == (PRODUCT, 2 * PRODUCT)


def test_a_count_shows_its_sums() -> None:
    """At a prompt, all work by phase."""
    from measurements import counting

    with counting() as work:
        linear()(ones())

    assert "forward=64" in repr(work)


def test_blocks_count_apart() -> None:
    """One after another, what runs between them in none."""
    works = []
    for _ in range(2):
        works.append(counted(lambda: linear()(ones())))
        linear()(ones())

    assert [work.total for work in works] == [PRODUCT, PRODUCT]


def test_a_block_within_a_block_counts_in_both() -> None:
    """Each counts what runs inside of it, and names it alike."""
    from measurements import counting

    model = chain(linear(), linear())
    optimizer = sgd(model)
    with counting() as outer:
        model(ones())
        with counting() as inner:
            model(ones()).sum().backward()
            optimizer.step()
        model(ones())

    assert contractions(inner) == (2 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert contractions(outer) == (6 * PRODUCT, 3 * PRODUCT, 0, 0)
    assert inner.update == outer.update == 2 * 32
    assert set(inner.by_module()) == set(outer.by_module()) == {"Sequential.0", "Sequential.1", ""}


def sgd(model: Any) -> Any:
    """Plain gradient descent."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_another_thread_is_not_counted() -> None:
    """A mode belongs to the thread that entered it."""

    def run() -> None:
        thread = threading.Thread(target=lambda: linear()(ones()))
        thread.start()
        thread.join()
        linear()(ones())

    assert counted(run).total == PRODUCT


def test_two_threads_count_apart() -> None:
    """Each its own block, at the same time."""
    from measurements import counting

    works: dict[int, Any] = {}
    together = threading.Barrier(2)

    def run(times: int) -> None:
        model = chain(linear())
        with counting() as works[times]:
            together.wait()
            for _ in range(times):
                model(ones()).sum().backward()
            together.wait()

    threads = [threading.Thread(target=run, args=(times,)) for times in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for times, work in works.items():
        assert contractions(work) == (times * PRODUCT, times * PRODUCT, 0, 0)


# Other modes


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_counting_goes_with_torchs_own_counter(inside: bool) -> None:
    """Both see every product, whichever is the outer one."""
    from contextlib import ExitStack

    from torch.utils.flop_counter import FlopCounterMode

    from measurements import counting

    with ExitStack() as stack:
        theirs = FlopCounterMode(display=False)
        if not inside:
            stack.enter_context(theirs)
        ours = stack.enter_context(counting())
        if inside:
            stack.enter_context(theirs)
        linear()(ones()).sum().backward()

    assert contractions(ours) == (PRODUCT, PRODUCT, 0, 0)
    assert theirs.get_total_flops() == 2 * PRODUCT


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_counting_goes_with_fake_tensors(inside: bool) -> None:
    """Tensors without elements on the device that they claim."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from measurements import counting

    fake = FakeTensorMode()
    if inside:
        with counting() as work, fake:
            linear()(ones()).sum().backward()
    else:
        with fake, counting() as work:
            linear()(ones()).sum().backward()

    assert contractions(work) == (PRODUCT, PRODUCT, 0, 0)
    assert work.forward == PRODUCT + 7


def test_inference_mode_changes_no_count() -> None:
    """It delivers some operations whole. A bias adds 8, a ReLU compares 8, a softmax is 5·n less 2 a row."""
    import torch

    model = chain(linear(bias=True), torch.nn.ReLU(), linear(), torch.nn.Softmax(dim=-1))
    plain = counted(lambda: model(ones()))
    with torch.inference_mode():
        inference = counted(lambda: model(ones()))

    assert inference.forward == plain.forward == 2 * PRODUCT + 8 + 8 + (5 * 8 - 2 * 2)
    assert inference.contraction == plain.contraction


def test_an_empty_batch_counts_nothing() -> None:
    """Forward and backward of no samples: products of nothing."""
    model = linear()

    assert contractions(counted(lambda: model(ones(0, 4)).sum().backward())) == (0, 0, 0, 0)
    assert counted(lambda: model(ones(0, 4))).total == 0


def test_a_count_past_64_bits_is_exact() -> None:
    """2 · 3000001³ · 7 exceeds 2^63."""
    import torch

    n = 3_000_001
    x = torch.empty(7, n, n, device="meta")

    work = counted(lambda: x @ x)

    assert work.forward == work.contraction.forward == 2 * 7 * n**3 > 2**63


# Formulas for a user's own operations


@pytest.fixture(scope="module")
def scaled() -> Iterator[Any]:
    """An operation that no table knows, with a gradient: x @ w · scale."""
    import torch

    schema = "(Tensor x, Tensor w, float scale) -> Tensor"

    @torch.library.custom_op("behaviour::scaled", mutates_args=(), schema=schema)
    def scaled(x: Any, w: Any, scale: Any) -> Any:
        return torch.mm(x, w) * scale

    @scaled.register_fake
    def _(x: Any, w: Any, scale: float) -> Any:
        return x.new_empty(x.shape[0], w.shape[1])

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.scale = inputs[2]

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return scaled(grad, w.t().contiguous(), ctx.scale), scaled(x.t().contiguous(), grad, ctx.scale), None

    scaled.register_autograd(backward, setup_context=keep)
    return torch.ops.behaviour.scaled


def of_shapes(x: Any, w: Any) -> int:
    """2 · N · I · O."""
    return 2 * x[0] * x[1] * w[1]


@pytest.mark.parametrize("key", ["packet", "overload", "name", "dotted"])
def test_a_formula_is_found_by_operator_and_by_name(scaled: Any, key: str) -> None:
    """Forward 1, backward 2 products, on real numbers and on meta."""
    op = {
        "packet": scaled,
        "overload": scaled.default,
        "name": "behaviour::scaled",
        "dotted": "behaviour.scaled",
    }[key]
    for device in ("cpu", "meta"):
        x, w = ones(requires_grad=True, device=device), ones(4, 4, requires_grad=True, device=device)

        work = counted(lambda x=x, w=w: scaled(x, w, 2.0).sum().backward(), formulas={op: of_shapes})

        assert contractions(work) == (PRODUCT, 2 * PRODUCT, 0, 0)


def test_an_operation_without_a_formula_is_refused(scaled: Any) -> None:
    """The sentence names the operation, its shapes, and how to give it a formula."""
    from measurements import UnknownOp

    with pytest.raises(UnknownOp) as error:
        counted(lambda: scaled(ones(), ones(4, 4), 2.0))

    for word in ("behaviour.scaled", "(2, 4)", "(4, 4)", "counting(formulas="):
        assert word in str(error.value)


def test_an_operation_without_a_formula_can_be_listed_instead(scaled: Any) -> None:
    """Once, with a warning; it counts 0, and runs."""
    from measurements import counting

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with counting(on_unknown="warn") as work:
            outs = [scaled(ones(), ones(4, 4), 2.0) for _ in range(3)]
            linear()(ones())

    assert [str(warning.message).count("behaviour.scaled") > 0 for warning in said] == [True]
    assert "counted as 0" in str(said[0].message)
    assert work.unknown == ("behaviour.scaled",)
    assert work.total == PRODUCT
    assert [float(out[0, 0]) for out in outs] == [8.0] * 3


def test_nothing_is_listed_where_all_is_known() -> None:
    """Views, factories and casts are known to be free."""
    from measurements import counting

    with counting(on_unknown="warn") as work:
        linear()(ones()).double().view(-1)

    assert work.unknown == ()


def test_a_formula_may_ask_for_arguments_by_name_and_for_what_came_back(scaled: Any) -> None:
    """By the names in the operator's schema, a plain number among them, `out`, and the phase."""
    seen = {}

    def formula(scale: float, w: Any, out: Any, phase: str) -> int:
        seen.update(scale=scale, w=tuple(w), out=tuple(out), phase=phase)
        return 2 * out[0] * out[1] * w[0]

    work = counted(lambda: scaled(ones(), ones(4, 4), 3.0), formulas={scaled: formula})

    assert work.contraction.forward == PRODUCT
    assert seen == {"scale": 3.0, "w": (4, 4), "out": (2, 4), "phase": "forward"}


def test_a_formula_may_take_arguments_by_place(scaled: Any) -> None:
    """Names that the schema does not have take what stands at their place."""
    work = counted(
        lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: lambda a, b: 2 * a[0] * a[1] * b[1]}
    )

    assert work.contraction.forward == PRODUCT


def test_a_formula_says_which_work_is_no_contraction(scaled: Any) -> None:
    """A product, and a factor on each output."""
    from measurements.formulas import contraction, elementwise

    def formula(x: Any, w: Any, out: Any) -> Any:
        return contraction(of_shapes(x, w)) + elementwise(out.numel)

    work = counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: formula})

    assert (work.forward, work.contraction.forward) == (PRODUCT + 8, PRODUCT)


def test_a_users_formula_goes_before_the_suites() -> None:
    """Whoever knows better, for one block."""
    import torch

    model = linear()
    work = counted(lambda: model(ones()), formulas={torch.ops.aten.mm: lambda x, w: 1})

    assert work.forward == 1
    assert counted(lambda: model(ones())).forward == PRODUCT


def test_a_formula_may_be_past_64_bits(scaled: Any) -> None:
    """Integers are exact."""
    assert counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: lambda x: 3**60}).total == 3**60


def test_a_formula_that_fails_is_named(scaled: Any) -> None:
    """With the operation, the shapes, and its own words."""
    from measurements import UnknownOp

    def formula(x: Any) -> int:
        raise ValueError("no such shape")

    with pytest.raises(UnknownOp, match=r"behaviour\.scaled.*\(2, 4\).*no such shape"):
        counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: formula})


@pytest.mark.parametrize("error", [KeyError("z"), ZeroDivisionError("by zero")], ids=["key", "zero"])
def test_a_formula_with_a_slip_is_named(scaled: Any, error: Exception) -> None:
    """Whatever it raises."""
    from measurements import UnknownOp

    def formula(x: Any) -> int:
        raise error

    with pytest.raises(UnknownOp, match=r"behaviour\.scaled"):
        counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: formula})


@pytest.mark.parametrize("flop", [1.5, None, "64", (1, 2)], ids=["float", "none", "text", "tuple"])
def test_a_formula_that_gives_no_integer_is_named(scaled: Any, flop: object) -> None:
    """A count is an integer; half a FLOP would spread into every sum."""
    from measurements import UnknownOp

    with pytest.raises((UnknownOp, TypeError, ValueError), match=r"behaviour\.scaled"):
        counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: lambda x: flop})


def test_a_formula_with_a_parameter_that_nothing_fills_is_named(scaled: Any) -> None:
    """The sentence lists what there is."""
    with pytest.raises(ValueError, match=r"behaviour\.scaled.*'fourth'.*x, w, scale"):
        counted(lambda: scaled(ones(), ones(4, 4), 2.0), formulas={scaled: lambda x, w, scale, fourth: 1})


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"on_unknown": "ignore"}, ValueError, "unknown on_unknown 'ignore'; have raise, warn"),
        ({"formulas": {3: of_shapes}}, TypeError, "3 is no operator"),
        ({"formulas": {"aten::mm": 64}}, TypeError, "aten.mm is 64, not a function"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], kind: type, words: str) -> None:
    """Before anything runs."""
    ran = []

    with pytest.raises(kind, match=words):
        counted(lambda: ran.append(1), **options)

    assert ran == []


# What counting leaves alone


def test_records_keep_no_tensor_alive() -> None:
    """Inputs, outputs, weights and models go when the code lets them go, although the count stays."""
    from measurements import counting

    with counting() as work:
        model, x = chain(linear(), linear()), ones(requires_grad=True)
        out = model(x).sum()
        out.backward()
        kept = [
            weakref.ref(thing)
            for thing in (model, model[0], model[0].weight, model[0].weight.grad, x, x.grad, out)
        ]
        del model, x, out
        gc.collect()

        assert [thing() for thing in kept] == [None] * len(kept)
    assert contractions(work) == (2 * PRODUCT, 4 * PRODUCT, 0, 0)


def test_counting_changes_no_number() -> None:
    """Outputs, gradients and trained weights, with dropout and normalization, are the same bits."""
    import torch

    def train() -> list[Tensor]:
        torch.manual_seed(1)
        layers = linear(bias=True), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Dropout(0.5), linear()
        model = chain(*layers)
        optimizer = torch.optim.Adam(model.parameters())
        outs = []
        for _ in range(3):
            optimizer.zero_grad()
            outs.append(model(torch.rand(8, 4)))
            outs[-1].square().sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return [*outs, *model.state_dict().values(), *(weight.grad for weight in model.parameters())]

    with_count: list[Tensor] = []
    counted(lambda: with_count.extend(train()))

    plain = train()
    assert len(plain) == len(with_count)
    assert all(torch.equal(a, b) for a, b in zip(plain, with_count, strict=True))


def test_a_number_s_type_decides_what_an_integer_tensor_becomes() -> None:
    """Times 2 it stays integer (0); times 2.0 or 2+0j it does not: 1, or 2, for each of 6 elements."""
    import torch

    from measurements import counting

    x = torch.ones(6, dtype=torch.int64)
    flop = []
    for factor in (2, 2.0, 2 + 0j):
        with counting() as work:
            x * factor
        flop.append(work.forward)

    assert flop == [0, 6, 12]
