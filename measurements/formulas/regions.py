"""FLOP of torchvision's operators on boxes and regions of a map.

Source: torchvision/csrc/ops/cpu. Which boxes are compared and how much of the map a region covers depends on
data: counted as if every pair of boxes were compared, and as if every region were the whole map.
"""

from __future__ import annotations

from measurements.formulas.cost import Cost, Formula, elementwise, floating
from measurements.records import Shape


def suppression(dets: Shape, scores: Shape) -> Cost:
    """FLOP of non-maximum suppression of n boxes.

    Sort n log2 n; areas 3 n; each of n (n - 1) / 2 pairs: corners 4, sides 4 (subtract, clamp), product 1,
    union 2, quotient 1, compare 1: 13.
    """
    n = dets[0]
    return floating(dets, n * max(n - 1, 0).bit_length() + 3 * n + 13 * n * (n - 1) // 2)


def _whole_maps(x: Shape, out: Shape) -> int:
    """Elements that all regions read, a map for each output channel: x (N, C, H, W), out (R, O, …)."""
    return out[0] * out[1] * x[-1] * x[-2]


def max_of_regions(x: Shape, outs: tuple[Shape, ...]) -> Cost:
    """FLOP of the maxima of a region's parts: a compare for each element."""
    return floating(x, _whole_maps(x, outs[0]))


def mean_of_regions(x: Shape, outs: tuple[Shape, ...]) -> Cost:
    """FLOP of the means of a region's parts: an addition for each element, a division for each output."""
    return floating(x, _whole_maps(x, outs[0]) + outs[0].numel)


def mean_of_regions_backward(grad: Shape, out: Shape) -> Cost:
    """FLOP of its gradient: the same additions and divisions."""
    return floating(grad, _whole_maps(out, grad) + grad.numel)


def _samples(sampling_ratio: int) -> int:
    """Samples of a part: the ratio squared; 1 where it is chosen by the region's size."""
    return max(int(sampling_ratio), 1) ** 2


def aligned(x: Shape, rois: Shape, outs: tuple[Shape, ...], sampling_ratio: int = -1) -> Cost:
    """FLOP of regions sampled bilinearly: each sample 4 products and 3 additions, its sum 1."""
    return elementwise(outs[0].numel * 8 * _samples(sampling_ratio))


def aligned_backward(grad: Shape, sampling_ratio: int = -1) -> Cost:
    """FLOP of its gradient: each sample divided, 4 products and 4 additions."""
    return elementwise(grad.numel * 9 * _samples(sampling_ratio))


REGIONS: dict[str, Formula] = {
    "torchvision.nms": suppression,
    "torchvision.roi_align": aligned,
    "torchvision._roi_align_backward": aligned_backward,
    "torchvision.ps_roi_align": aligned,
    "torchvision._ps_roi_align_backward": aligned_backward,
    "torchvision.roi_pool": max_of_regions,
    "torchvision._roi_pool_backward": lambda grad: elementwise(grad.numel),
    "torchvision.ps_roi_pool": mean_of_regions,
    "torchvision._ps_roi_pool_backward": mean_of_regions_backward,
}
