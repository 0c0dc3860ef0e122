"""Where other packages' counters differ from the theory: for which operation, by how much, and why.

A row's amount is what the counter reports above (+) or below (-) the theory for one such operation of the
step, in FLOP (packages that count MACs are doubled), as a formula of what the operation was given: never a
measured residual. Hence, for every counter, phase and model,

    counted = theory + sum of amount(record) over the dispatch counter's records of the step

Letters: x the operation's input, w its weight, out its output, N the batch (x's first size), g the groups,
|x| the elements of x.

Every row holds for the versions that it names. Add a row here and its operation to the witness in
tests/instruments/test_differences.py; a difference that disappears in a newer version fails there, and the
row goes or its range of versions ends.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import cast

from measurements.records import OpRecord, Phase, Shape

__all__ = ["DIFFERENCES", "Difference", "explained", "holds"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a counter differs from the theory.

    op: as in OpRecord.op of the dispatch counter on the same step. amount: FLOP of one such operation.
    cause: one sentence. source: where in the package's code it stands, or where it was reported.
    versions: the package and the range that this was read and measured in ("torch>=2.7,<3").
    """

    counter: str
    phase: Phase
    op: str
    amount: Callable[[OpRecord], int]
    cause: str
    source: str
    versions: str

    @property
    def package(self) -> str:
        """The distribution whose version decides."""
        return re.split(r"[<>=!]", self.versions, maxsplit=1)[0]


COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def holds(row: Difference, installed: str) -> bool:
    """Whether the installed version is in the row's range."""
    for condition in row.versions.removeprefix(row.package).split(","):
        match = re.fullmatch(r"([<>=!]+)([\w.+]+)", condition.strip())
        if match is None or match[1] not in COMPARE:
            raise ValueError(f"{row.versions!r} names no range of versions; write it like 'torch>=2.7,<3'")
        if not COMPARE[match[1]](_numbers(installed), _numbers(match[2])):
            return False
    return True


def explained(counter: str, phase: Phase, records: Iterable[OpRecord]) -> list[tuple[Difference, int]]:
    """FLOP that the counter reports beyond the theory in this phase, by row; rows that add 0 are left out.

    records: of the dispatch counter, for the same step.
    """
    records = tuple(records)
    found = []
    for row in DIFFERENCES:
        if (row.counter, row.phase) == (counter, phase) and holds(row, metadata.version(row.package)):
            executed = (record for record in records if (record.phase, record.op) == (phase, row.op))
            amount = sum(map(row.amount, executed))
            if amount:
                found.append((row, amount))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without its local part and last zeros: "0.1.5.post2022" is 0, 1, 5, 2022."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# What the formulas read from a record.


def _tensor(record: OpRecord, place: int) -> Shape:
    """The tensor that is the operation's argument number `place`."""
    return cast("Shape", record.arguments[place])


def _given(record: OpRecord, place: int) -> bool:
    """Whether the optional tensor number `place` was given."""
    return record.arguments[place] is not None


def _is_module(record: OpRecord) -> bool:
    """Whether the operation is a module ("AlexNet.features.1"), not a function in the model ("OneNet").

    A function that is called inside of a submodule looks like a module; none of the models here calls one
    there.
    """
    return "." in record.module


def _averages_all(record: OpRecord) -> bool:
    """Whether this mean is adaptive average pooling to 1 x 1: ATen's mean of the dimensions -1 and -2."""
    return len(record.arguments) > 2 and record.arguments[1:3] == ((-1, -2), True)


# Amounts, in FLOP. MACs are doubled where they are counted.


def elements_in(record: OpRecord) -> int:
    """1 MAC for each element of x: 2·|x|."""
    return 2 * _tensor(record, 0).numel


def elements_in_of_all(record: OpRecord) -> int:
    """N MACs for each element of x, 2·N·|x|: the adapter multiplies by N what counted for the whole batch."""
    return _tensor(record, 0)[0] * elements_in(record)


def elements_in_of_module(record: OpRecord) -> int:
    """2·|x| where the operation is a module: functions have no hook."""
    return elements_in(record) if _is_module(record) else 0


def mean_in(record: OpRecord) -> int:
    """2·|x| where the mean is adaptive pooling to 1 x 1."""
    return elements_in(record) if _averages_all(record) else 0


def mean_in_of_module(record: OpRecord) -> int:
    """2·|x| where the mean is the module AdaptiveAvgPool2d(1)."""
    return mean_in(record) if _is_module(record) else 0


def mean_in_of_all(record: OpRecord) -> int:
    """2·N·|x| where the mean is adaptive pooling to 1 x 1, module or function."""
    return elements_in_of_all(record) if _averages_all(record) else 0


def convolution_bias(record: OpRecord) -> int:
    """1 MAC for each output where there is a bias: 2·|out|."""
    return 2 * record.outputs[0].numel if _given(record, 2) else 0


def linear_bias(record: OpRecord) -> int:
    """1 MAC for each output of addmm: 2·|out|."""
    return 2 * record.outputs[0].numel


def batch_norm_by_mode(record: OpRecord) -> int:
    """MACs for each element of x: 5 in training, 4 without weight; in evaluation 2, 1 without weight."""
    training, affine = bool(record.arguments[5]), _given(record, 1)
    return (4 * training + affine if training else 1 + affine) * elements_in(record)


def batch_norm(record: OpRecord) -> int:
    """2 MACs for each element of x, 1 without weight, in either mode."""
    return (1 + _given(record, 1)) * elements_in(record)


