"""The modules that cases are made of. Torch is imported when the first of them is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tensor(*sizes: int, **options: Any) -> Any:
    """A tensor of ones."""
    import torch

    return torch.empty(*sizes, **options).fill_(1)


def modules() -> dict[str, Any]:
    """Modules by name. Each takes one tensor, but for FunctionOfMany, AsOftenAs and Each."""
    import torch
    from torch import nn

    class Function(nn.Module):
        """A function of one tensor."""

        def __init__(self, body: Callable[..., Any]) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Any) -> Any:
            return self.body(x)

    class FunctionOfMany(Function):
        """A function of several tensors."""

        def forward(self, *inputs: Any) -> Any:
            return self.body(*inputs)

    class Weighted(nn.Module):
        """A function of one tensor and one weight of these sizes."""

        def __init__(self, body: Callable[..., Any], *sizes: int, **options: Any) -> None:
            super().__init__()
            self.body, self.weight = body, nn.Parameter(tensor(*sizes, **options))

        def forward(self, x: Any) -> Any:
            return self.body(x, self.weight)

    class Then(nn.Module):
        """A function of what a model gives."""

        def __init__(self, model: nn.Module, body: Callable[..., Any]) -> None:
            super().__init__()
            self.model, self.body = model, body

        def forward(self, x: Any) -> Any:
            return self.body(self.model(x))

    class Under(nn.Module):
        """A model whose forward runs in a context."""

        def __init__(self, context: Callable[[], Any], model: nn.Module) -> None:
            super().__init__()
            self.context, self.model = context, model

        def forward(self, x: Any) -> Any:
            with self.context():
                return self.model(x)

    class SelfAttention(nn.Module):
        """Multi-head attention of a tensor to itself."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x, need_weights=False)[0]

    class Again(nn.Module):
        """One layer, so many times."""

        def __init__(self, layer: nn.Module, times: int) -> None:
            super().__init__()
            self.layer, self.times = layer, times

        def forward(self, x: Any) -> Any:
            for _ in range(self.times):
                x = self.layer(x)
            return x

    class AsOftenAs(nn.Module):
        """One layer, as many times as the input says."""

        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any, times: Any) -> Any:
            for _ in range(int(times)):
                x = self.layer(x)
            return x

    class Named(nn.Module):
        """Two layers, 6 -> 8 -> 6, below names that a counter could stumble over."""

        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"x-1": nn.ModuleList([nn.Linear(6, 8, bias=False)])})
            self.parts["Global"] = nn.Linear(8, 6, bias=False)

        def forward(self, x: Any) -> Any:
            return self.parts["Global"](torch.tanh(self.parts["x-1"][0](x)))

    class Global(nn.Module):
        """A model whose class has the name that FlopCounterMode gives to the sum of all."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 8, bias=False)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    class Hiding(nn.Module):
        """A model that keeps another where no counter looks for children."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = [Global()]
            self.head = nn.Linear(8, 6, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.hidden[0](x))

    class Direct(nn.Module):
        """A layer whose forward is called past its hooks."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 8, bias=False)

        def forward(self, x: Any) -> Any:
            return self.layer.forward(x)

    class Adapted(nn.Module):
        """A frozen layer, 6 -> 8, with an adapter of rank 2 beside it."""

        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(6, 8, bias=False).requires_grad_(False)
            self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x))

    class Checkpointed(nn.Module):
        """A model whose activations are not kept but computed again in backward."""

        def __init__(self, model: nn.Module, reentrant: bool) -> None:
            super().__init__()
            self.model, self.reentrant = model, reentrant

        def forward(self, x: Any) -> Any:
            from torch.utils.checkpoint import checkpoint

            return checkpoint(self.model, x, use_reentrant=self.reentrant)

    class Each(nn.Module):
        """A model on several batches, for the sum of whose losses it will have one gradient."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *batches: Any) -> Any:
            return [self.model(x) for x in batches]

    class Update(nn.Module):
        """One step of an optimizer over one weight, in the clothes of a model."""

        def __init__(self, optimizer: str, *sizes: int, **settings: Any) -> None:
            super().__init__()
            self.weight = nn.Parameter(tensor(*sizes))
            self.optimizer = getattr(torch.optim, optimizer)([self.weight], **settings)

        def forward(self, x: Any) -> Any:
            self.weight.grad = torch.ones_like(self.weight)
            self.optimizer.step()
            return x

    parts = (Weighted, Then, Under, SelfAttention, Again, AsOftenAs, Named, Hiding, Direct, Adapted)
    return {kind.__name__: kind for kind in (Function, FunctionOfMany, *parts, Checkpointed, Each, Update)}
