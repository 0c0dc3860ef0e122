"""Models that are built or run in unusual ways: quantized, sharded, of regions, by forward derivatives."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|prototype|quant_min|reduce_range).*")

CELLS = ("LSTMCell", "GRUCell", "RNNCell")


@pytest.mark.parametrize("name", CELLS)
def test_a_quantized_cell_multiplies_as_the_plain_one_does(name: str) -> None:
    """Integer products count like floating ones."""
    import torch

    from measurements import counting

    kind = getattr(torch.nn, name)
    plain = torch.nn.Sequential(kind(8, 4))
    quantized = torch.ao.quantization.quantize_dynamic(plain, {kind}, dtype=torch.qint8)
    with counting() as expected:
        plain(torch.randn(5, 8))
    with counting() as work:
        quantized(torch.randn(5, 8))

    assert work.contraction.forward == expected.contraction.forward > 0


def test_a_quantized_network_multiplies_as_the_plain_one_does() -> None:
    """Convolutions with packed weights; the count of an observed model leaves its observers as they were."""
    import torch
    from torch.ao import quantization

    from measurements import counting

    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    model = torch.nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub()).eval()
    model.qconfig = quantization.default_qconfig
    observed = quantization.prepare(quantization.fuse_modules(model, [["1", "2"]]))
    x = torch.randn(2, 3, 8, 8)
    with counting() as expected:
        observed(x)
    quantized = quantization.convert(observed)
    with counting() as work:
        quantized(x)

    assert work.contraction.forward == expected.contraction.forward > 0


def test_a_buffer_that_forward_resizes_has_its_old_size_again() -> None:
    """As an observer's extremes have; on meta and with numbers."""
    import torch

    from measurements import count_step

    class Observed(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.register_buffer("seen", torch.empty(0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.resize_(4).fill_(1)
            return super().forward(x)

    for device in ("cpu", "meta"):
        model = Observed().to(device)
        before = model.seen
        count_step(model, torch.randn(2, 3, device=device))

        assert model.seen is before
        assert before.shape == (0,)


def test_fake_tensors_are_counted_like_meta_tensors() -> None:
    """Under torch's FakeTensorMode."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from measurements import count_step

    expected = count_step(torch.nn.Linear(4, 3), torch.randn(2, 4), optimizer="adam")
    with FakeTensorMode():
        work = count_step(torch.nn.Linear(4, 3), torch.randn(2, 4), optimizer="adam")

    assert (work.all_work, work.contraction) == (expected.all_work, expected.contraction)


def test_forward_derivatives_have_a_cost() -> None:
    """They are written in torch's primitive operators (prims.add)."""
    import torch

    from measurements import counting

    model, x = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()), torch.randn(5, 8)
    with counting() as work:
        torch.func.jacfwd(model)(x)

    primitive = [name for name in work.by_op() if name.startswith("prims.")]
    assert primitive
    assert work.by_op()["prims.add"].total > 0


def test_control_flow_costs_what_its_branch_costs() -> None:
    """Operators that call functions are seen through where torch hands them to the counter."""
    import torch

    from measurements import counting

    if not hasattr(torch.optim, "Muon"):
        pytest.skip(f"needs a torch that hands such operators to a dispatch mode; has {torch.__version__}")
    x = torch.randn(4, 4)
    operands: Any = (torch.tensor(True), lambda x: (x @ x,), lambda x: (x + x,), (x,))
    with counting() as work:
        torch.ops.higher_order.cond(*operands)
    with counting(formulas={"cond": lambda pred: 7}) as own:
        torch.ops.higher_order.cond(*operands)

    assert work.contraction.forward == 2 * 4**3
    assert own.contraction.forward == 7


def test_nested_rows_count_as_they_are() -> None:
    """Of the older kind, whose sizes torch refuses to tell."""
    import torch

    from measurements import counting

    rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    linear = torch.nn.Linear(8, 4)
    with counting() as work:
        torch.nested.to_padded_tensor(linear(rows) * 2, 0.0).sum().backward()

    assert work.contraction.forward == work.contraction.backward == 2 * 8 * 8 * 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("lengths", [(3, 5), (4, 4), (1, 7), (6,)], ids=str)
def test_attention_over_nested_sequences_counts_each_by_itself(lengths: tuple[int, ...]) -> None:
    """Two heads of 4: 2·2·4·L² for the products of a sequence of length L, twice as much backward."""
    import torch
    from torch.nn import functional

    from measurements import counting

    rows = torch.nested.nested_tensor(
        [torch.randn(length, 8) for length in lengths], layout=torch.jagged, requires_grad=True
    )
    heads = rows.unflatten(-1, [2, 4]).transpose(1, 2)
    with counting() as work:
        functional.scaled_dot_product_attention(heads, heads, heads).values().sum().backward()

    expected = sum(2 * 2 * 2 * 4 * length**2 for length in lengths)
    assert (work.contraction.forward, work.contraction.backward) == (expected, 2 * expected)


def test_an_encoder_that_leaves_out_padding_counts_what_is_left() -> None:
    """Its fast path makes nested tensors: as many contractions as the sequences by themselves."""
    import torch

    from measurements import counting

    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), counting() as padded:
        encoder(torch.randn(2, 5, 8), src_key_padding_mask=mask)
    with torch.no_grad(), counting() as alone:
        for length in (5, 3):
            encoder(torch.randn(1, length, 8))

    rows, attended = 5 + 3, 5**2 + 3**2
    assert padded.contraction.forward == 2 * rows * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 2 * 8 * attended
    assert alone.contraction.forward == padded.contraction.forward


def test_operators_on_regions_have_a_cost() -> None:
    """Forward and backward, and every pair of boxes."""
    import torch
    from torchvision import ops

    from measurements import counting

    x = torch.randn(1, 8, 6, 6, requires_grad=True)
    boxes = torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0], [0.0, 1.0, 1.0, 5.0, 5.0]])
    with counting() as work:
        for pool in (ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool):
            pool(x, boxes, 2).sum().backward()
        ops.nms(boxes[:, 1:], torch.rand(2), 0.5)

    forward = {name: part.forward for name, part in work.by_op().items() if name.startswith("torchvision.")}
    assert forward["torchvision.nms"] == 2 + 3 * 2 + 13
    assert forward["torchvision.roi_pool"] == 2 * 8 * 6 * 6
    assert forward["torchvision.ps_roi_pool"] == 2 * 2 * 6 * 6 + 2 * 2 * 2 * 2
    assert forward["torchvision.roi_align"] == 8 * 2 * 8 * 2 * 2


def test_a_live_count_is_copied_as_the_work_so_far() -> None:
    """Also into a file."""
    import torch

    from measurements import counting

    with counting() as work:
        torch.randn(3) + 1
        copied, loaded = copy.deepcopy(work), pickle.loads(pickle.dumps(work))
        torch.randn(3) + 1

    assert copied.total == loaded.total == 3
    assert work.total == 6


@pytest.fixture
def group() -> Any:
    """One process that is a whole group."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model: nn.Module, how: str) -> nn.Module:
    """The model, distributed over a group of one."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if how == "data":
        return torch.nn.parallel.DistributedDataParallel(model)
    if how == "sharded":
        return fully_shard(model)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})


@pytest.mark.parametrize("how", ["data", "sharded", "tensor"])
def test_a_group_of_one_computes_what_one_process_does(group: None, how: str) -> None:
    """Also the first time, when a distributed tensor asks fake ones for the sizes that come out."""
    import torch

    from measurements import counting

    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)), torch.randn(3, 8)
    with counting() as expected:
        model(x).sum().backward()
    spread = sharded(copy.deepcopy(model), how)
    for _ in range(2):
        with counting() as work:
            spread(x).sum().backward()
        assert work.contraction == expected.contraction
