"""Every free operator is what its row says: a view, a copy, a factory, a cast or integer bookkeeping."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from measurements.formulas.free import FREE, Free
from tests.instruments import free_calls
from tests.instruments.free_calls import DRIVER, FUNCTIONAL, META, UNCALLABLE, Call

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # some tensors call themselves prototypes
]

OTHER_ROOMS = {  # free operators outside of ATen, each with the reason why no call here shows it
    "prim.device": "TorchScript reads a field of a tensor",
    "prim.layout": "TorchScript reads a field of a tensor",
    "profiler._record_function_enter": "opens a range in a trace",
    "profiler._record_function_enter_new": "opens a range in a trace",
    "profiler._record_function_exit": "closes a range in a trace",
    "fsdp.all_gather_copy_in": "packs the parameters of fully_shard; see test_ways_to_run",
    "fsdp.chunk_cat": "packs the gradients of fully_shard; see test_ways_to_run",
    "fsdp.copy": "unpacks the parameters of fully_shard; see test_ways_to_run",
    "fsdp.split_with_sizes_copy": "unpacks the parameters of fully_shard; see test_ways_to_run",
    "debugprims.load_tensor": "reads a file that a debugger wrote",
    "inductor.resize_storage_bytes_": "frees or makes room",
}


def operator(name: str) -> Any:
    """The operator of that name, with its namespace; None where this torch has none."""
    import torch

    namespace, _, name = name.partition(".")
    room = getattr(torch.ops, namespace)
    return getattr(room, name, getattr(room, f"{name}_", None))


def run(calls: dict[str, Call], why: Free) -> Iterator[tuple[str, Any, Any]]:
    """Name, arguments and result of each call whose operator this torch has, on arguments of its own."""
    import torch

    for name, (overload, arguments, keywords) in calls.items():
        assert FREE.get(f"aten.{name}", FREE.get(f"aten.{name[:-1]}")) is why, name
        packet = operator(f"aten.{name}")
        if packet is not None:
            with torch.no_grad():
                yield name, arguments, getattr(packet, overload)(*arguments, **keywords)


def tensors(value: Any) -> Iterator[Any]:
    """All tensors in nested lists; of a sparse or nested one its parts."""
    import torch

    if isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif not isinstance(value, torch.Tensor):
        return
    elif value.layout is torch.sparse_coo:
        yield from (value._indices(), value._values())
    elif value.layout is torch.sparse_csr:
        yield from (value.crow_indices(), value.col_indices(), value.values())
    elif value.layout is torch.sparse_csc:
        yield from (value.ccol_indices(), value.row_indices(), value.values())
    elif value.is_nested:
        yield value.values()
    else:
        value = value.int_repr() if value.is_quantized else value.clone() if value._is_zerotensor() else value
        yield torch.view_as_real(value) if value.is_complex() else value


def elements(value: Any) -> set[Any]:
    """The elements of all tensors, and the numbers, in nested lists."""
    found = {item for tensor in tensors(value) for item in tensor.flatten().tolist()}
    numbers = [value] if isinstance(value, int | float) else value if isinstance(value, list | tuple) else []
    return found | {number for number in numbers if isinstance(number, int | float)}


def dense(value: Any) -> Any:
    """The same numbers as a plain tensor of float64."""
    import torch

    if value.is_quantized:
        value = value.int_repr()
    return (value if value.layout is torch.strided else value.to_dense()).double()


def addresses(value: Any) -> set[int]:
    """Where the storages of all tensors lie, without touching them."""
    import torch

    return {torch._C._data_address(tensor) for tensor in tensors(value)}


def test_a_view_has_the_bytes_of_its_source() -> None:
    """No element is written: the result lies where an argument lies (lists: all parts)."""
    import torch

    for name, arguments, result in run(free_calls.views(torch), Free.VIEW):
        assert addresses(result) <= addresses(arguments), name


def test_every_element_of_a_copy_is_an_element_of_an_argument() -> None:
    """Bit for bit, or it is a given constant, 0, or (in the parts of a factorization) the 1 of a diagonal."""
    import torch

    made = list(run(free_calls.copies(torch), Free.COPY))
    with torch.inference_mode():
        made += run(free_calls.duals(torch), Free.COPY)
    for name, arguments, result in made:
        constants = {0, 1} if name == "lu_unpack" else {0}
        sparse = {*range(6)} if "sparse" in name or name == "_spdiags" else set()  # places
        packed = {1, 2} if name == "_pack_padded_sequence" else set()  # sequences left at each step
        assert elements(result) or "clear" in name, name
        assert elements(result) <= elements(arguments) | constants | sparse | packed, name


def test_a_cast_gives_equal_values() -> None:
    """In another dtype, layout or quantized by a scale of 1."""
    import torch

    for name, arguments, result in run(free_calls.casts(torch), Free.CAST):
        given = dense(arguments[0])
        moved = given.t() if "transpose" in name else given
        assert torch.equal(dense(result).flatten(), moved.flatten()), name
        assert (result.dtype, result.layout) != (arguments[0].dtype, arguments[0].layout) or "mkldnn" in name


def test_what_a_factory_makes_does_not_depend_on_elements(tmp_path: Path) -> None:
    """Other elements in the arguments, or another state of the generator: the same result."""
    import torch

    path = tmp_path / "sixteen_bytes"
    path.write_bytes(bytes(16))
    for name, arguments, result in run(free_calls.factories(torch, str(path)), Free.FACTORY):
        overload, _, keywords = free_calls.factories(torch, str(path))[name]
        others = [-3 * x if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in arguments]
        torch.manual_seed(1)
        again = getattr(operator(f"aten.{name}"), overload)(*others, **keywords)
        assert elements(result) == elements(again), name
        assert result.shape == again.shape, name


def test_an_empty_tensor_is_made_by_its_sizes_alone() -> None:
    """Its elements are whatever lay there."""
    import torch

    for name, _, result in run(free_calls.uninitialized(torch), Free.FACTORY):
        assert tuple(result.shape) == (() if name == "_make_dep_token" else (3, 4)), name


def test_random_numbers_are_drawn() -> None:
    """The same arguments give other numbers from another state of the generator."""
    import torch

    torch.manual_seed(0)
    first = {name: result for name, _, result in run(free_calls.drawn(torch), Free.FACTORY)}
    for name, _, result in run(free_calls.drawn(torch), Free.FACTORY):
        assert not torch.equal(result, first[name]), name


def test_bookkeeping_gives_integers_flags_or_what_it_was_given() -> None:
    """No new floating-point number comes out of it; a gradient scaler's one number steps by its own rule."""
    import torch

    fields = {"q_scale": {0.5}, "q_per_channel_scales": {0.5, 0.25}}  # of the quantized argument
    for name, arguments, result in run(free_calls.books(torch), Free.INTEGER):
        floating = [x for x in tensors(result) if x.is_floating_point()]
        made = {item for x in floating for item in elements(x)}
        made |= {result} if isinstance(result, float) else set()
        assert made <= elements(arguments) | fields.get(name, set()), name


