"""Why are mobilenet_v2 and efficientnet_b0 slow? Their operations move bytes and do little with them.

The study took their low utilization for a fault of its counters. The roofline says that no implementation of
these operations, one by one, can do better than 0.3 on its GPU, where the others could reach 0.77 and more:
depthwise convolution, normalization and activation wait for memory. What was published for a P100 lies below
the bound, but for convolutions by algorithms that multiply less than is counted.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import pytest

from measurements.commands.matrix import studied
from measurements.counters import COUNTERS
from measurements.devices import gpu
from measurements.roofline import Roof, bound, model_flop

pytestmark = pytest.mark.theory

STUDIED = studied()
STUDYS = "Tesla P100-PCIE-16GB"
OUTLIERS = ("mobilenet_v2", "efficientnet_b0")


def roof(device: str) -> Roof:
    """The roof of that device in float32."""
    row = gpu(device)
    return Roof(row.peak("fp32"), row.bytes_per_s)


@pytest.mark.parametrize(
    ("arch", "batch", "optimizer"), [pytest.param(arch, 64, "sgd", id=f"{arch}-b064-sgd") for arch in STUDIED]
)
def test_memory_caps_the_outliers_and_no_other(arch, batch, optimizer, build_step, record):
    """Of one SGD step in float32: below 0.35, and above 0.7."""
    work = COUNTERS["dispatch"](build_step("meta"))
    found = bound(work.records, roof(STUDYS))
    axes = {"arch": arch, "batch": batch, "optimizer": optimizer}
    record("bound", axes=axes, counter="dispatch", device=STUDYS, dtype="fp32", bound=found)

    assert found < 0.35 if arch in OUTLIERS else found > 0.7


class Published(NamedTuple):
    """Images per second in training, on one P100 SXM2 of a DGX-1: float32, synthetic data, cuDNN 5.1.

    fewer: why convolutions may multiply less than is counted; None where utilization is below the bound.
    """

    framework: str
    arch: str
    batch: int
    images_per_s: float
    fewer: str | None = None


WINOGRAD = "3x3 convolution by Winograd's algorithm, which on tiles of 2x2 multiplies 2.25 times less"
FFT = f"5x5 convolution by FFT, and {WINOGRAD}"

# TensorFlow: May 2017, SGD.
# Source: https://github.com/tensorflow/docs, site/en/r1/guide/performance/benchmarks.md
# Its nets are not quite torchvision's. Its ResNets have their stride in the 1x1 convolution, in ResNet-50 6 %
# less work; its AlexNet has a wider fourth convolution, 17 % more work; its Inception has no auxiliary
# classifier, and is counted without. That leaves the verdicts as they are: torchvision's count is the larger
# where utilization must be below the bound, and the smaller where it is above.
# Source: https://github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks/models/
# MXNet: commit 0a03417. Source: https://github.com/apache/mxnet, docs/how_to/perf.md at 076c2a0e, "Training
# results"; its AlexNet is another net (the paper's, without groups), and is left out.
# Winograd: Lavin and Gray, arXiv:1509.09308, section 4.1. FFT: Mathieu, Henaff, LeCun, arXiv:1312.5851.
PUBLISHED = (
    Published("tensorflow", "inception_v3", 64, 142),
    Published("tensorflow", "inception_v3", 32, 128),
    Published("tensorflow", "resnet50", 64, 219),
    Published("tensorflow", "resnet50", 32, 195),
    Published("tensorflow", "resnet152", 64, 91.8),
    Published("tensorflow", "resnet152", 32, 82.7),
    Published("tensorflow", "alexnet", 512, 2987, FFT),
    Published("tensorflow", "vgg16", 64, 154, WINOGRAD),
    Published("tensorflow", "vgg16", 32, 144, WINOGRAD),
    Published("mxnet", "resnet50", 1, 27.20),
    Published("mxnet", "resnet50", 2, 49.55),
    Published("mxnet", "resnet50", 4, 78.31),
    Published("mxnet", "resnet50", 8, 122.45),
    Published("mxnet", "resnet50", 16, 156.79),
    Published("mxnet", "resnet50", 32, 181.53),
    Published("mxnet", "inception_v3", 1, 15.14),
    Published("mxnet", "inception_v3", 2, 30.34),
    Published("mxnet", "inception_v3", 4, 50.59),
    Published("mxnet", "inception_v3", 8, 77.75),
    Published("mxnet", "inception_v3", 16, 111.11),
    Published("mxnet", "inception_v3", 32, 129.98),
)
DGX = "Tesla P100-SXM2-16GB"
CLASSES = 1000


@functools.cache
def model_on_meta(arch):
    """The architecture for ImageNet's classes."""
    import torch
    from torchvision.models import get_model

    import models

    with torch.device("meta"):
        if arch == "inception_v3":
            return get_model(arch, num_classes=CLASSES, aux_logits=False, init_weights=False)
        return models.build(arch, CLASSES)


def records_of(arch, batch):
    """One SGD step on ImageNet's sizes, counted on meta."""
    import torch

    import models
    from measurements import count_step

    with torch.device("meta"):
        x, targets = torch.rand(batch, *models.input_shape(arch)), torch.randint(CLASSES, (batch,))
    return count_step(model_on_meta(arch), x, targets, optimizer="sgd").records


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row.framework}-{row.arch}-b{row.batch:03}") for row in PUBLISHED]
)
def test_what_was_published_is_below_the_bound(row, record):
    """Where it is not, a name says by which algorithm."""
    records, top = records_of(row.arch, row.batch), roof(DGX)
    per_image = model_flop(records) / row.batch
    utilization, most = per_image * row.images_per_s / top.flop_per_s, bound(records, top)
    columns = {"device": DGX, "dtype": "fp32", "utilization": utilization, "bound": most}
    record("published", **row._asdict(), **columns)

    assert (utilization > most) == bool(row.fewer), f"{utilization:.3f} of the peak; the bound is {most:.3f}"
