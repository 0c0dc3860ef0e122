"""What is ready before the clock starts, what runs while it does, and what an epoch is made of."""

from __future__ import annotations

import pytest


def small_step(precision="fp32"):
    """A linear classifier of 4 numbers into 3 classes, batch 5."""
    import torch

    from measurements.precision import in_precision
    from measurements.step import Step, make_optimizer

    model = torch.nn.Linear(4, 3)
    optimizer = make_optimizer("sgd", model.parameters())
    step = Step(model, (torch.rand(5, 4),), torch.randint(3, (5,)), optimizer=optimizer)
    return in_precision(step, precision, "cpu")


@pytest.fixture
def spied(monkeypatch):
    """A step, and the names of its phases in the order in which they begin."""
    from measurements.step import Step

    began = []
    for phase in ("forward", "backward", "update"):
        own = getattr(Step, phase)
        monkeypatch.setattr(
            Step, phase, lambda self, *given, own=own, phase=phase: began.append(phase) or own(self, *given)
        )
    return small_step(), began


@pytest.mark.parametrize(
    ("phase", "before", "within"),
    [
        ("step", [], ["forward", "backward", "update"]),
        ("forward", [], ["forward"]),
        ("backward", ["forward"], ["backward"]),
        ("update", ["forward", "backward"], ["update"]),
    ],
)
def test_a_phase_is_timed_by_itself(spied, phase, before, within):
    """What comes before it has run before the clock starts, in each round anew."""
    from measurements.timing import Rounds

    step, began = spied
    rounds = Rounds(step, phase)
    for _ in range(3):
        began.clear()
        rounds.prepare()
        assert began == before
        rounds.work()
        assert began == before + within


def test_rounds_take_other_inputs_in_turn():
    """Random ones of the same sizes; the loss of a model whose weights stay is another one."""
    from measurements.timing import POOL, Rounds

    step = small_step()
    rounds = Rounds(step, "forward")
    seen = []
    for _ in range(POOL + 1):
        rounds.prepare()
        seen.append(step.inputs[0])
    assert len({id(x) for x in seen}) == POOL
    assert seen[0] is seen[POOL]
    assert {tuple(x.shape) for x in seen} == {(5, 4)}


def test_token_ids_stay_token_ids():
    """What is no floating-point number comes in another order, nested inputs too."""
    import torch

    from measurements.step import Step
    from measurements.timing import Rounds

    step = Step(torch.nn.Identity(), {"ids": torch.arange(6), "scale": 2}, None)
    rounds = Rounds(step, "forward")
    for _ in range(3):
        rounds._load()
        assert sorted(step.inputs["ids"].tolist()) == list(range(6))
        assert step.inputs["scale"] == 2
        assert step.targets is None


@pytest.mark.parametrize("loading", [False, True])
def test_loading_is_within_the_round_only_where_it_is_asked_for(loading):
    """An epoch's batch is drawn in `prepare`, else in `work`."""
    import torch

    from measurements.timing import Rounds

    drawn = []

    def epoch():
        for n in range(2):
            drawn.append(n)
            yield torch.rand(5, 4), torch.randint(3, (5,))

    rounds = Rounds(small_step(), "step", epoch(), loading)
    rounds.prepare()
    assert drawn == ([] if loading else [0])
    rounds.work()
    assert drawn == [0]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_in_each_precision_trains(precision):
    """Weights stay float32; in float16 the loss is scaled, and unscaled before the update."""
    import torch

    step = small_step(precision)
    before = step.model.weight.clone()
    step.run()

    assert not torch.equal(before, step.model.weight)
    assert step.model.weight.dtype == step.model.weight.grad.dtype == torch.float32
    assert (step.scaler is not None) == (precision == "fp16")
    if precision == "fp16":
        plain = step.model.weight.grad.abs().max()
        assert plain < 10, "the gradients are still scaled"


def test_what_is_cast_is_cast():
    """Under autocast a product is in the dtype that was asked for."""
    import torch

    step = small_step("bf16")
    seen = []
    step.model.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    step.forward()
    assert seen == [torch.bfloat16]


def test_tf32_is_on_in_the_block_alone():
    """For products and convolutions; afterwards as before."""
    import torch

    from measurements.precision import tf32

    def state():
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = state()
    for on in (True, False):
        with tf32(on):
            assert state() == (on, on)
        assert state() == before


def test_an_epoch_holds_each_image_once():
    """In batches; the last one may be smaller."""
    from measurements import images

    assert images.sizes(10_000, 64) == [64] * 156 + [16]
    assert images.sizes(32, 8) == [8] * 4
    assert images.sizes(3, 8) == [3]
    got = list(images.of_an_epoch("synthetic", "", 5, 2, (3, 8, 6), 4))
    assert [tuple(x.shape) for x, _ in got] == [(2, 3, 8, 6), (2, 3, 8, 6), (1, 3, 8, 6)]
    assert all(int(y.min()) >= 0 and int(y.max()) < 4 for _, y in got)


