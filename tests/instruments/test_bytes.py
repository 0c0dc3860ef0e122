"""Bytes that an operation reads and writes, against what is worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

# x, y: 6 elements of 4 bytes, z: 6 of 2 bytes, i: 2 of 8 bytes.
TABLE = {
    "x + y": (48, 24),
    "x.add_(y)": (48, 24),  # changed in place: read, and written once
    "x.add_(1)": (24, 24),
    "torch.add(x, y, out=o)": (48, 24),  # what is in `out` is not read
    "x.mul(2.0)": (24, 24),
    "x.fill_(1.0)": (0, 24),
    "x.zero_()": (0, 24),
    "x.copy_(z)": (12, 24),
    "x.clone()": (24, 24),
    "x.view(6)": (0, 0),
    "x.half()": (24, 12),
    "x.uniform_()": (0, 24),
    "x.bernoulli_(0.5)": (0, 24),
    "x.bernoulli_(y)": (24, 24),
    "torch.bernoulli(y)": (24, 24),
    "torch.empty(6)": (0, 0),  # nobody writes to it
    "torch.empty_like(x)": (0, 0),
    "x.new_empty(6)": (0, 0),
    "torch.zeros(6)": (0, 24),
    "torch.ones_like(x)": (0, 24),
    "torch.rand_like(x)": (0, 24),
    "x.new_zeros(6)": (0, 24),
    "x[i]": (24 + 16, 24),  # both rows, and their places
    "torch.nn.functional.embedding(i[:1], x)": (12 + 8, 12),  # one row of two
    "x.cumsum(0)": (24, 24),
    "x.masked_fill_(m, 0.0)": (24 + 6, 24),
    "torch._foreach_add([x, y], 1.0)": (48, 48),
    "torch._foreach_add_([x, y], 1.0)": (48, 48),
    "torch._foreach_add_([x, y], [y, x])": (96, 48),
    "torch._foreach_zero_([x, y])": (0, 48),
    "torch._foreach_copy_([x, y], [z, z])": (24, 48),
    "torch._foreach_lerp_([x, y], [y, x], 0.5)": (96, 48),
    "torch.max(x, dim=1)": (24, 2 * 4 + 2 * 8),
    "torch.matmul(x, y.t())": (48, 16),
}


def tensors(device="cpu"):
    """The tensors of the table, by their names."""
    import torch

    x, y, o = (torch.zeros(2, 3, device=device) for _ in range(3))
    z = torch.zeros(2, 3, dtype=torch.half, device=device)
    i, m = torch.tensor([0, 1], device=device), torch.zeros(2, 3, dtype=torch.bool, device=device)
    return {"x": x, "y": y, "o": o, "z": z, "i": i, "m": m, "torch": torch}


def moved(call):
    """Bytes that a call reads and writes."""
    from measurements import counting

    with counting() as work:
        call()
    return sum(record.read for record in work.records), sum(record.written for record in work.records)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("text", "expected"), TABLE.items(), ids=TABLE)
def test_a_call_moves_what_it_needs_and_what_it_makes(text, expected, device):
    """Each tensor once; what only gives a size is not read, what is only set aside is not written."""
    names = tensors(device)

    assert moved(lambda: eval(text, names)) == expected


SIZES = st.lists(st.integers(0, 5), max_size=3)


@given(sizes=SIZES, name=st.sampled_from(["add", "mul", "sub", "div", "maximum"]))
def test_where_the_result_goes_changes_nothing(sizes, name):
    """A new tensor, one given for it, the first argument, a list: as many bytes."""
    import torch

    x, y, out = (torch.ones(sizes) for _ in range(3))
    plain = moved(lambda: getattr(torch, name)(x, y))

    assert plain == (2 * x.nbytes, x.nbytes)
    assert moved(lambda: getattr(torch, name)(x, y, out=out)) == plain
    if name != "maximum":
        assert moved(lambda: getattr(x, f"{name}_")(y)) == plain
    assert moved(lambda: getattr(torch, f"_foreach_{name}")([x], [y])) == plain
    assert moved(lambda: getattr(torch, f"_foreach_{name}_")([x], [y])) == plain


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"momentum": 0.9}], ids=str)
@given(sizes=st.lists(SIZES, min_size=1, max_size=3))
def test_a_list_moves_what_its_tensors_move(sizes, options):
    """A step of SGD over lists: as many bytes as over single tensors, from the second step on."""
    import torch

    found = {}
    for foreach in (False, True):
        parameters = [torch.ones(size, requires_grad=True) for size in sizes]
        optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=foreach, **options)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        found[foreach] = moved(optimizer.step)

    assert found[True] == found[False]


@pytest.mark.parametrize(
    ("optimizer", "state"), [("SGD", 1), ("Adam", 2), ("AdamW", 2), ("Adagrad", 1)], ids=str
)
def test_a_fused_update_reads_all_and_writes_no_gradient(optimizer, state):
    """Parameters and the optimizer's state are read and written, gradients read; step counters are small."""
    import torch

    from measurements import counting

    parameter = torch.ones(1000, requires_grad=True)
    parameter.grad = torch.ones(1000)
    more = {"momentum": 0.9} if optimizer == "SGD" else {}
    made = getattr(torch.optim, optimizer)([parameter], lr=0.1, fused=True, **more)
    made.step()
    with counting() as work:
        made.step()

    (fused,) = [record for record in work.records if "_fused_" in record.op]
    size = parameter.nbytes
    assert fused.read in ((2 + state) * size, (2 + state) * size + 4)
    assert fused.written in ((1 + state) * size, (1 + state) * size + 4)
