"""Recurrent layers cost their gates' products, fused on a CPU or decomposed on meta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from measurements.records import Work

T, N, C, H = 4, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEVICES = ("cpu", "meta")


def counted(layer: Any, *inputs: Any) -> Work:
    """Forward, and backward of the sum of the output sequence where something needs a gradient."""
    import torch

    from measurements import counting

    with counting() as work:
        out = layer(*inputs)[0]
        out = out.data if isinstance(out, torch.nn.utils.rnn.PackedSequence) else out
        if out.requires_grad:
            out.sum().backward()
    return work.frozen()


def products(work: Work) -> tuple[int, int]:
    """Contraction FLOP forward and backward."""
    return work.contraction.forward, work.contraction.backward


def build(kind: str, device: str, **options: Any) -> Any:
    """A recurrent layer from C to H."""
    import torch

    return getattr(torch.nn, kind)(C, H, device=device, **options)


def sequence(device: str, needs: bool = False) -> Any:
    """T steps of N sequences."""
    import torch

    return torch.ones(T, N, C, device=device, requires_grad=needs)


@pytest.mark.parametrize("needs", [False, True], ids=["data", "input_gradient"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("kind", GATES)
def test_a_layer_multiplies_inputs_and_states(kind: str, bias: bool, needs: bool) -> None:
    """2·n·G·(C + H) forward.

    Backward owes nothing to the first state (a constant), nor to an input that is data.
    """
    gates = GATES[kind] * H
    forward = 2 * T * N * gates * (C + H)
    backward = forward + 2 * (T - 1) * N * gates * H + needs * 2 * T * N * gates * C

    for device in DEVICES:
        work = counted(build(kind, device, bias=bias), sequence(device, needs))
        assert products(work) == (forward, backward), device


@pytest.mark.parametrize("kind", GATES)
def test_a_first_state_that_needs_a_gradient_owes_one_more_product(kind: str) -> None:
    """All T steps then send a gradient to the state before them."""
    import torch

    gates = GATES[kind] * H
    forward = 2 * T * N * gates * (C + H)
    for device in DEVICES:
        state: Any = torch.zeros(1, N, H, device=device, requires_grad=True)
        state = (state, torch.zeros_like(state)) if kind == "LSTM" else state
        work = counted(build(kind, device), sequence(device), state)
        assert products(work) == (forward, forward + 2 * T * N * gates * H), device


@pytest.mark.parametrize("kind", GATES)
def test_frozen_weights_owe_nothing_and_still_pass_the_gradient_on(kind: str) -> None:
    """The input's gradient goes through every step, the weights' own products are left out."""
    gates = GATES[kind] * H
    forward = 2 * T * N * gates * (C + H)
    for device in DEVICES:
        layer = build(kind, device).requires_grad_(False)
        assert products(counted(layer, sequence(device, True))) == (
            forward,
            2 * T * N * gates * C + 2 * (T - 1) * N * gates * H,
        ), device


@pytest.mark.parametrize("kind", GATES)
def test_without_gradients_only_forward_counts(kind: str) -> None:
    """Under no_grad and in inference mode."""
    import torch

    for device in DEVICES:
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                work = counted(build(kind, device), sequence(device))
            assert products(work) == (2 * T * N * GATES[kind] * H * (C + H), 0), (device, mode)


@pytest.mark.parametrize("kind", GATES)
def test_directions_and_layers_add_up(kind: str) -> None:
    """Two directions side by side; the second layer reads both, and its input needs a gradient."""
    gates = GATES[kind] * H
    each = [2 * T * N * gates * (width + H) for width in (C, 2 * H)]
    forward = 2 * sum(each)
    unowed = 2 * N * gates * H  # of each layer and direction, the first state's
    backward = 2 * (2 * sum(each) - 2 * T * N * gates * C - 2 * unowed)

    for device in DEVICES:
        layer = build(kind, device, num_layers=2, bidirectional=True)
        assert products(counted(layer, sequence(device))) == (forward, backward), device


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # says that it runs decomposed
def test_a_projection_narrows_what_is_fed_back() -> None:
    """proj_size P: gates read C + P, and each step multiplies H by P."""
    p = 2
    forward = 2 * T * N * (4 * H * (C + p) + H * p)
    backward = 2 * forward - 2 * T * N * 4 * H * C - 2 * N * 4 * H * p

    for device in DEVICES:
        assert products(counted(build("LSTM", device, proj_size=p), sequence(device))) == (
            forward,
            backward,
        ), device


def test_batch_first_changes_nothing() -> None:
    """The same products on the transposed input."""
    for device in DEVICES:
        plain = counted(build("GRU", device), sequence(device))
        other = counted(build("GRU", device, batch_first=True), sequence(device).transpose(0, 1))
        assert products(plain) == products(other), device


@pytest.mark.parametrize("kind", GATES)
def test_packed_sequences_count_their_own_steps(kind: str) -> None:
    """Lengths 4, 2 and 1 are 7 places, not 12; each sequence has one first state."""
    import torch

    lengths = (4, 2, 1)
    gates, places = GATES[kind] * H, sum(lengths)
    forward = 2 * places * gates * (C + H)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(T, N, C), torch.tensor(lengths))

    work = counted(build(kind, "cpu"), packed)

    assert products(work) == (forward, forward + 2 * (places - N) * gates * H)


@pytest.mark.parametrize("kind", GATES)
def test_a_cell_is_one_step(kind: str) -> None:
    """Two products forward.

    A state that is not given is zeros, multiplied all the same, and owes no gradient.
    """
    import torch

    gates = GATES[kind] * H
    forward = 2 * N * gates * (C + H)
    for device in DEVICES:
        cell = getattr(torch.nn, f"{kind}Cell")(C, H, device=device)
        x = torch.ones(N, C, device=device)
        run = cell if kind == "LSTM" else lambda x, cell=cell: (cell(x),)
        assert products(counted(run, x)) == (forward, forward), device


def test_a_fused_forward_costs_the_cell_that_its_decomposition_runs() -> None:
    """All work forward on a CPU (one kernel a layer) and on meta: the same, biases included."""
    for bias in (False, True):
        flop = {
            device: counted(build("LSTM", device, bias=bias), sequence(device)).forward for device in DEVICES
        }
        assert flop["cpu"] == flop["meta"], bias


@pytest.mark.parametrize("kind", GATES)
def test_a_kernel_over_all_layers_costs_what_its_layers_cost(kind: str) -> None:
    """The formula of the one kernel that a GPU runs, against the layers that a CPU ran."""
    from measurements.formulas import FORMULAS
    from measurements.records import Shape

    work = counted(build(kind, "cpu", num_layers=2, bidirectional=True), sequence("cpu"))
    mode = {"LSTM": 2, "GRU": 3, "RNN": 1}[kind]
    x, state, settings = Shape((T, N, C)), Shape((4, N, H)), (mode, H, 2, True)
    forward = FORMULAS["aten._cudnn_rnn"](x, state, *settings)
    backward = FORMULAS["aten._cudnn_rnn_backward"](x, (), state, *settings, (False, False, False, True))

    assert (forward.contraction, backward.contraction) == products(work)
