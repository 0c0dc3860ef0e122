"""Precision of a training step: which number formats its contractions run in.

fp32   float32, TF32 off
tf32   float32 in memory, products on TensorFloat-32 units (10 bits of mantissa); NVIDIA Ampere and later
bf16   under autocast to bfloat16
fp16   under autocast to float16, the loss scaled
Source: https://docs.pytorch.org/docs/stable/amp.html, https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from measurements.step import Step

AUTOCAST = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def in_precision(step: Step, dtype: str, device: str) -> Step:
    """The same step in that dtype, one of AUTOCAST, on a device of that type."""
    scaler = torch.amp.GradScaler(device) if dtype == "fp16" else None
    return replace(step, autocast=AUTOCAST[dtype], scaler=scaler)


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """A block in which float32 products and convolutions on CUDA may, or may not, use TF32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
