"""An update costs the same for each parameter, be it run tensor by tensor, in lists or fused.

On small CPU tensors, since fused kernels refuse meta. Costs are those of the steady state.
"""

from __future__ import annotations

import inspect
import math

import pytest

from measurements import theory

pytestmark = [pytest.mark.theory, pytest.mark.experiment("B9")]

SHAPES = ((4, 6), (7,), (), (3, 1, 5), (1,))  # a matrix, an odd length, no axis, three, a single element
PARAMETERS = 24 + 7 + 1 + 15 + 1

# Where an implementation is not that of theory.UPDATES: FLOP (of each parameter, of each tensor).
# Source: the optimizers' files in torch/optim, torch 2.14.1 and 2.7.1.
OTHERWISE = {
    # The product of the momenta μ is kept as a tensor of one element for each parameter tensor: 1 mul.
    ("nadam", "single"): (16, 1),
    ("nadam", "foreach"): (16, 1),
    # Moments 7 as in Adam. Then tensor by tensor m/c1, · lr, root, + ε, reciprocal, · c2, two products and an
    # add with alpha: 10. Lists fold lr, c1, c2 and the rectification into scalars: root, + ε, / s,
    # reciprocal, + s', and w + m·(…), an addcmul with factor 1 of 2: 7.
    ("radam", "foreach"): (14, 0),
    # Tensor by tensor w·(1 - λη) and an add with alpha, and the average is a copy while its weight μ is 1.
    # Lists know no such case: g + λ·w 2, w - η·(…) 3, w - average 1, average + μ·(…) 2; and the rate lr / (1
    # + λ·lr·t)^α is worked out for each tensor: mul, power, reciprocal, mul (the 1 + counts as a step).
    ("asgd", "foreach"): (8, 4),
}


def weights_of(shapes):
    """Parameters with a gradient."""
    import torch

    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    return weights


def class_of(name):
    """The class in torch.optim, or a skip where this torch has none."""
    import torch

    from measurements.step import OPTIMIZERS

    kind = OPTIMIZERS[name][0]
    if not hasattr(torch.optim, kind):
        pytest.skip(f"needs torch.optim.{kind}; torch {torch.__version__} has none")
    return getattr(torch.optim, kind)


def steady(optimizer):
    """Work of one update in the steady state."""
    from measurements import counting
    from measurements.step import steps_to_steady

    for _ in range(steps_to_steady(optimizer)):
        optimizer.step()
    with counting() as work:
        optimizer.step()
    return work.frozen()


@pytest.mark.axes(optimizer=tuple(theory.UPDATE_COST))
@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_an_update_costs_the_same_in_every_implementation(optimizer, implementation, record_work):
    """The theory's FLOP per parameter, times the parameters; the three that run otherwise are named above."""
    import torch

    from measurements.step import make_optimizer

    kind = class_of(optimizer)
    if implementation != "single" and implementation not in inspect.signature(kind).parameters:
        pytest.skip(f"needs {implementation} {kind.__name__}; torch {torch.__version__} has none")
    work = record_work(steady(make_optimizer(optimizer, weights_of(SHAPES), implementation)))

    each, more = OTHERWISE.get((optimizer, implementation), (theory.UPDATE_COST[optimizer], 0))
    assert work.update == each * PARAMETERS + more * len(SHAPES)
    assert (work.forward, work.backward, work.contraction.total) == (0, 0, 0)


@pytest.mark.parametrize(
    ("optimizer", "costs"),
    [("sgd", (2, 2, 2)), ("momentum", (2, 4, 4)), ("nesterov", (4, 6, 6)), ("adam", (13, 13, 13))],
    ids=["sgd", "momentum", "nesterov", "adam"],
)
@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_momentum_copies_in_its_first_step_and_is_steady_from_its_second(optimizer, implementation, costs):
    """The first buffer is the gradient: no product, no sum. Others are steady at once."""
    from measurements import counting
    from measurements.step import make_optimizer, steps_to_steady

    instance = make_optimizer(optimizer, weights_of(SHAPES), implementation)
    steps = []
    for _ in costs:
        with counting() as work:
            instance.step()
        steps.append(work.update)

    assert steps == [cost * PARAMETERS for cost in costs]
    assert steps_to_steady(instance) == sum(cost != costs[-1] for cost in costs)


def test_muon_multiplies_matrices(record_work):
    """By the shorter side m and the longer n 5·(4·m²·n + 2·m³), wide, tall, square and thin; the rest too."""
    from measurements.step import make_optimizer

    class_of("muon")  # skips where there is none
    shapes = ((16, 32), (32, 16), (5, 5), (1, 7))
    work = record_work(steady(make_optimizer("muon", weights_of(shapes))), optimizer="muon")

    by_hand = [5 * (4 * 256 * 32 + 2 * 4096)] * 2 + [5 * (4 * 125 + 2 * 125), 5 * (4 * 7 + 2)]
    assert work.contraction.update == sum(by_hand)
    assert by_hand == [theory.muon_contraction(*shape) for shape in shapes]
    assert work.update == sum(theory.muon_flop(*shape) for shape in shapes)
    assert work.update > 40 * sum(math.prod(shape) for shape in shapes)  # no cost per parameter would say so
