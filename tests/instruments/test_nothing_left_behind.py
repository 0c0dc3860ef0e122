"""A count leaves nothing behind, also where it fails: no hook, mode, function of ours or changed weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.left_behind import (
    changed,
    count,
    everything,
    functions_of_torch,
    left_behind,
    of_process,
    trained,
    versions_aside,
)
from tests.instruments.small import linear, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn


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
