"""FLOP of products of two operands: linear algebra in all its spellings, and convolution.

Letters: N batch, C channels in, O channels out, K the kernel's taps, k the summed length. A dot product of
length k is 2·k.
Source: the definitions of the operators in PyTorch's documentation; the count is of the definition, not of a
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from measurements.formulas.cost import Cost, Formula, contraction, elementwise, multiply_add
from measurements.formulas.pointwise import by_rule
from measurements.records import Shape

Sizes = Sequence[int]
_DENSE = ("strided", "mkldnn")


def product(x: Shape, y: Shape) -> Cost:
    """FLOP of x @ y, the last axis of x summed with the last but one of y (the only one of a vector).

    Shapes: x (…, n, k), y (…, k, m), both with the same batch; either may be a vector.
    Count: 2 · batch · n · k · m; a sparse operand multiplies its stored elements only.
    Raises: ValueError where the summed lengths disagree, or both operands are sparse (then the count is in
    the data).
    """
    inner = y[0] if len(y) == 1 else y[-2]
    if x[-1] != inner:
        raise ValueError(f"a product of {tuple(x)} and {tuple(y)} sums {x[-1]} elements with {inner}")
    columns = 1 if len(y) == 1 else y[-1]
    rows = 1 if len(x) == 1 else x[-2]
    one = multiply_add(x, y)
    if x.layout not in _DENSE and y.layout not in _DENSE:
        raise ValueError(
            f"both operands are sparse ({x.layout}, {y.layout}): the count depends on where they overlap"
        )
    if y.layout not in _DENSE:
        return contraction(one * y.stored * rows)
    return contraction(one * x.stored * columns)


def _plus(bias: Shape | None, out: Shape, beta: object, alpha: object) -> Cost:
    """FLOP of beta · bias + alpha · (…).

    One add for each output, a factor of exactly 1 costs nothing, beta = 0 no add.
    """
    if not out.is_float:
        return Cost()
    flop = 0 if alpha == 1 else out.numel
    if bias is not None and beta != 0:
        flop += out.numel + (0 if beta == 1 else bias.numel)
    return elementwise(flop)


def addmm(bias: Shape, mat1: Shape, mat2: Shape, out: Shape, beta: object = 1, alpha: object = 1) -> Cost:
    """FLOP of beta · bias + alpha · mat1 @ mat2; also addmv and baddbmm."""
    return product(mat1, mat2) + _plus(bias, out, beta, alpha)


def addmm_activation(bias: Shape, mat1: Shape, mat2: Shape, out: Shape, beta: object, alpha: object) -> Cost:
    """FLOP of a matrix product with a bias and a ReLU (1) behind it."""
    return addmm(bias, mat1, mat2, out, beta, alpha) + elementwise(out.numel)


def addbmm(
    bias: Shape, batch1: Shape, batch2: Shape, out: Shape, beta: object = 1, alpha: object = 1
) -> Cost:
    """FLOP of beta · bias + alpha · (the sum over the batch of batch1[i] @ batch2[i]).

    One sum of length batch · k.
    """
    return product(batch1, batch2) + _plus(bias, out, beta, alpha)


def addr(bias: Shape, vec1: Shape, vec2: Shape, out: Shape, beta: object = 1, alpha: object = 1) -> Cost:
    """FLOP of beta · bias + alpha · the outer product of two vectors: a product with k = 1."""
    return contraction(multiply_add(vec1, vec2) * out.numel) + _plus(bias, out, beta, alpha)


def multiply(x: object, other: object, out: Shape, node: str) -> Cost:
    """FLOP of an element-wise product; by a factor of exactly 1, nothing.

    The weight gradient of a matrix-vector product is an outer product, which autograd writes as mul inside
    MvBackward0: a contraction with k = 1, as the same layer on a batch of one has it.
    """
    if node.startswith(OUTER_PRODUCT_NODES) and out.numel > 1:
        return contraction(multiply_add(out) * out.numel)
    if 1 in (_number(x), _number(other)):
        return Cost()
    both_complex = all(isinstance(v, Shape) and v.is_complex for v in (x, other))
    return elementwise(6 * out.numel) if both_complex else by_rule((x, other), out)


OUTER_PRODUCT_NODES = ("MvBackward", "AddmvBackward")


def _number(value: object) -> object:
    return value if isinstance(value, int | float | complex) else None


def linear(x: Shape, weight: Shape, out: Shape, bias: Shape | None = None) -> Cost:
    """FLOP of x @ weight.T + bias. Shapes: x (…, C), weight (O, C), out (…, O)."""
    if x[-1] != weight[-1]:
        raise ValueError(f"a linear layer with weight {tuple(weight)} does not fit an input of {tuple(x)}")
    rows = weight[0] if len(weight) > 1 else 1
    return contraction(multiply_add(x, weight) * x.numel * rows) + elementwise(
        0 if bias is None else out.numel
    )


def linear_backward(x: Shape, grad_output: Shape, weight: Shape, output_mask: Sequence[bool]) -> Cost:
    """FLOP of the gradients of a linear layer.

    One product each for input and weight, N - 1 additions for each bias.
    """
    product_flop = linear(x, weight, grad_output).contraction
    bias = grad_output.numel - weight[0] if output_mask[2] else 0
    return contraction(product_flop * sum(output_mask[:2])) + elementwise(bias)


def linear_gradient(x: Shape, y: Shape, weight: Shape) -> Cost:
    """FLOP of one gradient of a linear layer: as much as its forward product."""
    return contraction(multiply_add(x, y) * math.prod(x[:-1]) * weight.numel)


def matmul(x: Shape, other: Shape, out: Shape) -> Cost:
    """FLOP of x @ other, whose batches need not agree: one sum of length k for each output element.

    A sparse operand: as `product`.
    """
    if x.layout in _DENSE and other.layout in _DENSE:
        return contraction(multiply_add(x, other) * out.numel * x[-1])
    return product(x, other)


def matmul_backward(grad: Shape, x: Shape, other: Shape, mask: Sequence[bool]) -> Cost:
    """FLOP of the gradients of a matrix product.

    One product for each operand, every output element with k terms.
    """
    return contraction(multiply_add(x, other) * grad.numel * x[-1] * sum(mask))


def product_reduced(x: Shape, other: Shape, reduce: str) -> Cost:
    """FLOP of a sparse product whose terms are summed, averaged, or compared (then it is no contraction)."""
    terms = x.stored * other[-1]
    if reduce in ("sum", "mean"):
        return contraction(multiply_add(x, other) * terms) + elementwise(
            x[-2] * other[-1] * (reduce == "mean")
        )
    return elementwise(2 * terms)


def packed_linear(x: Shape, out: Shape) -> Cost:
    """FLOP of a linear layer whose weight is packed (quantized, or prepared for a library).

    From its two ends.

    Shapes: x (…, C), out (…, O). Integer products count like floating ones.
    """
    return contraction(2 * x.numel * out[-1])


def weight_packed_mm(x: Shape, out: Shape) -> Cost:
    """FLOP of x @ a weight that is packed in 4 or 8 bit. Shapes: x (n, k), out (n, m)."""
    return contraction(2 * x.numel * out[-1])


def semi_structured(x: Shape, weight: Shape, out: Shape) -> Cost:
    """FLOP of x @ weight.T with half of the weight's elements stored (2:4 sparsity): 2 · rows · stored."""
    return contraction(2 * math.prod(x[:-1]) * weight.numel)


