"""A training step keeps float32 unless it is told otherwise.

The study believed that PyTorch turns float32 into half precision by itself, which would cancel counting a
multiply-add as 2. It does not. Under torch.autocast contractions do run in bfloat16: there the same look
finds it.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.theory


def floats(values):
    """The floating-point dtypes among Shapes or tensors, by name."""
    import torch

    return {
        str(value.dtype).removeprefix("torch.")
        for value in values
        if (value.is_floating_point() if isinstance(value, torch.Tensor) else value.is_float)
    }


def dtypes_of(step):
    """What a step that really runs holds in which floating-point dtypes, and its work."""
    from measurements import counting
    from measurements.step import tensors_in

    activations = []
    hooks = [
        module.register_forward_hook(lambda module, inputs, output: activations.extend(tensors_in(output)))
        for module in step.model.modules()
    ]
    with counting() as work:
        step.run()
    for hook in hooks:
        hook.remove()
    contractions = [record for record in work.records if record.contraction]
    gradients = [weight.grad for weight in step.model.parameters()]
    return work.frozen(), {
        "parameters": floats(step.model.parameters()),
        "buffers": floats(step.model.buffers()),
        "activations": floats(activations),
        "gradients": floats(gradients) if None not in gradients else None,
        "optimizer state": floats(x for state in step.optimizer.state.values() for x in tensors_in(state)),
        "what contractions read": floats(shape for record in contractions for shape in record.shapes),
        "what operations write": floats(shape for record in work.records for shape in record.outputs),
    }


@pytest.mark.axes(
    arch=("conv_net", "resnet18", "vgg11", "mobilenet_v2"), batch=(2,), optimizer=("momentum", "adam")
)
def test_everything_in_a_step_is_float32(step, optimizer, record_work):
    """Parameters, what modules return, gradients, optimizer state, operands of contractions, all results."""
    work, dtypes = dtypes_of(step)
    record_work(work)

    buffers = {"float32"} if list(step.model.buffers()) else set()
    assert dtypes.pop("buffers") == buffers
    assert dtypes == {name: {"float32"} for name in dtypes}


@pytest.fixture
def small_step():
    """A step of ConvNet on small images on the CPU: autocast does not know the meta device."""
    import torch

    import models
    from measurements.step import Step, make_optimizer

    model = models.build("conv_net")
    x, targets = torch.ones(2, 3, 32, 32), torch.zeros(2, dtype=torch.long)
    return Step(model, (x,), targets, optimizer=make_optimizer("adam", model.parameters()))


def test_under_autocast_contractions_are_bfloat16_and_the_count_is_the_same(small_step):
    """Weights, their gradients and the optimizer stay float32; a cast is no FLOP."""
    import torch

    plain, without = dtypes_of(small_step)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, within = dtypes_of(small_step)

    assert without["what contractions read"] == {"float32"}
    assert within["what contractions read"] == {"bfloat16"}
    assert "bfloat16" in within["activations"]
    kept = ("parameters", "gradients", "optimizer state")
    assert [within[name] for name in kept] == [{"float32"}] * 3
    assert cast.contraction == plain.contraction
