"""FLOP of normalization, pooling, resampling and losses.

Letters: n elements, c channels (or rows) that share statistics, k taps of a window, t taps of an
interpolation.
Source: the formulas in PyTorch's documentation of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from measurements.formulas.cost import Cost, Formula, elementwise, floating
from measurements.records import Shape

# --------------------------------------------------------------------------- normalization
# Forward, statistics of the batch: sum 1, centre 1, square 1, sum 1, times 1/σ 1 (the divisions by n stand in
# for the last additions of the two sums); weight 1; bias 1. Once for each channel: add ε, root, reciprocal.
# Forward, given statistics: centre 1, times 1/σ 1, weight 1, bias 1; and the same three.
# Running statistics for each channel: mean 3 (lerp), variance 3 and its correction 1.
# Backward, statistics of the batch: Σ g 1, x̂ again 2, Σ g·x̂ 2, g - mean - x̂ · mean 3, times w/σ 1.
# Backward, given statistics: times w/σ 1; for the weight x̂ again 2 and Σ g·x̂ 2; for the bias Σ g 1.


def normalization(
    n: int, c: int, weight: object, bias: object, batch_statistics: bool, running: bool
) -> Cost:
    """FLOP of a normalization with statistics over n / c elements each."""
    each = (5 if batch_statistics else 2) + (weight is not None) + (bias is not None)
    return elementwise(each * n + 3 * c + (7 * c if batch_statistics and running else 0))


def normalization_backward(n: int, mask: Sequence[bool], batch_statistics: bool) -> Cost:
    """FLOP of the gradients of a normalization for input, weight and bias, as the mask asks."""
    to_x, to_weight, to_bias = (bool(wanted) for wanted in (*mask, False, False, False)[:3])
    if batch_statistics and to_x:
        return elementwise(9 * n)
    return elementwise((to_x + 4 * to_weight + to_bias) * n)


def batch_norm(
    x: Shape,
    weight: Shape | None,
    bias: Shape | None,
    running_mean: Shape | None = None,
    training: bool = True,
) -> Cost:
    """FLOP of batch normalization. Shape: x (N, C, …)."""
    return normalization(x.numel, x[1], weight, bias, training, running_mean is not None)


def batch_norm_backward(
    grad_out: Shape, x: Shape, output_mask: Sequence[bool] = (True, True, True), train: bool = True
) -> Cost:
    """FLOP of the gradients of batch normalization."""
    return normalization_backward(x.numel, output_mask, train)


def batch_norm_backward_all(x: Shape, needs: Sequence[bool] = ()) -> Cost:
    """FLOP of the gradients of batch normalization in kernels that have no mask: what the node needs."""
    return normalization_backward(x.numel, needs or (True, True, True), batch_statistics=True)


def layer_norm(x: Shape, normalized_shape: Sequence[int], weight: Shape | None, bias: Shape | None) -> Cost:
    """FLOP of layer normalization over the last axes."""
    rows = x.numel // max(math.prod(normalized_shape), 1)
    return normalization(x.numel, rows, weight, bias, batch_statistics=True, running=False)


def group_norm(x: Shape, weight: Shape | None, bias: Shape | None, N: int, group: int) -> Cost:
    """FLOP of group normalization: statistics for each sample and group."""
    return normalization(x.numel, N * group, weight, bias, batch_statistics=True, running=False)


def rms_norm(x: Shape, normalized_shape: Sequence[int], weight: Shape | None) -> Cost:
    """FLOP of RMS normalization: square 1, sum 1, times 1/σ 1, weight 1; ε, root, reciprocal once a row."""
    rows = x.numel // max(math.prod(normalized_shape), 1)
    return elementwise((3 + (weight is not None)) * x.numel + 3 * rows)


def rms_norm_backward(grad: Shape, x: Shape, output_mask: Sequence[bool] = (True, True)) -> Cost:
    """FLOP of the gradients of RMS normalization.

    X̂ 1, g·w 1, Σ g·x̂ 2, x̂ · mean, subtract, times 1/σ 3; weight 2.
    """
    to_x, to_weight = output_mask[0], output_mask[1]
    return elementwise((7 * to_x + 2 * to_weight + (1 if to_weight and not to_x else 0)) * x.numel)


def weight_norm(v: Shape, g: Shape) -> Cost:
    """FLOP of g · v / ‖v‖: square and sum 2 less 1 a row, root, divide; one product for each element."""
    return elementwise(3 * v.numel + g.numel)


def weight_norm_backward(grad_w: Shape, saved_v: Shape, saved_g: Shape) -> Cost:
    """FLOP of the gradients of g · v / ‖v‖: Σ gv·v 2, for v two products and a subtraction; a few a row."""
    return elementwise(5 * saved_v.numel + 3 * saved_g.numel)


NORMALIZATION: dict[str, Formula] = {
    "native_batch_norm": batch_norm,
    "_native_batch_norm_legit": batch_norm,
    "_native_batch_norm_legit_functional": batch_norm,
    "_native_batch_norm_legit_no_training": lambda x, weight, bias: batch_norm(
        x, weight, bias, training=False
    ),
    "_batch_norm_with_update": batch_norm,
    "_batch_norm_with_update_functional": batch_norm,
    "_batch_norm_no_update": lambda x, weight, bias: batch_norm(x, weight, bias, training=False),
    "quantized_batch_norm": lambda x, weight, bias: batch_norm(x, weight, bias, training=False),
    "cudnn_batch_norm": batch_norm,
    "miopen_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
    "batch_norm_backward": lambda grad_out, x, output_mask, update: batch_norm_backward(
        grad_out, x, output_mask, update
    ),
    "cudnn_batch_norm_backward": lambda x, grad_output, needs=(): batch_norm_backward_all(x, needs),
    "miopen_batch_norm_backward": lambda x, grad_output, needs=(): batch_norm_backward_all(x, needs),
    # the parts that SyncBatchNorm runs one by one
    "batch_norm_stats": lambda x: elementwise(4 * x.numel + 3 * x[1]),
    "batch_norm_elemt": lambda x, weight, bias: elementwise(
        (2 + (weight is not None) + (bias is not None)) * x.numel
    ),
    "batch_norm_gather_stats": lambda x, mean: elementwise(8 * mean.numel),
    "batch_norm_gather_stats_with_counts": lambda x, mean: elementwise(8 * mean.numel),
    "batch_norm_backward_reduce": lambda grad_out, x: elementwise(5 * x.numel),
    "batch_norm_backward_elemt": lambda grad_out, x: elementwise(6 * x.numel),
    "batch_norm_update_stats": lambda x: elementwise(4 * x.numel + 7 * x[1]),
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": lambda grad_out, x, output_mask: normalization_backward(
        x.numel, output_mask, batch_statistics=True
    ),
    "native_group_norm": group_norm,
    "native_group_norm_backward": lambda grad_out, x, output_mask: normalization_backward(
        x.numel, output_mask, batch_statistics=True
    ),
    "_fused_rms_norm": rms_norm,
    "_fused_rms_norm_backward": rms_norm_backward,
    "_weight_norm_interface": weight_norm,
    "_weight_norm_interface_backward": weight_norm_backward,
}


# --------------------------------------------------------------------------- pooling
def _taps(kernel_size: int | Sequence[int], rank: int) -> int:
    sizes = [kernel_size] if isinstance(kernel_size, int) else list(kernel_size)
    return math.prod(sizes * rank if len(sizes) == 1 else sizes)


def max_pool(rank: int) -> Formula:
    """The formula of maximum pooling: k - 1 compares for each output."""

    def formula(x: Shape, kernel_size: Sequence[int], out: Shape) -> Cost:
        return floating(x, (_taps(kernel_size, rank) - 1) * out.numel)

    return formula


def avg_pool(rank: int) -> Formula:
    """The formula of average pooling: k - 1 additions and a division for each output."""

    def formula(x: Shape, kernel_size: Sequence[int], out: Shape) -> Cost:
        return floating(x, _taps(kernel_size, rank) * out.numel)

    return formula


def avg_pool_backward(rank: int) -> Formula:
    """The formula of the gradient of average pooling.

    A division for each output, an addition for each tap.
    """

    def formula(grad_output: Shape, x: Shape, kernel_size: Sequence[int]) -> Cost:
        return elementwise((1 + _taps(kernel_size, rank)) * grad_output.numel)

    return formula


def adaptive_windows(x: Shape, out: Shape, rank: int) -> int:
    """Elements in all windows of an adaptive pool: window i covers floor(i·n/m) up to ceil((i+1)·n/m)."""
    lengths = [
        sum(-(-(i + 1) * n // m) - i * n // m for i in range(m))
        for n, m in zip(x[-rank:], out[-rank:], strict=True)
    ]
    return math.prod(out[:-rank]) * math.prod(lengths)


def adaptive_avg_pool(rank: int) -> Formula:
    """The formula of adaptive average pooling: for each output its window less 1, and a division."""

    def formula(x: Shape, out: Shape) -> Cost:
        return floating(x, adaptive_windows(x, out, rank))

    return formula


def adaptive_avg_pool_backward(rank: int) -> Formula:
    """The formula of its gradient: a division for each output, an addition for each element of its window."""

    def formula(grad_output: Shape, x: Shape) -> Cost:
        return elementwise(grad_output.numel + adaptive_windows(x, grad_output, rank))

    return formula


def adaptive_max_pool(rank: int) -> Formula:
    """The formula of adaptive maximum pooling: for each output its window less 1."""

    def formula(x: Shape, out: Shape) -> Cost:
        return floating(x, adaptive_windows(x, out, rank) - out.numel)

    return formula


def scattered(grad_output: Shape) -> Cost:
    """FLOP of sending each gradient back to where its maximum was: an addition for each output."""
    return elementwise(grad_output.numel)


POOLING: dict[str, Formula] = {
    **{f"max_pool{rank}d_with_indices": max_pool(rank) for rank in (2, 3)},
    **{f"max_pool{rank}d_with_indices_backward": scattered for rank in (2, 3)},
    **{f"mkldnn_max_pool{rank}d": max_pool(rank) for rank in (2, 3)},
    **{f"mkldnn_max_pool{rank}d_backward": scattered for rank in (2, 3)},
    **{f"quantized_max_pool{rank}d": max_pool(rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": max_pool(rank) for rank in (1, 2, 3)},
    "max_pool2d_backward": scattered,
    **{f"avg_pool{rank}d": avg_pool(rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d_backward": avg_pool_backward(rank) for rank in (2, 3)},
    **{f"_adaptive_avg_pool{rank}d": adaptive_avg_pool(rank) for rank in (2, 3)},
    **{f"adaptive_avg_pool{rank}d": adaptive_avg_pool(rank) for rank in (1, 2, 3)},
    **{f"_adaptive_avg_pool{rank}d_backward": adaptive_avg_pool_backward(rank) for rank in (2, 3)},
    "adaptive_avg_pool3d_backward": adaptive_avg_pool_backward(3),
    "mkldnn_adaptive_avg_pool2d": adaptive_avg_pool(2),
    "mkldnn_adaptive_avg_pool2d_backward": adaptive_avg_pool_backward(2),
    **{f"adaptive_max_pool{rank}d": adaptive_max_pool(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d_backward": scattered for rank in (2, 3)},
    **{f"fractional_max_pool{rank}d": max_pool(rank) for rank in (2, 3)},
    **{f"fractional_max_pool{rank}d_backward": scattered for rank in (2, 3)},
    **{
        f"{kind}_pad{rank}d_backward": scattered
        for kind in ("reflection", "replication")
        for rank in (1, 2, 3)
    },
}


# --------------------------------------------------------------------------- resampling
def resampled(taps: int) -> Formula:
    """The formula of interpolation: for each output t products and t - 1 additions."""

    def formula(x: Shape, out: Shape) -> Cost:
        return floating(x, (2 * taps - 1) * out.numel)

    return formula


def resampled_backward(taps: int) -> Formula:
    """The formula of its gradient: for each output t products and t additions."""

    def formula(grad_output: Shape) -> Cost:
        return elementwise(2 * taps * grad_output.numel)

    return formula


def grid_sample(rank: int) -> Formula:
    """The formula of sampling at given places.

    The place 2 for each axis and sample, and 2^rank taps for each output.
    """

    def formula(x: Shape, grid: Shape, out: Shape) -> Cost:
        return elementwise(2 * grid.numel + (2 * 2**rank - 1) * out.numel)

    return formula


def grid_sample_backward(rank: int) -> Formula:
    """The formula of its gradients: to the input 2 for each tap, to the grid 2 for each tap and axis."""

    def formula(grad_output: Shape, x: Shape, grid: Shape) -> Cost:
        return elementwise(2 * grid.numel + 2**rank * (2 + 2 * rank) * grad_output.numel)

    return formula


_TAPS = {"linear1d": 2, "bilinear2d": 4, "bicubic2d": 16, "trilinear3d": 8}
_NEAREST = [f"upsample_nearest{rank}d" for rank in (1, 2, 3)] + [
    f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)
]

RESAMPLING: dict[str, Formula] = {
    **{f"upsample_{name}": resampled(taps) for name, taps in _TAPS.items()},
    **{f"upsample_{name}_backward": resampled_backward(taps) for name, taps in _TAPS.items()},
    "_upsample_bilinear2d_aa": resampled(4),
    "_upsample_bilinear2d_aa_backward": resampled_backward(4),
    "_upsample_lanczos2d_aa": resampled(36),
    "_upsample_lanczos2d_aa_backward": resampled_backward(36),
    "_upsample_bicubic2d_aa": resampled(16),
    "_upsample_bicubic2d_aa_backward": resampled_backward(16),
    **{f"{name}_backward": scattered for name in _NEAREST},
    **{f"grid_sampler_{rank}d": grid_sample(rank) for rank in (2, 3)},
    **{f"grid_sampler_{rank}d_backward": grid_sample_backward(rank) for rank in (2, 3)},
    "_grid_sampler_2d_cpu_fallback": grid_sample(2),
    "_grid_sampler_2d_cpu_fallback_backward": grid_sample_backward(2),
    "cudnn_grid_sampler": grid_sample(2),
    "cudnn_grid_sampler_backward": lambda x, grid, grad_output: grid_sample_backward(2)(grad_output, x, grid),
}


# --------------------------------------------------------------------------- losses
MEAN, SUM = 1, 2
"""torch.nn's reductions as ATen numbers them; 0 is none."""