def grouped_mm(x: Shape, mat2: Shape, out: Shape, bias: Shape | None = None) -> Cost:
    """FLOP of matrix products group by group: every row of x meets the one matrix of its group.

    Shapes: x (n, k) or (G, n, k), mat2 (G, k, m) or (k, m); where both are matrices the groups split k.
    """
    columns = mat2[-1]
    return contraction(multiply_add(x, mat2) * x.numel * columns) + elementwise(
        0 if bias is None else out.numel
    )


def trilinear(
    i1: Shape, i2: Shape, i3: Shape, expand1: Sizes, expand2: Sizes, expand3: Sizes, sumdim: Sizes
) -> Cost:
    """FLOP of the sum over sumdim of i1 · i2 · i3 (what nn.Bilinear runs): two products, one after the other.

    The first multiplies i1 with i2 and sums the axes that i3 does not have; the second multiplies the rest
    with i3. nn.Bilinear(C, D, O) on n rows: 2 · n · O · D · C, then 2 · n · O · D.
    """
    full = _expanded(i1, expand1), _expanded(i2, expand2), _expanded(i3, expand3)
    sizes = [max(axis) for axis in zip(*full, strict=True)]
    everywhere = set(range(len(sizes)))
    first = everywhere - (set(expand1) & set(expand2))
    second = everywhere - (set(sumdim) & set(expand3))
    one = multiply_add(i1, i2, i3)
    return contraction(sum(one * math.prod(sizes[axis] for axis in axes) for axes in (first, second)))


