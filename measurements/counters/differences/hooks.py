"""Rows of the counters that hook modules or replace functions: ptflops, thop, ultralytics-thop, torchinfo."""

from __future__ import annotations

from measurements.counters.differences import amounts as a
from measurements.counters.differences.difference import Difference, rows
from measurements.records import Phase

HOOKS = "ptflops/pytorch_ops.py"
PATCHES = "ptflops/pytorch_engine.py, patch_functional"
RULES = "thop/vision/basic_hooks.py"
LAYERS = "torchinfo/layer_info.py, calculate_macs"

BIAS = "a bias counts as one MAC for each output"
HOOKED = "the hook on {} counts one MAC for each element of its input"
CALLED = (
    "the function {}, replaced by a counting one, counts one MAC for each element of its input, for the "
    "whole batch where the report is for one sample"
)
TWICE = CALLED + "; {} calls it, and so counts twice"

NORMALIZED = "normalization with a weight counts as 4 MACs for each element, without as 2"

ROWS: tuple[Difference, ...] = (
    *rows(
        "ptflops_pytorch",
        "ptflops>=0.7.5",
        Phase.FORWARD,
        ("aten.convolution", a.convolution_bias, BIAS, f"{HOOKS}, conv_flops_counter_hook"),
        ("aten.addmm", a.macs_out, BIAS, f"{HOOKS}, linear_flops_counter_hook"),
        (
            "aten.native_batch_norm",
            a.batch_norm,
            "normalization counts as 2 MACs for each element",
            f"{HOOKS}, bn_flops_counter_hook",
        ),
        (
            "aten.{relu,relu_}",
            a.only_in("ReLU", a.macs_in),
            HOOKED.format("ReLU"),
            f"{HOOKS}, relu_flops_counter_hook",
        ),
        ("aten.{relu,relu_}", a.times_batch(a.macs_in), TWICE.format("relu", "ReLU"), PATCHES),
        (
            "aten.hardtanh_",
            a.only_in("ReLU6", a.macs_in),
            HOOKED.format("ReLU6") + "; it calls hardtanh, which is not replaced",
            f"{HOOKS}, relu_flops_counter_hook",
        ),
        (
            "aten.silu_",
            a.times_batch(a.macs_in),
            CALLED.format("silu") + "; SiLU calls it and has no hook",
            PATCHES,
        ),
        (
            "aten.max_pool2d_with_indices",
            a.only_in("MaxPool2d", a.macs_in),
            HOOKED.format("MaxPool2d"),
            f"{HOOKS}, pool_flops_counter_hook",
        ),
        (
            "aten.max_pool2d_with_indices",
            a.times_batch(a.macs_in),
            TWICE.format("max_pool2d", "MaxPool2d"),
            PATCHES,
        ),
        (
            "aten.{mean,_adaptive_avg_pool2d}",
            a.only_in("AdaptiveAvgPool2d", a.macs_in),
            HOOKED.format("AdaptiveAvgPool2d"),
            f"{HOOKS}, pool_flops_counter_hook",
        ),
        (
            "aten.mean",
            a.if_pooling(a.times_batch(a.macs_in)),
            TWICE.format("adaptive_avg_pool2d", "AdaptiveAvgPool2d"),
            PATCHES,
        ),
        (
            "aten._adaptive_avg_pool2d",
            a.times_batch(a.macs_in),
            TWICE.format("adaptive_avg_pool2d", "AdaptiveAvgPool2d"),
            PATCHES,
        ),
    ),
    *rows(
        "thop",
        "thop>=0.1.1",
        Phase.FORWARD,
        ("aten.native_batch_norm", a.batch_norm_twice, NORMALIZED, f"{RULES}, count_normalization"),
        (
            "aten.{mean,_adaptive_avg_pool2d}",
            a.only_in("AdaptiveAvgPool2d", a.average_by_ratio),
            "adaptive average pooling counts as one MAC for each output, and a window by the ratio of sizes",
            f"{RULES}, count_adap_avgpool",
        ),
    ),
    *rows(
        "ultralytics_thop",
        "ultralytics-thop>=2.2",
        Phase.FORWARD,
        ("aten.native_batch_norm", a.batch_norm_twice, NORMALIZED, f"{RULES}, count_normalization"),
        (
            "aten.{mean,_adaptive_avg_pool2d}",
            a.only_in("AdaptiveAvgPool2d", a.average_by_windows),
            "adaptive average pooling counts as one MAC for each output and each element of its window",
            f"{RULES}, count_adap_avgpool",
        ),
    ),
    *rows(
        "torchinfo",
        "torchinfo>=1.8",
        Phase.FORWARD,
        ("aten.convolution", a.convolution_bias, BIAS, LAYERS),
        ("aten.addmm", a.macs_out, BIAS, LAYERS),
        (
            "aten.native_batch_norm",
            a.batch_norm_parameters,
            "every parameter of a layer that is no convolution counts as one MAC for each sample",
            LAYERS,
        ),
    ),
)