@pytest.fixture
def cifar(tmp_path):
    """A folder that holds CIFAR-10's test set as torchvision wants it: 20 images, in its own file format."""
    import hashlib
    import pickle

    import numpy as np
    from torchvision.datasets import CIFAR10

    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    files = {
        "test_batch": {"data": np.arange(20 * 3072, dtype=np.uint64).astype(np.uint8).reshape(20, 3072)},
        "batches.meta": {"label_names": [str(n) for n in range(10)]},
    }
    files["test_batch"]["labels"] = [n % 10 for n in range(20)]
    sums = {}
    for name, content in files.items():
        (folder / name).write_bytes(pickle.dumps(content))
        sums[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    return tmp_path, sums


def test_cifar10_comes_through_torchvisions_loader(cifar, monkeypatch):
    """Resized, in the order of the file."""
    from torchvision.datasets import CIFAR10

    from measurements import images

    root, sums = cifar
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "train_list", [])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums["batches.meta"]})

    got = list(images.of_an_epoch("cifar10", str(root), 10, 4, (3, 64, 48), 10))

    assert [tuple(x.shape) for x, _ in got] == [(4, 3, 64, 48), (4, 3, 64, 48), (2, 3, 64, 48)]
    assert [int(y) for _, batch in got for y in batch] == list(range(10))
    assert float(got[0][0].max()) <= 1
    with pytest.raises(images.DataError, match="has 20 test images, not 21; give fewer --epoch-images"):
        images.of_an_epoch("cifar10", str(root), 21, 4, (3, 64, 48), 10)


def test_cifar10_that_cannot_be_had_is_one_sentence(tmp_path, monkeypatch):
    """No network: where to put the data, or what to take instead."""
    from torchvision.datasets import CIFAR10

    from measurements import images

    def offline(self):
        raise OSError("no route to host")

    monkeypatch.setattr(CIFAR10, "download", offline)
    with pytest.raises(
        images.DataError, match=r"cannot be downloaded \(OSError: no route to host\); give --data"
    ):
        images.of_an_epoch("cifar10", str(tmp_path), 10, 4, (3, 64, 64), 10)
    with pytest.raises(images.DataError, match="3 x height x width, not 1x64x64"):
        images.of_an_epoch("cifar10", str(tmp_path), 10, 4, (1, 64, 64), 10)


def test_a_lack_of_memory_is_recognized_under_other_errors():
    """A step wraps what its model raises in a sentence of its own."""
    import torch

    from measurements.step import Step, StepError
    from measurements.timing import out_of_memory

    class Greedy(torch.nn.Module):
        def forward(self, x):
            return torch.empty(1 << 60)

    with pytest.raises(StepError) as error:
        Step(Greedy(), (torch.rand(1),)).forward()
    assert "allocate memory" in out_of_memory(error.value)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory")) == "CUDA out of memory"
    assert out_of_memory(ValueError("shape")) is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_measured_ceiling_only_rises(precision):
    """The best of all rounds: a rate of 2 n³ over the seconds of the side that was fastest."""
    from measurements import ceilings

    found = ceilings.Ceiling("cpu", precision)
    found.measure()
    first = found.peak()
    found.measure(2)
    second = found.peak()

    assert 0 < first.flop_per_s <= second.flop_per_s
    assert 0 < first.bytes_per_s <= second.bytes_per_s
    assert second.source.startswith("best of 3 rounds, matmul of side ")
    assert ceilings.known("cpu", precision, None) == []
    assert [peak.kind for peak in ceilings.known("cpu", precision, 5e12)] == ["--peak"]


def test_a_ceiling_is_the_fastest_side(monkeypatch):
    """By a clock that says 1 second for every product and copy: the largest side."""
    from measurements import ceilings

    monkeypatch.setattr(ceilings, "SLOW", 2.0)
    monkeypatch.setattr(ceilings, "SIDES", {"cpu": (16, 32)})
    monkeypatch.setattr(ceilings, "BYTES", {"cpu": 1024})
    ticks = iter(range(1000))
    monkeypatch.setitem(
        ceilings.CLOCKS, "wall", ceilings.CLOCKS["wall"].__class__(("cpu",), lambda _: lambda: next(ticks))
    )
    found = ceilings.Ceiling("cpu", "fp32")
    found.measure(2)

    assert found.flop_per_s == 2 * 32**3
    assert found.bytes_per_s == 2 * 1024
    assert found.side == 32