def test_every_free_row_is_called_or_says_why_it_cannot_be() -> None:
    """The tables of calls, and the lists with reasons, are FREE."""
    import torch

    tables = ("views", "copies", "duals", "casts", "uninitialized", "drawn", "books")
    called = {f"aten.{name}" for table in tables for name in getattr(free_calls, table)(torch)}
    called |= {f"aten.{name}" for name in free_calls.factories(torch, "")}
    called |= {name[:-1] for name in called if name.endswith("_")}
    groups = {name for name in FREE if name.startswith(("c10d.", "_c10d_functional."))}

    assert FREE.keys() - called - groups - UNCALLABLE.keys() - OTHER_ROOMS.keys() == set()
    assert (UNCALLABLE.keys() | OTHER_ROOMS.keys()) & called == set()
    assert (UNCALLABLE.keys() | OTHER_ROOMS.keys()) - FREE.keys() == set()


def test_what_cannot_be_called_has_no_kernel_for_a_cpu() -> None:
    """Nor one that PyTorch composes for every device; collectives ask for a process group."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = [f"Composite{kind}" for kind in ("ExplicitAutogradNonFunctional", "ExplicitAutograd")]
    allowed = {FUNCTIONAL: composite[:1], META: composite[1:], DRIVER: composite[1:]}
    callable_here = []
    for name, why in UNCALLABLE.items():
        packet = operator(name)
        for overload in () if packet is None else packet.overloads():
            op = getattr(packet, overload)
            keys = {"CPU", *composite, "CompositeImplicitAutograd"} - set(allowed.get(why, ()))
            if "out" not in overload and any(has(op.name(), key) for key in keys):
                callable_here.append(str(op))
    groups = [operator(name) for name in FREE if name.startswith(("c10d.", "_c10d_functional."))]

    assert callable_here == []
    assert len(groups) > 20
    for packet in groups:
        for overload in packet.overloads():
            schema = str(getattr(packet, overload)._schema)
            assert "group" in schema or "wait_tensor" in schema
