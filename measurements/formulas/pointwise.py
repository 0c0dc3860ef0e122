"""FLOP of element-wise operations: units for each output element.

The rule: an operator that PyTorch tags as pointwise costs 1 for each output element where its elements are
floating-point (integer and boolean arithmetic is bookkeeping, 0). The rule holds for the four operations,
compares, and the functions of a C math library (exp, log, tanh, erf, pow, …), which count 1 each. What
PyTorch composes from them costs
its parts: a row here.
Complex elements: 2 for each (6 for a product of two, 11 for a quotient).
Source: the formulas in PyTorch's documentation of each operator, and derivatives.yaml for the backward ones.
"""

from __future__ import annotations

from measurements.formulas.cost import Cost, Formula, elementwise
from measurements.records import Shape, shapes_in

SIGMOID = 4
"""1 / (1 + exp(-x)): negate, exp, add, divide."""
GELU = 5
"""x · (1 + erf(x · c)) · ½: two factors, erf, add, one product."""

UNITS: dict[str, int] = {
    # activation functions
    "sigmoid": SIGMOID,
    "silu": SIGMOID + 1,  # x · sigmoid(x)
    "logit": 3,  # log(x / (1 - x))
    "log_sigmoid_forward": 5,  # min(x, 0) - log1p(exp(-|x|)): min, abs, negate-exp, log1p, subtract
    "softplus": 3,  # exp, log1p, compare with the threshold
    "mish": 4,  # x · tanh(log1p(exp(x)))
    "hardtanh": 2,  # two compares
    "hardsigmoid": 4,  # clamp(x + 3, 0, 6) / 6
    "hardswish": 5,  # x · hardsigmoid(x)
    "hardshrink": 2,
    "softshrink": 3,  # two compares, one shift
    "leaky_relu": 2,  # compare, multiply
    "elu": 3,  # compare, expm1, multiply
    "celu": 4,  # compare, divide, expm1, multiply
    "_prelu_kernel": 2,
    "rrelu_with_noise": 2,
    "rrelu_with_noise_functional": 2,
    "glu": SIGMOID + 1,  # a · sigmoid(b), for each output
    # their derivatives, each times the incoming gradient
    "sigmoid_backward": 3,  # g · y · (1 - y)
    "tanh_backward": 3,  # g · (1 - y · y)
    "logit_backward": 3,  # g / (x · (1 - x))
    "silu_backward": SIGMOID + 5,  # g · s · (1 + x · (1 - s))
    "log_sigmoid_backward": SIGMOID + 2,
    "softplus_backward": 4,  # z = exp(x): g · z / (z + 1)
    "mish_backward": 12,
    "hardtanh_backward": 2,
    "hardsigmoid_backward": 3,  # two compares, g / 6
    "hardswish_backward": 5,  # two compares, g · (x / 3 + ½)
    "hardshrink_backward": 2,
    "softshrink_backward": 2,
    "leaky_relu_backward": 2,
    "elu_backward": 4,  # compare, exp (or add), two products
    "rrelu_with_noise_backward": 1,
    "glu_backward": SIGMOID + 3,
    # arithmetic that is more than one operation
    "lerp": 3,  # a + w · (b - a)
    "rsqrt": 2,  # root, divide
    "logaddexp": 5,  # max, subtract, exp, log1p, add
    "logaddexp2": 5,
    "xlogy": 2,
    "special_xlog1py": 2,
    "special_entr": 3,
    "sinc": 3,
    "special_log_ndtr": 3,
    "ldexp": 2,
    "_add_relu": 2,
    "floor_divide": 2,  # divide, floor
    "nan_to_num": 3,  # three compares
    "polar": 2,  # cos or sin and a product for each part of the complex element
    "_fake_quantize_learnable_per_tensor_affine": 6,  # scale, round, shift, two compares, scale back
    "fake_quantize_per_tensor_affine_cachemask": 6,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": 6,
    "fake_quantize_per_channel_affine_cachemask": 6,
    "_fake_quantize_learnable_per_channel_affine": 6,
    # x: the mask 2, product 1; scale: the same quotient and its rounding 3, difference, product and sum 3;
    # zero point 2
    "_fake_quantize_learnable_per_tensor_affine_backward": 11,
    "_fake_quantize_learnable_per_channel_affine_backward": 11,
    "_fused_moving_avg_obs_fq_helper": 8,  # extremes 2, and 6 as above
    "_fused_moving_avg_obs_fq_helper_functional": 8,
    "quantize_per_tensor": 5,  # scale, round, shift, two compares
    "quantize_per_channel": 5,
    "quantize_per_tensor_dynamic": 7,  # extremes 2
    "dequantize": 2,  # shift, scale
    "_transform_bias_rescale_qkv": 1,  # add the bias (the scale of the queries is left out)
    "glu_jvp": SIGMOID + 5,  # a' · s + glu · (1 - s) · b': the factor as glu - s · glu
    "_standard_gamma_grad": 1,
    "_dirichlet_grad": 1,
    "__irshift__": 1,
    "native_dropout_backward": 2,  # g · mask · scale
    "_masked_scale": 2,
}