def weight_gradient_of_all_groups(record: OpRecord) -> int:
    """The weight gradient g - 1 times more: (g - 1) · 2·N·positions·|w|; 0 where the weight needs none.

    The theory asks for 2·N·positions·|w|, as forward does; w has C/g inputs for each output, so that |w| is
    divided by g. positions: the spatial sizes of the output, of the input where the convolution is
    transposed. Hence 1 + g instead of 2 times forward, and g instead of 1 for a first layer, whose input
    needs no gradient.
    """
    out, x, w = (_tensor(record, place) for place in range(3))
    transposed, groups, wanted = record.arguments[7], cast("int", record.arguments[9]), record.arguments[10]
    if not cast("tuple[bool, ...]", wanted)[1]:
        return 0
    positions = math.prod((x if transposed else out)[2:])
    return (groups - 1) * 2 * x[0] * positions * w.numel


FVCORE = "fvcore>=0.1.5.post20221221"
PTFLOPS = "ptflops>=0.7.5"
TORCH = "torch>=2.7"
HANDLES = "fvcore/nn/jit_handles.py"
HOOKS = "ptflops/pytorch_ops.py"
PATCHES = "ptflops/pytorch_engine.py, patch_functional"
ATEN = "ptflops/aten_ops.py"

HOOKED = "the hook on {} counts one MAC for each element of its input"
CALLED = (
    "the function {}, replaced by a counting one, counts one MAC for each element of its input, for the "
    "whole batch where the report is for one sample"
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "flop_counter_mode",
        Phase.BACKWARD,
        "aten.convolution_backward",
        weight_gradient_of_all_groups,
        "the weight gradient counts as a convolution of all inputs with all outputs, whatever the groups",
        "torch/utils/flop_counter.py, conv_backward_flop; https://github.com/pytorch/pytorch/pull/183405",
        TORCH,
    ),
    Difference(
        "fvcore",
        Phase.FORWARD,
        "aten.native_batch_norm",
        batch_norm_by_mode,
        "normalization counts as 5 MACs for each element in training (it says: a rough estimate), else as 2",
        f"{HANDLES}, batchnorm_flop_jit and norm_flop_counter",
        FVCORE,
    ),
    Difference(
        "fvcore",
        Phase.FORWARD,
        "aten.mean",
        mean_in,
        "adaptive average pooling (to 1 x 1 it is a mean) counts as one MAC for each element of its input",
        f"{HANDLES}, elementwise_flop_counter; fvcore/nn/flop_count.py, aten::adaptive_avg_pool2d",
        FVCORE,
    ),
    Difference(
        "fvcore",
        Phase.FORWARD,
        "aten._adaptive_avg_pool2d",
        elements_in,
        "adaptive average pooling counts as one MAC for each element of its input",
        f"{HANDLES}, elementwise_flop_counter; fvcore/nn/flop_count.py, aten::adaptive_avg_pool2d",
        FVCORE,
    ),
    Difference(
        "ptflops_aten",
        Phase.FORWARD,
        "aten.convolution",
        convolution_bias,
        "a bias counts as one MAC for each output",
        f"{ATEN}, conv_flop_count",
        PTFLOPS,
    ),
    Difference(
        "ptflops_aten",
        Phase.FORWARD,
        "aten.addmm",
        linear_bias,
        "a bias counts as one MAC for each output",
        f"{ATEN}, addmm_flop",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.convolution",
        convolution_bias,
        "a bias counts as one MAC for each output",
        f"{HOOKS}, conv_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.addmm",
        linear_bias,
        "a bias counts as one MAC for each output",
        f"{HOOKS}, linear_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.native_batch_norm",
        batch_norm,
        "normalization counts as 2 MACs for each element",
        f"{HOOKS}, bn_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.relu_",
        elements_in_of_module,
        HOOKED.format("ReLU"),
        f"{HOOKS}, relu_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.relu_",
        elements_in_of_all,
        CALLED.format("relu") + "; ReLU calls it, and so counts twice",
        PATCHES,
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.relu",
        elements_in_of_all,
        CALLED.format("relu"),
        PATCHES,
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.hardtanh_",
        elements_in_of_module,
        HOOKED.format("ReLU6") + "; it calls hardtanh, which is not replaced",
        f"{HOOKS}, relu_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.silu_",
        elements_in_of_all,
        CALLED.format("silu") + "; SiLU calls it and has no hook",
        PATCHES,
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.max_pool2d_with_indices",
        elements_in_of_module,
        HOOKED.format("MaxPool2d"),
        f"{HOOKS}, pool_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.max_pool2d_with_indices",
        elements_in_of_all,
        CALLED.format("max_pool2d") + "; MaxPool2d calls it, and so counts twice",
        PATCHES,
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.mean",
        mean_in_of_module,
        HOOKED.format("AdaptiveAvgPool2d"),
        f"{HOOKS}, pool_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten.mean",
        mean_in_of_all,
        CALLED.format("adaptive_avg_pool2d") + "; AdaptiveAvgPool2d calls it, and so counts twice",
        PATCHES,
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten._adaptive_avg_pool2d",
        elements_in_of_module,
        HOOKED.format("AdaptiveAvgPool2d"),
        f"{HOOKS}, pool_flops_counter_hook",
        PTFLOPS,
    ),
    Difference(
        "ptflops_pytorch",
        Phase.FORWARD,
        "aten._adaptive_avg_pool2d",
        elements_in_of_all,
        CALLED.format("adaptive_avg_pool2d") + "; AdaptiveAvgPool2d calls it, and so counts twice",
        PATCHES,
        PTFLOPS,
    ),
)