def _expanded(shape: Shape, axes: Sizes) -> list[int]:
    sizes = list(shape)
    for axis in sorted(axes):
        sizes.insert(axis, 1)
    return sizes


def euclidean_dist(x1: Shape, x2: Shape, out: Shape) -> Cost:
    """FLOP of all distances by one product.

    X1 (n, k) and x2 (m, k), each with its squared norm and a 1 appended.

    Count: 2 · n · m · (k + 2); the norms 2k - 1 a row, the factor -2 k a row; clamp and root 2 for each
    distance.
    """
    k = x1[-1]
    rows = math.prod(x1[:-1]) + math.prod(x2[:-1])
    return contraction(2 * out.numel * (k + 2)) + elementwise(rows * (2 * k - 1) + x1.numel + 2 * out.numel)


def convolution(
    x: Shape, weight: Shape, out: Shape, bias: Shape | None = None, transposed: object = False
) -> Cost:
    """FLOP of a convolution of any rank, stride, padding, dilation and group count.

    Shapes: x (N, C, …), weight (O, C / groups, K…), out (N, O, …); transposed: weight (C, O / groups, K…).
    Count: 2 · out · C/groups · K, padding taps included; transposed: 2 · x · O/groups · K, one set of taps
    for each input element. The bias adds 1 for each output.
    """
    ends = x if transposed else out
    if transposed is False and weight[0] != out[-len(weight) + 1]:
        raise ValueError(f"a convolution with weight {tuple(weight)} cannot give {tuple(out)}")
    flop = multiply_add(x, weight) * ends.numel * math.prod(weight[1:])
    return contraction(flop) + elementwise(0 if bias is None else out.numel)


def transposed_convolution(x: Shape, weight: Shape, out: Shape, bias: Shape | None = None) -> Cost:
    """FLOP of a transposed convolution: one set of taps for each input element."""
    return convolution(x, weight, out, bias, transposed=True)


def convolution_relu(x: Shape, weight: Shape, out: Shape, bias: Shape | None = None) -> Cost:
    """FLOP of a convolution with a ReLU (1) behind it."""
    return convolution(x, weight, out, bias) + elementwise(out.numel)


def convolution_add_relu(
    x: Shape, weight: Shape, z: Shape, out: Shape, alpha: object, bias: Shape | None = None
) -> Cost:
    """FLOP of a convolution with alpha · z added and a ReLU behind it."""
    scale = 0 if alpha in (None, 1) else z.numel
    return convolution_relu(x, weight, out, bias) + elementwise(out.numel + scale)


def convolution_backward(
    grad_output: Shape,
    x: Shape,
    weight: Shape,
    output_mask: Sequence[bool] = (True, True, True),
    transposed: object = False,
) -> Cost:
    """FLOP of the gradients of a convolution.

    For input and weight each as much as forward, whatever the groups.

    Every forward product a · b is met once in the gradient of a and once in that of b. The bias sums its
    outputs.
    """
    product_flop = convolution(x, weight, grad_output, transposed=bool(transposed)).contraction
    channels = grad_output[1]
    bias = grad_output.numel - channels if len(output_mask) > 2 and output_mask[2] else 0
    return contraction(product_flop * sum(output_mask[:2])) + elementwise(max(bias, 0))


