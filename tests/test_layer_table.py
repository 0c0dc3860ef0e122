"""The network with two hidden layers costs, row by row, what the study's table says; its loss row is a guess.

The table counts the loss as outputs x batch, an order of magnitude. Mean cross entropy, operation by
operation, is about five times that; ours stands beside it, and both are saved.
"""

from __future__ import annotations

import pytest

import models
from measurements import theory
from measurements.records import OpRecord, Phase, Work

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B1"), pytest.mark.axes(counter=("dispatch",))]

mlp = pytest.mark.parametrize("arch", ["mlp"])
sgd = pytest.mark.parametrize("optimizer", ["sgd"])

I, H1, H2, O, N = 24, 16, 12, 10, 8  # noqa: E741 - inputs, hidden layers, outputs, batch: all different

# Module and result of what runs the two cells of each row: (forward, backward). A weight gradient has the
# sizes of the weight, an input gradient those of the input; "" is outside of all modules: the loss.
CELLS = (
    (("MLP.fc1", (N, H1)), ("MLP.fc1", (H1, I))),
    (("MLP", (N, H1)), ("MLP", (N, H1))),
    (None, ("MLP.fc2", (N, H1))),
    (("MLP.fc2", (N, H2)), ("MLP.fc2", (H2, H1))),
    (("MLP", (N, H2)), ("MLP", (N, H2))),
    (None, ("MLP.fc3", (N, H2))),
    (("MLP.fc3", (N, O)), ("MLP.fc3", (O, H2))),
    (("MLP", (N, O)), ("MLP", (N, O))),
    (("", None), ("", None)),
    (None, None),
)


@pytest.fixture
def input_shape(arch):
    """The sizes that the table is checked at, whatever --input-shape says."""
    return models.input_shape(arch)


@pytest.fixture
def classes():
    """Outputs of the table, whatever --classes says."""
    return O


def cell(work, phase, place):
    """What ran for one cell of the table."""
    if place is None:
        return ()
    module, sizes = place
    return tuple(
        record
        for record in work.by_phase()[phase].records
        if record.module == module and (sizes is None or sizes in record.outputs)
    )


def row_of(work, place):
    """What ran for one row of the table; the row without a place is the update."""
    if place == (None, None):
        return work.by_phase()[Phase.UPDATE]
    phases = zip((Phase.FORWARD, Phase.BACKWARD), place, strict=True)
    return Work(tuple(record for phase, spot in phases for record in cell(work, phase, spot)))


def as_the_study(row):
    """The study's row as Work; it writes the update beneath backward."""
    phase = Phase.UPDATE if row.name == "Update" else Phase.BACKWARD
    return Work(
        (
            OpRecord(Phase.FORWARD, row.name, flop=row.forward or 0),
            OpRecord(phase, row.name, flop=row.backward or 0),
        )
    )


@mlp
@sgd
@pytest.mark.parametrize("batch", [pytest.param(N, id=f"b{N:03}")])
def test_every_row_is_what_runs_but_the_loss(step, optimizer, counter, record_work):
    """Forward and backward of each row, as integers; together the rows are all that ran."""
    work = counter(step)
    table = theory.study_table(I, H1, H2, O, N)
    rows = [row_of(work, place) for place in CELLS]
    for number, (row, ran) in enumerate(zip(table, rows, strict=True)):
        record_work(ran, row=f"{number} {row.name}")
        record_work(as_the_study(row), row=f"{number} {row.name}", counter="study_b")

    for row, ran in zip(table, rows, strict=True):
        assert ran.forward == (row.exact_forward or 0), row.name
        assert ran.backward + ran.update == (row.exact_backward or 0), row.name
    assert sum(ran.total for ran in rows) == work.total
    differing = [ran.total != as_the_study(row).total for row, ran in zip(table, rows, strict=True)]
    assert differing == [row.name == "Loss" for row in table]


@mlp
@sgd
@pytest.mark.parametrize("batch", [pytest.param(N, id=f"b{N:03}")])
def test_the_loss_is_five_times_its_row_and_next_to_nothing(step, optimizer, counter):
    """By hand: log-softmax 5·O - 1 and 4·O - 1 a sample, negation and mean 2, the mean's gradient 1."""
    work = counter(step)
    loss = row_of(work, (("", None), ("", None)))

    assert loss.forward == (5 * O - 1 + 2) * N
    assert loss.backward == (4 * O - 1 + 1) * N
    assert 4 * O * N <= loss.backward < loss.forward < 6 * O * N
    assert loss.total < (work.forward + work.backward) / 30


@mlp
@sgd
@pytest.mark.axes(batch=(1, 8, 64))
def test_all_work_is_the_closed_form_by_phase_and_module(step, optimizer, batch, counter, record_work):
    """Every element-wise operation too, where it ran."""
    work = record_work(counter(step))
    terms = theory.mlp(I, H1, H2, O, optimizer)

    for phase in Phase:
        modules = work.by_phase()[phase].by_module()
        counted = {name: part.total for name, part in modules.items() if part.total}
        expected = {}
        for term in terms:
            if term.phase is phase:
                expected[term.module] = expected.get(term.module, 0) + term.at(batch)
        assert counted == expected, phase
    assert work.contraction == theory.contraction_at(terms, batch)
