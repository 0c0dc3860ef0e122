"""Every ATen operator has a cost or a reason why not; formulas read arguments that operators have."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from measurements.formulas import FORMULAS, FREE
from measurements.formulas.cost import CONTEXT, Binding

if TYPE_CHECKING:
    from torch._ops import OpOverload

TESTS_OF_PYTORCH = "exists for PyTorch's own tests"
KNOWN_UNKNOWN = {  # operators without a row, each with the reason; a call raises UnknownOp
    "_cslt_sparse_mm_search": "runs a product many times to find its fastest kernel",
    "_foobar": TESTS_OF_PYTORCH,
    "_lstm_mps": "an Apple device's kernel, whose reserved space decides what it computes",
    "_sparse_semi_structured_tile": "compares magnitudes by a pattern that its algorithm chooses",
    "_sparse_sparse_matmul": "where two sparse operands overlap is in the data",
    "_test_autograd_multiple_dispatch": TESTS_OF_PYTORCH,
    "_test_autograd_multiple_dispatch_view_copy": TESTS_OF_PYTORCH,
    "_test_functorch_fallback": TESTS_OF_PYTORCH,
    "_test_optional_filled_intlist": TESTS_OF_PYTORCH,
    "_test_optional_floatlist": TESTS_OF_PYTORCH,
    "_test_optional_intlist": TESTS_OF_PYTORCH,
    "_test_parallel_materialize": TESTS_OF_PYTORCH,
    "_test_warn_in_autograd": TESTS_OF_PYTORCH,
    "glu_backward_jvp": "forward mode over backward of one activation: PyTorch documents no formula",
    "lstm_mps_backward": "an Apple device's kernel, whose reserved space decides what it computes",
}

SPELLINGS = {  # a formula's letter -> what schemas call the argument at its place
    "x": "self input X A LU grad grad_output sparse mat1 query data inp",
    "y": "mat2 vec other dense tensor",
    "bias": "self",
    "other": "scalar scalars B",
    "b": "B",
    "parameters": "self",
    "gradients": "self",
    "grad": "grad_output grad_out",
    "grad_out": "grad_out_",
    "grad_output": "self",
    "x1": "self",
    "sorted_or_x": "sorted_sequence self",
    "elements": "element",
    "test_elements": "test_element",
}
SPELLINGS["other"] += " self boundaries"  # searchsorted, bucketize

LACKING = {  # a parameter with a default -> why some operators of its formula lack the argument
    "transposed": "a kernel for one direction only",
    "bias": "a kernel that adds none",
    "attn_bias": "called attn_mask by some back ends",
    "attn_mask": "called attn_bias by some back ends",
    "alpha": "lists with a scalar take no factor",
    "value": "a list of factors is called scalars, which the counter renames",
    "p": "called ord in lists of tensors",
    "ord": "called p in the older spelling",
    "proj_size": "kernels without projection",
    "dim": "over the last axis, or over all",
    "output_mask": "out= computes all gradients",
    "other": "a product with the reflectors alone",
    "running_mean": "no running statistics",
    "training": "the operator is for one mode",
    "src": "a scalar is called value",
    "reduce": "an overload that only writes",
}


def overloads(namespace: str, name: str) -> Iterator[OpOverload]:
    """What the dispatcher knows of an operator (TorchScript's own, on lists and numbers, are left out)."""
    import torch

    packet = getattr(getattr(torch.ops, namespace), name, None)
    for overload in () if packet is None else packet.overloads():
        op = getattr(packet, overload)
        try:
            torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
        except RuntimeError:
            continue
        yield op


def is_composite(op: OpOverload) -> bool:
    """Whether it is defined by others alone, which are what arrives at the counter."""
    import torch

    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


@pytest.fixture(scope="module")
def aten() -> dict[str, list[Any]]:
    """Operators of ATen by name that have an overload of their own, not composed of others."""
    import torch

    schemas = torch._C._jit_get_all_schemas()
    names = {schema.name.partition("::")[2] for schema in schemas if schema.name.startswith("aten::")}
    table = {name: [op for op in overloads("aten", name) if not is_composite(op)] for name in sorted(names)}
    return {name: ops for name, ops in table.items() if ops}


def bound() -> Iterator[tuple[str, Any, OpOverload]]:
    """Every row with each overload that it serves: functional, in-place, out= and on lists."""
    import torchvision  # noqa: F401 - registers its operators

    for key, formula in FORMULAS.items():
        namespace, _, name = key.partition(".")
        names = [name, f"{name}_"]
        names += [f"_foreach_{n}" for n in names] if namespace == "aten" else []
        for spelling in names:
            for op in overloads(namespace, spelling):
                yield key, formula, op


def test_every_operator_has_a_cost_or_a_reason(aten: dict[str, list[Any]]) -> None:
    """A new version's new operator is named here; so is a reason that nothing needs any more."""
    from measurements.counters.dispatch import plan_for

    unknown = {name for name, ops in aten.items() if any(plan_for(op, {}) is None for op in ops)}

    assert unknown - KNOWN_UNKNOWN.keys() == set(), "operators without a cost: add a row or a reason"
    assert unknown == KNOWN_UNKNOWN.keys() & aten.keys()


def test_a_list_of_tensors_costs_what_its_plain_operator_has_a_row_for(aten: dict[str, list[Any]]) -> None:
    """No _foreach operator is counted by rule unless the plain one is."""
    import torch

    tagged = {name for name, ops in aten.items() if any(torch.Tag.pointwise in op.tags for op in ops)}
    pointwise = {name.removesuffix("_") for name in tagged}
    listed = [name for name in aten if name.startswith("_foreach_")]
    plain = [name.removeprefix("_foreach_").removesuffix("_") for name in listed]
    explained = {key.removeprefix("aten.") for key in FORMULAS} | pointwise
    freed = {key.removeprefix("aten._foreach_") for key in FREE}

    assert len(plain) > 80
    assert set(plain) - explained - freed == set()


def test_a_row_stands_in_one_table_only() -> None:
    """What costs something is not free."""
    from measurements import formulas

    names = [name for table in formulas._TABLES for name in table]

    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert FORMULAS.keys() & FREE.keys() == set()


def test_every_formula_binds_to_the_schema_of_its_operators() -> None:
    """Binding raises nothing, for every overload that a row serves."""
    served = set()
    for key, formula, op in bound():
        schema = [(argument.name, argument.default_value) for argument in op._schema.arguments]
        Binding(formula, key, schema)
        served.add(key)

    assert len(served) > 450


def test_every_parameter_of_a_formula_is_an_argument_of_its_operators() -> None:
    """A misspelt name would silently take its default, or another argument's place."""
    taken: dict[tuple[str, str], set[str]] = {}
    misplaced = []
    for key, formula, op in bound():
        names = [argument.name for argument in op._schema.arguments]
        for place, parameter in enumerate(inspect.signature(formula).parameters.values()):
            name = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL or name in CONTEXT or name in names:
                taken.setdefault((key, name), set()).add("taken")
            elif parameter.default is not parameter.empty:
                taken.setdefault((key, name), set()).add("lacks" if name in LACKING else f"{op} lacks {name}")
            elif names[place] not in SPELLINGS.get(name, "").split():
                misplaced.append(f"{op}: {name} takes the place of {names[place]}")
    lost = [why for whys in taken.values() for why in whys if "taken" not in whys and why != "lacks"]

    assert misplaced == []
    assert lost == []


def test_every_default_name_that_operators_lack_is_met_by_another() -> None:
    """Each name of LACKING is an argument somewhere, so that the list holds no misspelling either."""
    names = {argument.name for _, _, op in bound() for argument in op._schema.arguments}

    assert LACKING.keys() - names == set()