def convolution_tbc(x: Shape, weight: Shape, out: Shape) -> Cost:
    """FLOP of a 1-D convolution in the layout time, batch, channel.

    Shapes: weight (K, C, O), out (T, N, O).
    """
    return contraction(2 * out.numel * weight[0] * weight[1]) + elementwise(out.numel)


def convolution_tbc_backward(grad_output: Shape, x: Shape, weight: Shape) -> Cost:
    """FLOP of both gradients of conv_tbc and of its bias."""
    flop = 2 * grad_output.numel * weight[0] * weight[1]
    return contraction(2 * flop) + elementwise(grad_output.numel - weight[2])


def deformable_convolution(
    x: Shape, weight: Shape, offset: Shape, out: Shape, use_mask: object = False
) -> Cost:
    """FLOP of a deformable convolution: the dense product, and one bilinear sample for each tap and channel.

    A sample is 4 products and 3 additions; a mask multiplies it once more. torchvision gives a bias always (1
    an output).
    """
    samples = x[0] * x[1] * math.prod(weight[2:]) * math.prod(out[2:])
    sampling = samples * (8 if use_mask else 7)
    return convolution(x, weight, out) + elementwise(sampling + out.numel)


def deformable_convolution_backward(
    grad: Shape, x: Shape, weight: Shape, offset: Shape, use_mask: object = False
) -> Cost:
    """FLOP of the gradients of a deformable convolution: input and weight each the dense product.

    Each sample scatters to 4 neighbours (a product and an addition each), and is taken again for the weight
    (7) and for the two offsets (4 products and 4 additions each).
    """
    samples = x[0] * x[1] * math.prod(weight[2:]) * math.prod(grad[2:])
    return contraction(2 * convolution(x, weight, grad).contraction) + elementwise(
        samples * (8 + 7 + 16 + (1 if use_mask else 0)) + grad.numel - grad[1]
    )