def each(units: int, shape: Shape) -> Cost:
    """FLOP of an operation with so many units for each element; complex elements cost twice as much."""
    return elementwise(units * shape.stored * (2 if shape.is_complex else 1))


def by_rule(arguments: tuple[object, ...], out: Shape | None, units: int = 1) -> Cost:
    """FLOP of an operation tagged pointwise.

    Its units for each output element, 0 where nothing is floating-point.

    A sparse operand meets only the elements that it stores.
    """
    shapes = tuple(shapes_in(arguments))
    if out is None or not (out.is_float or any(x.is_float for x in shapes)):
        return Cost()
    sparse = [x.stored for x in shapes if x.layout.startswith("sparse")]
    return elementwise(units * min((out.stored, *sparse)) * (2 if out.is_complex else 1))


def units_for(units: int) -> Formula:
    """The formula of a row of UNITS."""

    def formula(*arguments: object, out: Shape | None) -> Cost:
        return by_rule(arguments, out, units)

    return formula


def add(x: object, other: object, out: Shape, alpha: object = 1) -> Cost:
    """FLOP of x + alpha · other: 1, and 1 for a factor other than exactly 1."""
    return by_rule((x, other), out, 1 if alpha == 1 else 2)


def add_or_step(x: object, other: object, out: Shape, phase: str, alpha: object = 1) -> Cost:
    """FLOP of x + alpha · other.

    An optimizer's step counter (a scalar tensor, plus exactly 1) is bookkeeping: 0.
    """
    if phase == "update" and out == () and other == 1 and alpha == 1:
        return Cost()
    return add(x, other, out, alpha)


def divide(x: object, other: object, out: Shape) -> Cost:
    """FLOP of x / other; by exactly 1, nothing."""
    if not isinstance(other, Shape) and other == 1:
        return Cost()
    if out.is_complex and isinstance(other, Shape) and other.is_complex:
        return elementwise(11 * out.numel)
    return by_rule((x, other), out)


def add_product(x: Shape, tensor1: Shape, tensor2: Shape, out: Shape, value: object = 1) -> Cost:
    """FLOP of x + value · tensor1 · tensor2 (or / tensor2): 3, or 2 where value is exactly 1."""
    is_one = not isinstance(value, Shape) and value == 1
    return by_rule((x, tensor1, tensor2), out, 2 if is_one else 3)


def clamp(x: Shape, out: Shape, min: object = None, max: object = None) -> Cost:
    """FLOP of clamp: one compare for each bound."""
    return by_rule((x,), out, (min is not None) + (max is not None))


def gelu(x: Shape, out: Shape, approximate: str = "none") -> Cost:
    """FLOP of GELU.

    5 with erf; with tanh(c · (x + 0.044715 · x³)): cube 2, factor, add, factor, tanh, add, ½, product.
    """
    return by_rule((x,), out, GELU if approximate == "none" else 9)


def gelu_backward(grad_output: Shape, x: Shape, out: Shape, approximate: str = "none") -> Cost:
    """FLOP of the derivative of GELU times the gradient.

    erf: cdf 4 (factor, erf, add, ½), density 4 (square, factor, exp, factor), x · density, add, times g: 11.
    tanh: inner 5, tanh, left 2 (½ x, ½ (1 + t)), 1 - t² 2, inner derivative 3, two products, add, times g:
    17.
    """
    return by_rule((x,), out, 11 if approximate == "none" else 17)


def power(x: object, exponent: object, out: Shape) -> Cost:
    """FLOP of a power: 1; to the power of exactly 1 or 0, nothing."""
    number = None if isinstance(exponent, Shape) else exponent
    return Cost() if number in (0, 1) else by_rule((x, exponent), out)


def dropout(x: Shape, out: Shape, p: float, train: bool | None = True) -> Cost:
    """FLOP of dropout: x · mask · 1 / (1 - p): 2 for each element; 0 where nothing is dropped."""
    return Cost() if train is False or p == 0 else each(2, out)


def conjugate(x: Shape) -> Cost:
    """FLOP of a complex conjugate: the imaginary part negated; of a real number, nothing."""
    return elementwise(x.numel if x.is_complex else 0)


def prelu_backward(grad_output: Shape, x: Shape) -> Cost:
    """FLOP of PReLU's gradients: for the input compare and product, for the weight compare and product."""
    return each(4, x)


POINTWISE: dict[str, Formula] = {
    **{name: units_for(units) for name, units in UNITS.items()},
    "add": add_or_step,
    "sub": add,
    "rsub": add,
    "div": divide,
    "addcmul": add_product,
    "addcdiv": add_product,
    "clamp": clamp,
    "conj_physical": conjugate,
    "_conj_physical": conjugate,
    "_conj_copy": conjugate,
    "_neg_view_copy": units_for(1),
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "pow": power,
    "native_dropout": dropout,
    "_fused_dropout": lambda x, out, p: dropout(x, out, p),
    "_prelu_kernel_backward": prelu_backward,
    "threshold_backward": units_for(1),
}
