"""Rows of the counters that trace a graph: fvcore, torchprofile, pthflops."""

from __future__ import annotations

from measurements.counters.differences import amounts as a
from measurements.counters.differences.difference import Difference, rows
from measurements.records import Phase

HANDLES = "fvcore/nn/jit_handles.py"
POOLING = f"{HANDLES}, elementwise_flop_counter; fvcore/nn/flop_count.py, aten::adaptive_avg_pool2d"
HANDLERS = "torchprofile/handlers.py"
FX = "pthflops/ops_fx.py"

ROWS: tuple[Difference, ...] = (
    *rows(
        "fvcore",
        "fvcore>=0.1.5.post20221221",
        Phase.FORWARD,
        (
            "aten.native_batch_norm",
            a.batch_norm_by_mode,
            "normalization counts as 5 MACs for each element in training (a rough estimate, it says), else 2",
            f"{HANDLES}, batchnorm_flop_jit and norm_flop_counter",
        ),
        (
            "aten.mean",
            a.if_pooling(a.macs_in),
            "adaptive average pooling (to 1 x 1: a mean) counts as one MAC for each element of its input",
            POOLING,
        ),
        (
            "aten._adaptive_avg_pool2d",
            a.macs_in,
            "adaptive average pooling counts as one MAC for each element of its input",
            POOLING,
        ),
    ),
    *rows(
        "torchprofile",
        "torchprofile>=0.1",
        Phase.FORWARD,
        (
            "aten.native_batch_norm",
            a.batch_norm_if_affine,
            "normalization with a weight counts as one MAC for each element",
            f"{HANDLERS}, _norm",
        ),
        (
            "aten.{mean,_adaptive_avg_pool2d}",
            a.macs_out,
            "an average counts as one MAC for each element of its output",
            f"{HANDLERS}, _avg_pool_or_mean",
        ),
        (
            "aten.mul",
            a.not_in("Dropout", a.macs_out),
            "a product counts as one MAC for each element of its output; those of dropout are no nodes",
            f"{HANDLERS}, _mul",
        ),
    ),
    *rows(
        "pthflops",
        "pthflops>=0.4.2",
        Phase.FORWARD,
        (
            "aten.convolution",
            a.convolution_bias,
            "a bias counts as one MAC for each output",
            f"{FX}, _count_convNd",
        ),
        (
            "aten.addmm",
            a.bias_once,
            "a bias counts as one MAC for each output of one sample, whatever the batch",
            f"{FX}, _count_linear",
        ),
        (
            "aten.native_batch_norm",
            a.two_macs_out,
            "normalization counts as 2 MACs for each element",
            f"{FX}, _count_bn",
        ),
        (
            "aten.{relu,relu_}",
            a.only_in("ReLU", a.two_macs_out),
            "ReLU counts as 2 MACs for each element: also the comparison",
            f"{FX}, _count_relu",
        ),
        (
            "aten.max_pool2d_with_indices",
            a.only_in("MaxPool2d", a.window_less_one),
            "the maximum of K elements counts as K - 1 MACs",
            f"{FX}, _count_maxpool",
        ),
        (
            "aten.{mean,_adaptive_avg_pool2d}",
            a.only_in("AdaptiveAvgPool2d", a.image_for_each_out),
            "adaptive average pooling counts as if each output were the mean of the whole image",
            f"{FX}, _count_globalavgpool",
        ),
        (
            "aten.{add,add_,mul}",
            a.two_macs_out,
            "a sum or a product counts as one MAC for each element and argument; `x += y` is traced as a sum",
            f"{FX}, _count_add_mul",
        ),
    ),
)
