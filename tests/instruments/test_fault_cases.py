"""What counters were reported to count wrongly is counted right, kind by kind."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.fault_cases import CASES, NET, NET_BACK, Case, names

if TYPE_CHECKING:
    from measurements.records import Work

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # compilers, quantization and nested tensors warn by the dozen
]


def counted(case: Case) -> Work:
    """The program, and backward of the sum of its output where it is meant."""
    import torch

    from measurements import counting

    torch._dynamo.reset()
    space = names(torch)
    space["f"] = eval(case.make, space)
    with counting() as work:
        out = eval(case.program, space)
        if case.backward is not None:
            (out.abs() if out.is_complex() else out.float()).sum().backward()
    return work.frozen()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_reported_fault_is_counted_right(case: Case) -> None:
    """Both directions equal the arithmetic of the row."""
    work = counted(case).contraction

    assert (work.forward, work.backward) == (case.forward, case.backward or 0), case.source
    assert work.update == 0


def test_every_kind_of_fault_has_a_case_and_a_source() -> None:
    """Names are unique, sources are public."""
    kinds = {case.kind for case in CASES}

    assert len({case.name for case in CASES}) == len(CASES)
    assert len(kinds) >= 25
    assert all(case.source.startswith("https://") for case in CASES)


@pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])
def test_checkpointing_repeats_a_forward_that_stands_apart(reentrant: bool) -> None:
    """Model work is as without.

    What runs again is the forward, or its part up to the last tensor that is needed.

    Source: https://github.com/deepspeedai/DeepSpeed/pull/3362, https://github.com/stas00/ml-engineering/pull/47.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    from measurements import counting

    model, x = names(torch)["Named"](), torch.ones(5, 6, requires_grad=reentrant)
    with counting() as work:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    first = 2 * 5 * 6 * 8
    assert (work.contraction.forward, work.contraction.backward) == (NET, NET_BACK + reentrant * first)
    assert work.contraction.recomputed == (NET if reentrant else first)


def test_an_optimizer_that_only_scales_and_adds_has_no_contraction() -> None:
    """AdamW on lists; its element-wise work is the update's.

    Source: https://www.lesswrong.com/posts/fnjKpBoWJXcSDwhZk, what's the backward-forward FLOP ratio.
    """
    import torch

    from measurements import counting

    layer = torch.nn.Linear(6, 8)
    layer(torch.ones(5, 6)).sum().backward()
    optimizer = torch.optim.AdamW(layer.parameters(), foreach=True)
    with counting() as work:
        optimizer.step()

    assert (work.contraction.total, work.forward, work.backward) == (0, 0, 0)
    assert work.update == 14 * (6 * 8 + 8)


@pytest.fixture
def one_process() -> Any:
    """A process group of this process alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("needs torch.distributed with gloo; has none")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_wrapped_model_is_counted_once(one_process: Any) -> None:
    """Data parallel over one process: the wrapper adds communication, no product.

    Source: https://github.com/facebookresearch/fvcore/issues/109.
    """
    import torch

    from measurements import counting

    model = torch.nn.parallel.DistributedDataParallel(names(torch)["Named"]())
    with counting() as work:
        model(torch.ones(5, 6)).sum().backward()

    assert (work.contraction.forward, work.contraction.backward) == (NET, NET_BACK)


def test_a_factorization_counts_its_leading_term() -> None:
    """Cholesky: a third of n cubed, all work. Source: https://github.com/pytorch/pytorch/issues/93121."""
    import torch

    from measurements import counting

    with counting() as work:
        torch.linalg.cholesky(torch.eye(9))

    assert work.forward == 9**3 // 3


def test_a_residual_network_has_a_ratio_below_two() -> None:
    """Backward is twice forward less the first convolution, layer by layer, on meta.

    Source: https://github.com/pytorch/pytorch/issues/69782.
    """
    import torch
    from torchvision.models import resnet18

    from measurements import counting

    first = 64 * 3 * 49 * 112**2
    stages = [
        4 * 64 * 64 * 9 * 56**2,
        *(
            ((2 * c) * c * 9 + 3 * (2 * c) ** 2 * 9 + 2 * c * c) * side**2
            for c, side in ((64, 28), (128, 14), (256, 7))
        ),
    ]
    forward = 2 * (first + sum(stages) + 512 * 10)
    with torch.device("meta"), counting() as work:
        resnet18(num_classes=10)(torch.empty(1, 3, 224, 224)).sum().backward()

    assert (work.contraction.forward, work.contraction.backward) == (forward, 2 * forward - 2 * first)
