"""What counters were reported to count wrongly is counted right, case by case."""

from __future__ import annotations

import pickle

import pytest

from measurements.records import Phase
from tests.cases import CASES, Case

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # compilers, quantization and nested tensors warn by the dozen
]

TRAINED = [
    name
    for name, case in CASES.items()
    if case.backward and not case.model.startswith("function(") and not case.model.endswith("grad_(False)")
]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """A case that can run here."""
    case = CASES[request.param]
    if reason := case.why_not():
        pytest.skip(reason)
    return case


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_a_reported_fault_is_counted_right(case: Case) -> None:
    """Every phase, and what runs again, equal the arithmetic of the row."""
    with case.ready():
        work = case.count()

    flop = work.all_work if case.all_work else work.contraction
    assert (flop.forward, flop.backward) == (case.forward, case.backward or 0), case.source
    assert work.contraction.update == (case.update or 0)
    assert case.recomputed in (None, work.contraction.recomputed)


@pytest.mark.parametrize("case", TRAINED, indirect=True)
def test_a_step_counts_as_any_code_does(case: Case) -> None:
    """`count_step` takes modules with something to train; where it can, it says the same."""
    from measurements import count_step

    with case.ready():
        step = case.step()
        work = count_step(step.model, step.inputs).contraction

    assert (work.forward, work.backward) == (case.forward, case.backward)


@pytest.mark.parametrize("case", ["spectral_norm", "attention_math"], indirect=True)
def test_a_step_goes_to_another_process_as_its_text(case: Case) -> None:
    """A parametrized module could not go there otherwise."""
    with case.ready():
        step = pickle.loads(pickle.dumps(case.step()))

        loss = step.forward()

    assert loss.requires_grad
    assert type(step.model).__name__ == type(case.step().model).__name__


def test_a_step_lies_where_it_is_asked_to() -> None:
    """Model and inputs, for counters that need not compute."""
    step = CASES["names"].step(device="meta")

    assert {x.device.type for x in (*step.inputs, *step.model.parameters())} == {"meta"}


def test_every_case_has_a_name_a_kind_and_a_source() -> None:
    """Names are unique over all tables, fit into an id, and sources are public."""
    from tests import cases

    tables = [value for value in vars(cases).values() if isinstance(getattr(value, "CASES", None), tuple)]
    rows = [case for table in tables for case in table.CASES]

    assert len(rows) == len(CASES)
    assert all(name.replace("_", "").isalnum() and name.islower() for name in CASES)
    assert len({case.kind for case in rows}) >= 25
    assert all(case.source.startswith("https://") for case in rows)


def test_an_optimizer_that_only_scales_and_adds_has_no_contraction() -> None:
    """AdamW on lists; its element-wise work is the update's: 14 for each of 6 x 8 weights."""
    records = CASES["adamw"].count().records

    assert sum(record.flop for record in records if record.phase == Phase.UPDATE) == 14 * 6 * 8
    assert sum(record.contraction for record in records) == 0
