"""What an operation reads and writes: each tensor that it needs once, each that it makes or changes once.

The operator's schema says which arguments it writes. Which of these it need not read, and which it only asks
for sizes, stands in the lists below. A tensor counts with all its elements, also an expanded one, and one of
which an operation changes a few (index_add_).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from measurements.counters.dispatch.plans import base_name
from measurements.counters.dispatch.tensors import bytes_of
from measurements.formulas import FREE, Free

GATHERS = frozenset(
    f"aten.{name}"
    for name in ("embedding", "index_select", "gather", "index", "_unsafe_index", "take", "select_copy")
)
"""Operations that read of their first argument only what they write."""

OVERWRITES = frozenset(f"aten.{name}" for name in ("fill", "zero", "copy", "_foreach_zero", "_foreach_copy"))
"""Operations whose first argument gives sizes, and room for the result, but no values."""

BY_VALUES = frozenset(
    f"aten.{name}"
    for name in (
        *("bernoulli", "binomial", "multinomial", "normal", "poisson"),
        *("_sample_dirichlet", "_standard_gamma", "sparse_coo_tensor"),
    )
)
"""Factories whose first argument holds what they go by: probabilities, indices."""

UNTOUCHED = frozenset(
    f"aten.{name}"
    for name in (
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"),
        *("new_empty", "new_empty_strided", "_empty_affine_quantized", "_empty_per_channel_affine_quantized"),
    )
)
"""Factories that write nothing into what they make."""


def moved(
    func: Any, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], out: Any
) -> tuple[int, int]:
    """Bytes that a call reads and bytes that it writes.

    name: "aten.add_". An operator without a schema (one that takes functions) reads all that it is given and
    writes all that it returns.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return bytes_of([*arguments, *keywords.values()]), bytes_of(out)
    base = base_name(name)
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    changed = {argument.name for argument in schema.arguments if argument.is_write} & given.keys()
    if "grads" in changed and given.get("grad_scale") is None:
        changed.remove("grads")  # a fused optimizer writes them back only where it unscales them
    unread = {argument.name for argument in schema.arguments if argument.is_write and argument.is_out}
    if _needs_no_values(base, inplace=name != base) and names:
        unread.add(names[0])
    read = bytes_of([value for key, value in given.items() if key not in unread])
    written = bytes_of([given[key] for key in changed])
    if base not in UNTOUCHED:
        written += bytes_of(_made(schema, out))
    if base in GATHERS and arguments:
        read += written - bytes_of(arguments[0])
    return read, written


def _needs_no_values(base: str, *, inplace: bool) -> bool:
    """Whether the first argument only gives sizes and room."""
    factory = FREE.get(base) is Free.FACTORY and (inplace or base not in BY_VALUES)
    return factory or base in OVERWRITES


def _made(schema: Any, out: Any) -> list[Any]:
    """What a call returns besides its own arguments."""
    outs = out if isinstance(out, tuple) and len(schema.returns) > 1 else (out,)
    return [
        value
        for value, place in zip(outs, schema.returns, strict=False)
        if place.alias_info is None or not place.alias_info.is_write
    ]
