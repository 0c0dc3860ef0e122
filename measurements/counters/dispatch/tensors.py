"""Tensors as keys of a lookup, as Shapes, and as bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from measurements.records import Shape

_PLAIN = frozenset(
    (
        int,
        float,
        bool,
        str,
        type(None),
        complex,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
    )
)
LISTS = frozenset((tuple, list))
_EQUAL_TO_INTEGERS = frozenset(
    (float, complex, bool)
)  # 2.0 == 2, but it makes another dtype of an integer tensor
_STRIDED = torch.strided


def key_of(values: Any) -> tuple[Any, ...]:
    """Hashable values that say of each tensor what a formula or its bytes may depend on.

    What becomes of sparse tensors depends on where they are zero, of nested ones on every length, and packed
    weights show nothing of their own: their key is like no other.
    """
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter or isinstance(value, Tensor):
            try:
                key += (value.shape, value.dtype)
            except RuntimeError:  # a nested tensor has no sizes of its own
                key += (NESTED, value.dtype, object())
            if value.layout is not _STRIDED:
                key.append(object())
        elif kind in _PLAIN:
            key.append(value)
            if kind in _EQUAL_TO_INTEGERS:
                key.append(kind)
        elif kind in LISTS:
            key.append(tuple(value) if value and type(value[0]) is int else key_of(value))
        else:
            key.append(object() if hasattr(value, "unpack") else kind)
    return tuple(key)


NESTED = "nested"
"""The layout of a nested tensor (of the older kind, torch.strided), whose rows stand one below the other."""


def sizes_of(value: Tensor) -> tuple[int, ...]:
    """Sizes; a nested tensor has none of its own: all its rows where they are equally long."""
    if not value.is_nested:
        return value.shape
    last = {int(size[-1]) for size in value._nested_tensor_size()} if value.dim() > 1 else set()
    return (
        (value.numel() // length, length) if len(last) == 1 and (length := last.pop()) else (value.numel(),)
    )


def stored(value: Tensor) -> int:
    """Elements that a sparse tensor stores."""
    if value.layout is torch.sparse_coo:
        return value._values().numel()
    if value.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return value.values().numel()
    return value.numel()


@cache
def _name(thing: torch.dtype | torch.layout) -> str:
    return str(thing).removeprefix("torch.")


def plain(value: Any) -> object:
    """The value with every tensor as its Shape."""
    if isinstance(value, Tensor):
        layout = NESTED if value.is_nested else _name(value.layout)
        return Shape(map(int, sizes_of(value)), _name(value.dtype), layout, stored(value))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if hasattr(value, "unpack"):  # a packed weight of a quantized layer
        return tuple(plain(item) for item in value.unpack() if isinstance(item, Tensor))
    return value if type(value) in _PLAIN else type(value).__name__  # a record holds no live object


def samples_of(values: Any) -> list[Any]:
    """What `plain` says of the values, for each sample of the nested tensors among them, as a batch of one.

    Everything else is the same for all. Without a nested tensor there is one sample.
    """
    count = next((x._nested_tensor_size().size(0) for x in _tensors_in(values) if x.is_nested), 1)
    return [_sample(values, place) for place in range(count)]


def _tensors_in(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors_in(value)


def _sample(value: Any, place: int) -> object:
    if isinstance(value, Tensor) and value.is_nested:
        sizes = value._nested_tensor_size()[place].tolist()
        return Shape((1, *sizes), _name(value.dtype), "strided", math.prod(sizes))
    if isinstance(value, list | tuple):
        return tuple(_sample(item, place) for item in value)
    return plain(value)


def bytes_of(value: Any) -> int:
    """Bytes of the tensors in nested arguments: stored elements times their size."""
    if isinstance(value, Tensor):
        plainly = value.layout is torch.strided and not value.is_nested
        return value.nbytes if plainly else stored(value) * value.element_size()
    if isinstance(value, list | tuple):
        return sum(bytes_of(item) for item in value)
    return 0


def values_of(value: Any) -> Any:
    """The elements of a small integer tensor; a meta tensor has none, and stays what it is."""
    if not isinstance(value, Tensor) or value.device.type == "meta":
        return None
    return tuple(value.tolist())
