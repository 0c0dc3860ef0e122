"""The words that the text of a case is written in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cases.parts import modules, tensor


@functools.cache
def names() -> dict[str, Any]:
    """What the text of a case may use: modules by their class, and what stands here.

    d(sizes) is data, r(sizes) needs a gradient: tensors of ones. function(f) is a module of a function of
    any number of tensors. What replaces torch's functions has to find them replaced: f looks them up late.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    parts = modules()

    def function(body: Callable[..., Any]) -> nn.Module:
        made: nn.Module = parts["Function" if body.__code__.co_argcount == 1 else "FunctionOfMany"](body)
        return made

    def needs_gradient(*sizes: int, **options: Any) -> torch.Tensor:
        made: torch.Tensor = tensor(*sizes, **options).requires_grad_()
        return made

    def math_attention(*operands: Any) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(*operands)

    def flash_attention(q: Any, k: Any, v: Any) -> Any:
        length = q.shape[1]
        return torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, length, length, dropout_p=0.0, is_causal=False, return_debug_mask=False
        )[0]

    def deformable(*sizes: int, **settings: Any) -> nn.Module:
        from torchvision import ops

        return ops.DeformConv2d(*sizes, **settings)

    def resnet18(**settings: Any) -> nn.Module:
        from torchvision import models

        return models.resnet18(**settings)

    def compiled(model: nn.Module, backend: str) -> Any:
        torch._dynamo.reset()
        torch.overrides.get_overridable_functions()  # made once, here: not when a counter has replaced some
        return torch.compile(model, backend=backend)

    def warm(model: nn.Module, *sizes: int) -> nn.Module:
        model(tensor(*sizes)).sum().backward()
        model.zero_grad()
        return model

    @contextmanager
    def one_process() -> Iterator[None]:
        """A process group of this process alone."""
        import torch.distributed as dist

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def quantized(model: nn.Module) -> Any:
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)

    here = (function, math_attention, flash_attention, deformable, resnet18, compiled, warm, quantized)
    return {
        **parts,
        **{word.__name__: word for word in (*here, one_process)},
        "torch": torch,
        "nn": nn,
        "F": F,
        "d": tensor,
        "r": needs_gradient,
        "bfloat16": functools.partial(torch.autocast, "cpu", torch.bfloat16),
        "parallel": nn.parallel.DistributedDataParallel,
    }
