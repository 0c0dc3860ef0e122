"""Products of two operands, in all their spellings, cost what naive scalar loops execute."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instruments import oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

few = settings(max_examples=12, deadline=None, derandomize=True)
small = st.integers(1, 3)
SIZES = dict.fromkeys("abchijlmn", small) | {"k": st.integers(2, 4)}  # einsum over one element is a mul

Spelling = tuple[str, str]
SPELLINGS: dict[str, Spelling] = {  # name -> the sum that it is, and how torch spells it
    "mm": ("nk,km->nm", "torch.mm(a, b)"),
    "matmul": ("nk,km->nm", "a @ b"),
    "matmul_of_batches": ("bcnk,ckm->bcnm", "a @ b"),
    "matmul_of_a_row": ("k,km->m", "a @ b"),
    "bmm": ("bnk,bkm->bnm", "torch.bmm(a, b)"),
    "mv": ("nk,k->n", "torch.mv(a, b)"),
    "inner": ("nk,mk->nm", "torch.inner(a, b)"),
    "linear": ("bck,mk->bcm", "torch.nn.functional.linear(a, b)"),
    "linear_of_a_row": ("k,mk->m", "torch.nn.functional.linear(a, b)"),
    "tensordot": ("bnkl,klm->bnm", "torch.tensordot(a, b, dims=2)"),
    "einsum_of_scores": ("bhik,bhjk->bhij", "torch.einsum('bhik,bhjk->bhij', a, b)"),
    "einsum_of_rows": ("ak,ck->ac", "torch.einsum('ak,ck->ac', a, b)"),
    "addr": ("n,m->nm", "torch.addr(torch.zeros(a.numel(), b.numel(), dtype=a.dtype), a, b)"),
    "chained_in_place": ("nk,km->nm", "torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype).addmm_(a, b)"),
}


def spelled(text: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The function of a and b that a spelling is."""
    import torch

    return lambda a, b: eval(text, {"torch": torch, "a": a, "b": b})


def contraction(equation: str, sizes: dict[str, int]) -> oracle.Contraction:
    """The taps of a sum of products, one for each value of all its letters."""
    operands, out = equation.split("->")
    left, right = operands.split(",")
    letters = "".join(dict.fromkeys(left + right))
    taps = []
    for place in oracle.indices(*(sizes[letter] for letter in letters)):
        at = dict(zip(letters, place, strict=True))
        taps.append(tuple(tuple(at[letter] for letter in part) for part in (left, right, out)))
    shapes = [tuple(sizes[letter] for letter in part) for part in (left, right, out)]
    return oracle.Contraction(*shapes, tuple(taps))


def integers(*sizes: int) -> Tensor:
    """Small whole numbers in float64: their sums are exact in any order. Hypothesis seeds `random`."""
    import torch

    numbers = [random.randint(-3, 3) for _ in range(torch.Size(sizes).numel())]
    return torch.tensor(numbers, dtype=torch.float64).reshape(sizes)


def counted(run: Callable[[], Any], backward: bool = True) -> tuple[Any, Any]:
    """What a call gives, and its work, with the backward pass of the sum of its output."""
    from measurements import counting

    with counting() as work:
        out = run()
        if backward:
            out.backward(out.detach().new_ones(()).expand_as(out))
    return out, work


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_product_costs_what_its_loops_execute(name: str) -> None:
    """Forward, and backward for whichever operand needs a gradient; and the loops are torch's product."""
    equation, text = SPELLINGS[name]

    @few
    @given(sizes=st.fixed_dictionaries(SIZES), needs=st.tuples(*[st.booleans()] * 2))
    def check(sizes: dict[str, int], needs: tuple[bool, bool]) -> None:
        taps = contraction(equation, sizes)
        a, b = (integers(*shape) for shape in (taps.left, taps.right))
        values, forward = taps.forward(oracle.values(a), oracle.values(b))
        ones = oracle.values(a.new_ones(taps.out))
        gradients = (
            taps.left_gradient(ones, oracle.values(b))[1],
            taps.right_gradient(ones, oracle.values(a))[1],
        )
        a, b = a.requires_grad_(needs[0]), b.requires_grad_(needs[1])

        out, work = counted(lambda: spelled(text)(a, b), backward=any(needs))

        assert oracle.values(out) == values
        assert work.contraction.forward == forward
        assert work.contraction.backward == sum(
            g for g, needed in zip(gradients, needs, strict=True) if needed
        )

    check()


@few
@given(sizes=st.tuples(small, small, small), alpha=st.sampled_from((1, 2)), beta=st.sampled_from((0, 1, 3)))
def test_a_bias_costs_an_addition_and_a_factor_unless_it_is_one(
    sizes: tuple[int, int, int], alpha: int, beta: int
) -> None:
    """beta·bias + alpha·(a @ b), all work, with a bias for each column: the loops do no product with 1."""
    import torch

    n, k, m = sizes
    bias, a, b = integers(m), integers(n, k), integers(k, m)
    taps = contraction("nk,km->nm", {"n": n, "k": k, "m": m})

    def plus() -> oracle.Values:
        products, _ = taps.forward(oracle.values(a), oracle.values(b))
        scaled = products if alpha == 1 else {i: oracle.CountedFloat(2.0) * p for i, p in products.items()}
        added = oracle.values(bias)
        if beta not in (0, 1):
            added = {i: oracle.CountedFloat(3.0) * value for i, value in added.items()}
        return {i: value if beta == 0 else value + added[i[1:]] for i, value in scaled.items()}

    values, flop = oracle.counted(plus)
    out, work = counted(lambda: torch.addmm(bias, a, b, alpha=alpha, beta=beta), backward=False)

    assert oracle.values(out) == values
    assert (work.forward, work.contraction.forward) == (flop, 2 * n * k * m)