def reduced(units: int) -> Formula:
    """The formula of a loss of two tensors: units for each element, then their sum (n - 1) or mean (n)."""

    def formula(x: Shape, target: Shape, reduction: int = MEAN) -> Cost:
        return elementwise(units * x.numel + _reduction(x.numel, reduction))

    return formula


def _reduction(n: int, reduction: int) -> int:
    return n if reduction == MEAN else max(n - 1, 0) if reduction == SUM else 0


def loss_backward(units: int) -> Formula:
    """The formula of its gradient: units for each element, the factor 1 / n among them."""

    def formula(grad_output: Shape, x: Shape) -> Cost:
        return elementwise(units * x.numel)

    return formula


def nll_loss(x: Shape, target: Shape, weight: Shape | None = None, reduction: int = MEAN) -> Cost:
    """FLOP of the negative log-likelihood.

    Negate each picked score, then sum or mean; class weights 1 more each.
    """
    picked = target.numel
    weighted = 0 if weight is None else 2 * picked
    return elementwise(picked + weighted + _reduction(picked, reduction))


def nll_loss_backward(grad_output: Shape, x: Shape, target: Shape) -> Cost:
    """FLOP of its gradient: -1 / n for each picked score."""
    return elementwise(target.numel)


def ctc_loss(log_probs: Shape, targets: Shape) -> Cost:
    """FLOP of CTC forward, leading term.

    Each time step and place of the extended target a sum of 3 in log space (7).
    """
    places = 2 * (targets[-1] if len(targets) > 1 else targets.numel // max(log_probs[1], 1)) + 1
    return elementwise(7 * log_probs[0] * log_probs[1] * places)


def ctc_loss_backward(grad: Shape, log_probs: Shape, targets: Shape) -> Cost:
    """FLOP of CTC backward, leading term.

    The backward variables as forward, and the gradient of each score (2).
    """
    return ctc_loss(log_probs, targets) + elementwise(2 * log_probs.numel)


LOSSES: dict[str, Formula] = {
    "nll_loss_forward": nll_loss,
    "nll_loss2d_forward": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "nll_loss2d_backward": nll_loss_backward,
    "mse_loss": reduced(2),  # subtract, square
    "mse_loss_backward": loss_backward(3),  # subtract, two factors
    "smooth_l1_loss": reduced(5),  # subtract, abs, compare, square, factor
    "smooth_l1_loss_backward": loss_backward(4),
    "huber_loss": reduced(5),
    "huber_loss_backward": loss_backward(4),
    "soft_margin_loss": reduced(4),  # product, negate-exp 2, log1p
    "soft_margin_loss_backward": loss_backward(6),
    "binary_cross_entropy": reduced(7),  # log, product, 1 - x, log, 1 - t, product, subtract
    "binary_cross_entropy_backward": loss_backward(6),
    "binary_cross_entropy_with_logits": reduced(8),
    "multi_margin_loss": reduced(3),
    "multi_margin_loss_backward": loss_backward(2),
    "multilabel_margin_loss_forward": reduced(3),
    "multilabel_margin_loss_backward": loss_backward(2),
    "_ctc_loss": ctc_loss,
    "_cudnn_ctc_loss": ctc_loss,
    "miopen_ctc_loss": ctc_loss,
    "_ctc_loss_backward": ctc_loss_backward,
}
