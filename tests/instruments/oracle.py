"""Layers as naive scalar loops over numbers that count their own operations.

Every number is counted, constants too: counted-float leaves out operations with a plain 0 or 1.
A contraction is the list of its taps: index triples (i, j, o), each a product left[i]·right[j] added to
out[o]. Forward and both gradients execute them one by one; what they cost is what counted-float saw, no
formula. Sums start from a counted zero, so that k products come with k additions. Padding is counted zeros.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counted_float import CountedFloat, FlopCountingContext

if TYPE_CHECKING:
    from torch import Tensor

Index = tuple[int, ...]
Values = dict[Index, float]
Tap = tuple[Index, Index, Index]


def indices(*sizes: int) -> Iterator[Index]:
    """All indices of a tensor of those sizes, the last one fastest."""
    return itertools.product(*map(range, sizes))


def values(tensor: Tensor) -> Values:
    """The elements of a tensor as counted numbers."""
    return dict(
        zip(indices(*tensor.shape), map(CountedFloat, tensor.detach().flatten().tolist()), strict=True)
    )


def zeros(sizes: Iterable[int]) -> Values:
    """Counted zeros."""
    return {index: CountedFloat(0.0) for index in indices(*sizes)}


def counted(run: Callable[[], Values]) -> tuple[Values, int]:
    """What a computation gave, and how many operations it executed."""
    with FlopCountingContext() as context:
        result = run()
    return result, context.flop_counts().total_count()


@dataclass(frozen=True)
class Contraction:
    """The taps of a contraction, and the sizes of its operands and of its result."""

    left: Index
    right: Index
    out: Index
    taps: tuple[Tap, ...]

    def forward(self, left: Values, right: Values) -> tuple[Values, int]:
        """out[o] = sum of left[i]·right[j], and the operations executed."""

        def run() -> Values:
            out = zeros(self.out)
            for i, j, o in self.taps:
                out[o] = out[o] + left[i] * right[j]
            return out

        return counted(run)

    def left_gradient(self, gradient: Values, right: Values) -> tuple[Values, int]:
        """dL/dleft[i] = sum of dL/dout[o]·right[j], and the operations executed."""

        def run() -> Values:
            left = zeros(self.left)
            for i, j, o in self.taps:
                left[i] = left[i] + gradient[o] * right[j]
            return left

        return counted(run)

    def right_gradient(self, gradient: Values, left: Values) -> tuple[Values, int]:
        """dL/dright[j] = sum of dL/dout[o]·left[i], and the operations executed."""

        def run() -> Values:
            right = zeros(self.right)
            for i, j, o in self.taps:
                right[j] = right[j] + gradient[o] * left[i]
            return right

        return counted(run)


def linear(x: Index, weight: Index) -> Contraction:
    """out[*, o] = sum over i of x[*, i]·weight[o, i]."""
    *rows, features = x
    taps = tuple(
        ((*row, i), (o, i), (*row, o))
        for row in indices(*rows)
        for o in range(weight[0])
        for i in range(features)
    )
    return Contraction(x, weight, (*rows, weight[0]), taps)


def bmm(left: Index, right: Index) -> Contraction:
    """out[b, n, m] = sum over k of left[b, n, k]·right[b, k, m]."""
    b, n, k = left
    m = right[2]
    taps = tuple(((i, p, r), (i, r, q), (i, p, q)) for i, p, q, r in indices(b, n, m, k))
    return Contraction(left, right, (b, n, m), taps)


def convolution(
    padded: Index, weight: Index, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Contraction:
    """out[n, o, p] = sum over i, k of padded[n, i of o's group, p·stride + k·dilation]·weight[o, i, k]."""
    n, _, *sides = padded
    filters, channels, *kernel = weight
    places = [
        (side - d * (k - 1) - 1) // s + 1
        for side, k, s, d in zip(sides, kernel, stride, dilation, strict=True)
    ]
    taps = []
    for sample, o, *p in indices(n, filters, *places):
        group = o // (filters // groups)
        for i, *k in indices(channels, *kernel):
            at = (a * s + b * d for a, b, s, d in zip(p, k, stride, dilation, strict=True))
            taps.append(((sample, group * channels + i, *at), (o, i, *k), (sample, o, *p)))
    return Contraction(padded, weight, (n, filters, *places), tuple(taps))


def transposed_convolution(
    x: Index,
    weight: Index,
    canvas: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Contraction:
    """out[n, o, p·stride + k·dilation] += x[n, c, p]·weight[c, o in c's group, k], before cropping."""
    n, channels, *sides = x
    _, filters, *kernel = weight
    taps = []
    for sample, c, *p in indices(n, channels, *sides):
        group = c // (channels // groups)
        for o, *k in indices(filters, *kernel):
            at = (a * s + b * d for a, b, s, d in zip(p, k, stride, dilation, strict=True))
            taps.append(((sample, c, *p), (c, o, *k), (sample, group * filters + o, *at)))
    return Contraction(x, weight, (n, filters * groups, *canvas), tuple(taps))


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer, state = relu(x·W_ih + state·W_hh), unrolled over time.

    Shapes: W_ih HI, W_hh HH.
    The state before the first step is zeros, a constant: it is multiplied, and its gradient is nobody's.
    """

    w_ih: Values
    w_hh: Values
    to_input: Contraction
    to_hidden: Contraction

    def forward(self, xs: Sequence[Values]) -> tuple[list[Values], int]:
        """The state before and after every step, and the operations that the products executed."""
        states, flop = [zeros(self.to_hidden.left)], 0
        for x in xs:
            from_x, x_flop = self.to_input.forward(x, self.w_ih)
            from_state, state_flop = self.to_hidden.forward(states[-1], self.w_hh)
            states.append(relu({i: from_x[i] + from_state[i] for i in from_x})[0])
            flop += x_flop + state_flop
        return states, flop

    def backward(
        self, xs: Sequence[Values], states: Sequence[Values], gradients: Sequence[Values], x_needs: bool
    ) -> tuple[Values, Values, list[Values], int]:
        """Gradients of W_ih, of W_hh and (where wanted) of each x; the operations the products executed."""
        ih, hh = zeros(self.to_input.right), zeros(self.to_hidden.right)
        later, to_x, flop = zeros(self.to_hidden.left), [], 0
        for t in reversed(range(len(xs))):
            g, _ = relu_gradient({i: gradients[t][i] + later[i] for i in later}, states[t + 1])
            parts = [self.to_input.right_gradient(g, xs[t]), self.to_hidden.right_gradient(g, states[t])]
            ih, hh = (
                {i: sums[i] + part[i] for i in sums} for sums, (part, _) in zip((ih, hh), parts, strict=True)
            )
            if t > 0:
                parts.append(self.to_hidden.left_gradient(g, self.w_hh))
                later = parts[-1][0]
            if x_needs:
                parts.append(self.to_input.left_gradient(g, self.w_ih))
                to_x.insert(0, parts[-1][0])
            flop += sum(part_flop for _, part_flop in parts)
        return ih, hh, to_x, flop


def pad(inner: Values, sizes: Index, padding: Sequence[int]) -> Values:
    """Counted zeros of `sizes`, with `inner` moved in by `padding` on its last axes."""
    outer = zeros(sizes)
    for (n, c, *place), value in inner.items():
        outer[(n, c, *(a + p for a, p in zip(place, padding, strict=True)))] = value
    return outer


def crop(outer: Values, sizes: Index, padding: Sequence[int]) -> Values:
    """The part of `sizes` that begins `padding` after the start of the last axes."""
    return {
        (n, c, *place): outer[(n, c, *(a + p for a, p in zip(place, padding, strict=True)))]
        for n, c, *place in indices(*sizes)
    }


def plus_bias(out: Values, bias: Sequence[float]) -> tuple[Values, int]:
    """The bias of axis 1 added to each output, and the operations executed."""
    return counted(lambda: {index: value + bias[index[1]] for index, value in out.items()})


def bias_gradient(gradient: Values) -> tuple[Values, int]:
    """The sum of the gradients along all axes but 1, from its first term on, and the operations executed."""

    def run() -> Values:
        sums: Values = {}
        for index, value in gradient.items():
            place = (index[1],)
            sums[place] = sums[place] + value if place in sums else value
        return sums

    return counted(run)


def relu(x: Values) -> tuple[Values, int]:
    """The larger of x and 0, and the operations executed."""
    return counted(lambda: {index: value if value > 0.0 else CountedFloat(0.0) for index, value in x.items()})


def relu_gradient(gradient: Values, out: Values) -> tuple[Values, int]:
    """The gradient where the output is above 0, and the operations executed."""
    return counted(
        lambda: {index: gradient[index] if out[index] > 0.0 else CountedFloat(0.0) for index in gradient}
    )


def max_pool(x: Values, places: dict[Index, tuple[Index, ...]]) -> tuple[Values, dict[Index, Index], int]:
    """The maximum of each output's taps, where it was, and the operations executed."""
    where: dict[Index, Index] = {}

    def run() -> Values:
        for out, taps in places.items():
            best = taps[0]
            for tap in taps[1:]:
                if x[tap] > x[best]:
                    best = tap
            where[out] = best
        return {out: x[tap] for out, tap in where.items()}

    result, flop = counted(run)
    return result, where, flop


def max_pool_gradient(gradient: Values, where: dict[Index, Index], x: Values) -> tuple[Values, int]:
    """Each output's gradient added where its maximum was, and the operations executed."""

    def run() -> Values:
        sums = {index: CountedFloat(0.0) for index in x}
        for out, tap in where.items():
            sums[tap] = sums[tap] + gradient[out]
        return sums

    return counted(run)


def total(terms: Iterable[float]) -> float:
    """The sum, from its first term on."""
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def mean(x: Values) -> tuple[Values, int]:
    """The mean of all elements, and the operations executed."""
    return counted(lambda: {(): total(x.values()) / CountedFloat(float(len(x)))})


def mean_gradient(gradient: float, x: Values) -> tuple[Values, int]:
    """The gradient's equal share for each element, and the operations executed."""
    return counted(lambda: {index: gradient / CountedFloat(float(len(x))) for index in x})


def cross_entropy(logits: Values, targets: Sequence[int]) -> tuple[Values, Values, int]:
    """Log probabilities, the mean of minus the targets' ones, and the operations executed."""
    n, classes = len(targets), max(c for _, c in logits) + 1
    logs: Values = {}

    def run() -> Values:
        for row in range(n):
            x = [logits[row, c] for c in range(classes)]
            largest = x[0]
            for value in x[1:]:
                largest = value if value > largest else largest
            shifted = [value - largest for value in x]
            log = math.log(total([math.exp(value) for value in shifted]))
            logs.update({(row, c): value - log for c, value in enumerate(shifted)})
        return {
            (): total([-logs[row, target] for row, target in enumerate(targets)]) / CountedFloat(float(n))
        }

    loss, flop = counted(run)
    return logs, loss, flop


def cross_entropy_gradient(gradient: float, logs: Values, targets: Sequence[int]) -> tuple[Values, int]:
    """The gradient of the logits through mean, selection and log softmax, and the operations executed."""
    n, classes = len(targets), max(c for _, c in logs) + 1

    def run() -> Values:
        picked = zeros((n, classes))
        for row, target in enumerate(targets):
            picked[row, target] = gradient / CountedFloat(-float(n))
        result: Values = {}
        for row in range(n):
            mass = total([picked[row, c] for c in range(classes)])
            for c in range(classes):
                result[row, c] = picked[row, c] - math.exp(logs[row, c]) * mass
        return result

    return counted(run)