CONTRACTIONS: dict[str, Formula] = {
    "mm": product,
    "_int_mm": product,
    "matmul": matmul,
    "matmul_backward": matmul_backward,
    "sspaddmm": addmm,
    "_cslt_sparse_mm": lambda compressed_A, dense_B, out: contraction(
        out.numel * dense_B[-2]
    ),  # 2:4, half is stored
    "_sparse_mm_reduce_impl": product_reduced,
    "_sparse_mm_reduce_impl_backward": lambda x, grad_out, output_mask: contraction(
        multiply_add(grad_out) * x.stored * grad_out[-1] * sum(output_mask)
    ),
    "_sparse_mm": product,
    "_foreach_mm": product,
    "bmm": product,
    "mv": product,
    "dot": product,
    "vdot": product,
    "hspmm": product,
    "addmm": addmm,
    "_sparse_addmm": addmm,
    "addmv": lambda x, mat, vec, out, beta=1, alpha=1: addmm(x, mat, vec, out, beta, alpha),
    "baddbmm": lambda x, batch1, batch2, out, beta=1, alpha=1: addmm(x, batch1, batch2, out, beta, alpha),
    "addbmm": addbmm,
    "addr": addr,
    "_addmm_activation": addmm_activation,
    "mul": multiply,
    "multiply": multiply,
    "linear": linear,
    "linear_backward": linear_backward,
    "mkldnn_linear": linear,
    "mkldnn_linear_backward": linear_backward,
    "mkldnn_linear_backward_input": lambda input_size, grad_output, weight: contraction(
        2 * math.prod(grad_output[:-1]) * weight.numel
    ),
    "mkldnn_linear_backward_weights": lambda grad_output, x, weight: contraction(
        2 * math.prod(grad_output[:-1]) * weight.numel
    ),
    # an activation or sum that such a kernel fuses is left out
    "mkldnn._linear_pointwise": lambda X, W, out, B=None: linear(X, W, out, B),
    "mkl._mkl_linear": lambda X, ORI_W, out, B=None: linear(X, ORI_W, out, B),
    "_scaled_mm": product,
    "_scaled_mm_v2": product,
    "_grouped_mm": grouped_mm,
    "_scaled_grouped_mm": grouped_mm,
    "_scaled_grouped_mm_v2": grouped_mm,
    "_weight_int4pack_mm": weight_packed_mm,
    "_weight_int4pack_mm_for_cpu": weight_packed_mm,
    "_weight_int4pack_mm_with_scales_and_zeros": weight_packed_mm,
    "_weight_int8pack_mm": weight_packed_mm,
    "_dyn_quant_matmul_4bit": weight_packed_mm,
    "_mixed_dtypes_linear": packed_linear,
    "_sparse_semi_structured_linear": semi_structured,
    "_sparse_semi_structured_mm": lambda mat1, mat1_meta, mat2: contraction(2 * mat1.numel * mat2[-1]),
    "_sparse_semi_structured_addmm": lambda x, mat1, mat1_meta, mat2, out, alpha=1, beta=1: (
        contraction(2 * mat1.numel * mat2[-1]) + _plus(x, out, beta, alpha)
    ),
    "sparse_sampled_addmm": lambda x, mat1, mat2, out, beta=1, alpha=1: (
        contraction(multiply_add(mat1) * x.stored * mat1[-1]) + elementwise(x.stored)
    ),
    "_trilinear": trilinear,
    "_euclidean_dist": euclidean_dist,
    # every place of the grid, with a 1 appended, times an affine map
    "affine_grid_generator": lambda theta, out: contraction(2 * out.numel * theta[-1]),
    "cudnn_affine_grid_generator": lambda theta, out: contraction(2 * out.numel * theta[-1]),
    "cudnn_affine_grid_generator_backward": lambda grad, out: contraction(2 * grad.numel * out[-1]),
    "convolution": convolution,
    "_convolution": convolution,
    "convolution_overrideable": convolution,
    "mkldnn_convolution": convolution,
    "mkldnn._convolution_pointwise": lambda X, W, out, B=None: convolution(X, W, out, B),
    "cudnn_convolution": convolution,
    "cudnn_convolution_transpose": transposed_convolution,
    "cudnn_convolution_relu": convolution_relu,
    "cudnn_convolution_add_relu": convolution_add_relu,
    "miopen_convolution": convolution,
    "miopen_depthwise_convolution": convolution,
    "miopen_convolution_transpose": transposed_convolution,
    "miopen_convolution_relu": convolution_relu,
    "miopen_convolution_add_relu": convolution_add_relu,
    "_slow_conv2d_forward": convolution,
    "slow_conv3d_forward": convolution,
    "slow_conv_dilated2d": convolution,
    "slow_conv_dilated3d": convolution,
    "slow_conv_transpose2d": transposed_convolution,
    "slow_conv_transpose3d": transposed_convolution,
    "_conv_depthwise2d": convolution,
    "conv_depthwise3d": convolution,
    "_nnpack_spatial_convolution": convolution,
    "_mps_convolution": convolution,
    "_mps_convolution_transpose": transposed_convolution,
    "conv_tbc": convolution_tbc,
    "conv_tbc_backward": convolution_tbc_backward,
    "convolution_backward": convolution_backward,
    "convolution_backward_overrideable": convolution_backward,
    "_slow_conv2d_backward": convolution_backward,
    "mps_convolution_transpose_backward": lambda x, grad_output, weight, output_mask: convolution_backward(
        grad_output, x, weight, output_mask, transposed=True
    ),
    "mps_convolution_backward": lambda x, grad_output, weight, output_mask: convolution_backward(
        grad_output, x, weight, output_mask
    ),
    "torchvision.deform_conv2d": deformable_convolution,
    "torchvision._deform_conv2d_backward": deformable_convolution_backward,
}
