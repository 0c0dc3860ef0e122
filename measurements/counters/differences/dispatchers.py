"""Rows of the counters that see operators as they run: FlopCounterMode, the two profilers, ptflops' aten."""

from __future__ import annotations

from measurements.counters.differences import amounts as a
from measurements.counters.differences.difference import Difference, rows
from measurements.records import Phase

TORCH = "torch>=2.7"
FORMULAS = "torch/csrc/profiler/util.cpp, computeFlops"
PTFLOPS = "ptflops/aten_ops.py"

FIRST_ARGUMENT = "an addition or product that is not in place counts the elements of its first argument"
BIAS = "a bias counts as one MAC for each output"

ROWS: tuple[Difference, ...] = (
    *rows(
        "flop_counter_mode",
        TORCH,
        Phase.BACKWARD,
        (
            "aten.convolution_backward",
            a.weight_gradient_of_all_groups,
            "the weight gradient counts as a convolution of all inputs with all outputs, whatever the groups",
            "torch/utils/flop_counter.py, conv_backward_flop; https://github.com/pytorch/pytorch/pull/183405",
        ),
    ),
    *rows(
        "torch_profiler autograd_profiler",
        TORCH,
        Phase.FORWARD,
        ("aten.{add,mul}", a.flop_in, FIRST_ARGUMENT, FORMULAS),
    ),
    *rows(
        "torch_profiler autograd_profiler",
        TORCH,
        Phase.BACKWARD,
        ("aten.convolution_backward", a.missed, "convolution has a formula for its forward alone", FORMULAS),
        # gradients that meet add up in place, unless a dispatch mode watches: no addition here
        ("aten.mul", a.flop_in, FIRST_ARGUMENT, FORMULAS),
    ),
    *rows(
        "ptflops_aten",
        "ptflops>=0.7.5",
        Phase.FORWARD,
        ("aten.convolution", a.convolution_bias, BIAS, f"{PTFLOPS}, conv_flop_count"),
        ("aten.addmm", a.macs_out, BIAS, f"{PTFLOPS}, addmm_flop"),
    ),
)