@few
@given(sizes=st.tuples(small, small, small, small))
def test_every_product_with_a_bias_adds_it_once(sizes: tuple[int, int, int, int]) -> None:
    """baddbmm, addmv and linear, each an addition an output.

    Addbmm sums its batch as one long dot product.
    """
    import torch

    batch, n, k, m = sizes
    a, b, v = integers(batch, n, k), integers(batch, k, m), integers(k)
    calls = {
        lambda: torch.baddbmm(integers(batch, n, m), a, b): (2 * batch * n * k * m, batch * n * m),
        lambda: torch.addbmm(integers(n, m), a, b): (2 * batch * n * k * m, n * m),
        lambda: torch.addmv(integers(n), a[0], v): (2 * n * k, n),
        lambda: torch.nn.functional.linear(a, integers(m, k), integers(m)): (
            2 * batch * n * k * m,
            batch * n * m,
        ),
    }
    for call, (products, additions) in calls.items():
        _, work = counted(call, backward=False)
        assert (work.contraction.forward, work.forward) == (products, products + additions)


@few
@given(sizes=st.tuples(small, small, small, small))
def test_a_bilinear_layer_is_two_products_one_after_the_other(sizes: tuple[int, int, int, int]) -> None:
    """First with one input, then with the other, as its loops execute."""
    import torch

    n, c, d, o = sizes
    x, y, weight = integers(n, c), integers(n, d), integers(o, c, d)
    letters = {"n": n, "i": c, "j": d, "o": o}
    first, second = contraction("ni,oij->noj", letters), contraction("noj,nj->no", letters)
    between, flop = first.forward(oracle.values(x), oracle.values(weight))
    values, more = second.forward(between, oracle.values(y))

    out, work = counted(lambda: torch.nn.functional.bilinear(x, y, weight), backward=False)

    assert oracle.values(out) == values
    assert work.contraction.forward == flop + more


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")  # calls itself beta
@few
@given(sizes=st.tuples(small, small, small), stored=st.integers(0, 9))
def test_a_sparse_operand_multiplies_its_stored_elements(sizes: tuple[int, int, int], stored: int) -> None:
    """COO and CSR, forward and the gradient of the dense side; the loops skip what is not stored."""
    import torch

    n, k, m = sizes
    places = random.sample([(i, j) for i in range(n) for j in range(k)], min(stored, n * k))
    dense = torch.zeros(n, k, dtype=torch.float64)
    for place in places:
        dense[place] = 2.0
    b = integers(k, m).requires_grad_()
    executed = 2 * sum(1 for _ in places for _ in range(m))
    coo = dense.to_sparse().coalesce()

    _, by_coo = counted(lambda: torch.sparse.mm(coo, b))
    _, by_csr = counted(lambda: dense.to_sparse_csr() @ b)

    assert (by_coo.contraction.forward, by_coo.contraction.backward) == (executed, executed)
    assert (by_csr.contraction.forward, by_csr.contraction.backward) == (executed, executed)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_products_of_integers_count_like_floating_ones(dtype: str) -> None:
    """A multiply-add is 2 in any dtype; element-wise integer arithmetic is bookkeeping."""
    import torch

    a, b = (torch.ones(sizes, dtype=getattr(torch, dtype)) for sizes in ((3, 4), (4, 5)))

    _, work = counted(lambda: (a @ b) * 3 + 1, backward=False)

    assert (work.contraction.forward, work.forward) == (2 * 3 * 4 * 5, 2 * 3 * 4 * 5)


def test_a_complex_multiply_add_is_eight() -> None:
    """Four products and four additions, forward and for both gradients."""
    import torch

    a, b = (torch.ones(sizes, dtype=torch.complex64, requires_grad=True) for sizes in ((3, 4), (4, 5)))

    _, work = counted(lambda: a @ b)

    assert (work.contraction.forward, work.contraction.backward) == (8 * 60, 2 * 8 * 60)


def test_complex_elements_cost_their_real_parts() -> None:
    """A sum 2, a product 4 multiplications and 2 additions, a real factor 2, a conjugate 1."""
    import torch

    z = torch.ones(5, dtype=torch.complex64)
    for call, flop in (
        (lambda: z + z, 2),
        (lambda: z * z, 6),
        (lambda: z * 2.5, 2),
        (lambda: z.conj_physical(), 1),
    ):
        assert counted(call, backward=False)[1].forward == 5 * flop


def test_counts_past_two_to_the_63_are_exact() -> None:
    """Three dimensions of 2^22 multiply to 2^66, twice that is the count; no 64-bit number holds it."""
    import torch

    n = 2**22
    a, b = (torch.empty(n, n, device="meta", requires_grad=True) for _ in range(2))

    _, work = counted(lambda: a @ b)
    wide, high = torch.empty(1, 2**40, device="meta"), torch.empty(2**20, 1, device="meta")
    _, sums = counted(lambda: [wide + high for _ in range(16)], backward=False)

    assert work.contraction.forward == 2 * 2**66
    assert work.contraction.backward == 4 * 2**66
    assert sums.forward == 16 * 2**60


def test_a_non_contiguous_operand_changes_nothing() -> None:
    """A linear layer on a transposed view runs other operations, and costs the same."""
    import torch

    layer = torch.nn.Linear(6, 5)
    for x in (torch.ones(4, 3, 6), torch.ones(6, 3, 4).transpose(0, 2), torch.ones(4, 3, 12)[..., ::2]):
        _, work = counted(lambda x=x: layer(x))
        assert (work.contraction.forward, work.forward) == (2 * 12 * 6 * 5, 2 * 12 * 6 * 5 + 12 * 5)
        assert work.contraction.backward == 2 * 12 * 6 * 5
