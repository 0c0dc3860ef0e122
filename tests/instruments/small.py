"""Small nets whose FLOP are worked out in the head, and a count of whatever a function does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from measurements.records import Work

BATCH = 2
WIDTH = 4
PRODUCT = 2 * BATCH * WIDTH * WIDTH
"""FLOP of `ones()` times the weight of `linear()`, and of each of its two gradients: 64."""
WEIGHT = WIDTH * WIDTH
"""Elements of that weight: 16."""


def linear(inputs: int = WIDTH, outputs: int = WIDTH, bias: bool = False) -> nn.Linear:
    """A linear layer."""
    import torch

    return torch.nn.Linear(inputs, outputs, bias=bias)


def ones(*sizes: int, **options: Any) -> Tensor:
    """A tensor of ones, the input of `linear()` where no sizes are given."""
    import torch

    return torch.ones(*(sizes or (BATCH, WIDTH)), **options)


def net(run: Callable[..., Any], **children: Any) -> nn.Module:
    """A module of class Net with those children or parameters, whose forward is run(self, *inputs)."""
    import torch

    class Net(torch.nn.Module):
        def forward(self, *inputs: Any, **named: Any) -> Any:
            return run(self, *inputs, **named)

    model = Net()
    for name, child in children.items():
        setattr(model, name, child)
    return model


def chain(*layers: nn.Module) -> nn.Module:
    """Layers one after another."""
    import torch

    return torch.nn.Sequential(*layers)


def counted(code: Callable[[], object], **options: Any) -> Work:
    """What the code costs."""
    from measurements import counting

    with counting(**options) as work:
        code()
    return work.frozen()


def contractions(work: Work) -> tuple[int, int, int, int]:
    """Contraction FLOP of forward, backward, update, and what was done again."""
    flop = work.contraction
    return flop.forward, flop.backward, flop.update, flop.recomputed


def modules(work: Work, phase: str) -> dict[str, int]:
    """Contraction FLOP of one phase by module, those that have any."""
    flop = {name: getattr(part.contraction, phase) for name, part in work.by_module().items()}
    return {name: count for name, count in flop.items() if count}
