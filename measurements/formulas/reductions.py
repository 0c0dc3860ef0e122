"""FLOP of reductions, scans, softmax, sorting, scattering sums, and distances.

Letters: n elements in, m elements out, r = n / m elements for each output, D their length along one axis. A
sum of r elements is r - 1 additions. Integer and boolean elements are bookkeeping: 0.
Source: the definitions in PyTorch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from measurements.formulas.cost import Cost, Formula, elementwise, floating
from measurements.records import Shape

Axes = int | Sequence[int] | None


def total(x: Shape, out: Shape) -> Cost:
    """FLOP of a sum (or product, or extreme value): r - 1 for each output, n - m in all."""
    return floating(x, x.stored - out.numel)


def mean(x: Shape, out: Shape) -> Cost:
    """FLOP of a mean: r - 1 additions and a division for each output, n in all."""
    return floating(x, x.numel)


def variance(x: Shape, outs: tuple[Shape, ...]) -> Cost:
    """FLOP of a variance: mean n, centre n, square n, sum and divide n."""
    return floating(x, 4 * x.numel)


def deviation(x: Shape, outs: tuple[Shape, ...]) -> Cost:
    """FLOP of a standard deviation: a variance and its root."""
    return floating(x, 4 * x.numel + outs[0].numel)


def norm(x: Shape, out: Shape, ord: object = 2) -> Cost:
    """FLOP of a vector norm: power n, sum n - m, root m; for 1, 0 and infinity no root."""
    root = 0 if ord in (0, 1, math.inf, -math.inf) else out.numel
    return floating(x, 2 * x.numel - out.numel + root)


def p_norm(x: Shape, out: Shape, p: object = 2, ord: object = 2) -> Cost:
    """FLOP of a vector norm in the older spelling (p), and of a list of tensors (ord)."""
    return norm(x, out, ord if p in (None, 2) else p)


def scan(x: Shape, dim: int) -> Cost:
    """FLOP of a running sum (or product, or extreme value) along an axis: D - 1 for each line."""
    return floating(x, x.numel - (x.numel // x[dim] if len(x) and x[dim] else x.numel))


def along(units: int, less: int) -> Formula:
    """The formula of work along one axis: units for each element, less a constant for each line."""

    def formula(x: Shape, dim: Axes = -1) -> Cost:
        return floating(x, units * x.numel - less * _lines(x, dim))

    return formula


def _lines(x: Shape, dim: Axes) -> int:
    if len(x) == 0:
        return 1
    axes = range(len(x)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    length = math.prod(x[axis] for axis in axes)
    return x.numel // length if length else 0


def logsumexp(x: Shape, out: Shape) -> Cost:
    """FLOP of log Σ exp: maximum n - m, subtract n, exp n, sum n - m, log m, add m."""
    return floating(x, 4 * x.numel)


def sort(x: Shape, dim: object = -1) -> Cost:
    """FLOP of a sort, leading term: D log2 D compares for each line (Knuth, volume 3, section 5.3.1)."""
    axis = dim if isinstance(dim, int) and not isinstance(dim, bool) else -1
    length = x[axis] if len(x) else 1
    return floating(x, x.numel * max(length - 1, 0).bit_length())


def sort_all(x: Shape) -> Cost:
    """FLOP of a sort of all elements, leading term: n log2 n compares."""
    return floating(x, x.numel * max(x.numel - 1, 0).bit_length())


def each_of(argument: int, units: int = 1) -> Formula:
    """The formula of one addition (or so many) for each element of one argument: scattering sums."""

    def formula(*arguments: object) -> Cost:
        source = arguments[argument]
        return floating(source, units * source.numel) if isinstance(source, Shape) else Cost()

    return formula


def index_put(x: Shape, indices: object, values: Shape, accumulate: bool = False) -> Cost:
    """FLOP of writing by index: an addition for each value where it accumulates, else none."""
    return floating(values, values.numel) if accumulate else Cost()


def index_add(x: Shape, source: Shape, alpha: object = 1) -> Cost:
    """FLOP of adding rows by index: an addition for each element, and a factor other than exactly 1."""
    return floating(source, source.numel * (1 if alpha == 1 else 2))


def scatter(
    x: Shape, src: Shape | None = None, index: Shape | None = None, reduce: str | None = None
) -> Cost:
    """FLOP of writing along an axis: one for each value where it adds or multiplies, else none."""
    if reduce is None or index is None:
        return Cost()
    return floating(x, index.numel)


def put(x: Shape, index: Shape, source: Shape, accumulate: bool = False) -> Cost:
    """FLOP of writing by flat index: an addition for each element where it accumulates."""
    return index_put(x, index, source, accumulate)


def embedding_bag(weight: Shape, indices: Shape, mode: int = 0, outs: tuple[Shape, ...] = ()) -> Cost:
    """FLOP of sums of looked-up rows.

    An addition for each element, a mean (mode 1) a division for each output.
    """
    gathered = indices.numel * weight[-1]
    return elementwise(gathered + (outs[0].numel if mode == 1 else 0))


def distances(x1: Shape, x2: Shape, out: Shape, p: float = 2.0) -> Cost:
    """FLOP of all pairwise distances: subtract, power and sum along the width, a root."""
    return elementwise(out.numel * (3 * x1[-1] - 1 + (0 if p in (0, 1, math.inf) else 1)))


def distances_backward(grad: Shape, x1: Shape) -> Cost:
    """FLOP of the gradient of pairwise distances: subtract, divide, two products, sum, along the width."""
    return elementwise(grad.numel * 5 * x1[-1])


def neighbours(x: Shape, p: float = 2.0, out: Shape | None = None) -> Cost:
    """FLOP of the distances within one set."""
    return distances(x, x, out or Shape(()), p)


def isin(elements: object, test_elements: object) -> Cost:
    """FLOP of looking each element up among others, sorted: log2 m compares, and one for a single one."""
    if not isinstance(elements, Shape):
        return Cost()
    among = test_elements.numel if isinstance(test_elements, Shape) else 1
    return floating(elements, elements.numel * max(among, 1).bit_length())


def bins(x: Shape, bins: Sequence[Shape]) -> Cost:
    """FLOP of finding each coordinate's bin between given edges: log2 compares."""
    rows = x.numel // max(len(bins), 1)
    return floating(x, sum(rows * edges.numel.bit_length() for edges in bins))


def _is_search(compares: Callable[[Shape, Shape], int]) -> Formula:
    def formula(sorted_or_x: Shape, other: Shape, out: Shape) -> Cost:
        return floating(other, compares(sorted_or_x, other))

    return formula


def _search(length: Shape, values: Shape) -> int:
    return values.numel * max(length[-1], 1).bit_length()


REDUCTIONS: dict[str, Formula] = {
    **dict.fromkeys(
        ("sum", "nansum", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "trace"), total
    ),
    **dict.fromkeys(("_sparse_sum", "_sparse_csr_sum", "_sparse_csr_prod", "_nested_sum_backward"), total),
    "_sparse_sum_backward": lambda grad: Cost(),
    # equal places are summed: an addition for each element that is no longer stored
    "_coalesce": lambda x, out: floating(x, x.stored - out.stored),
    "all": total,
    "any": total,
    "count_nonzero": total,
    "aminmax": lambda x, outs: floating(x, 2 * (x.numel - outs[0].numel)),
    "_aminmax": lambda x, outs: floating(x, 2 * (x.numel - outs[0].numel)),
    "mean": mean,
    "var": variance,
    "var_mean": variance,
    "std": deviation,
    "std_mean": deviation,
    "linalg_vector_norm": norm,
    **dict.fromkeys(("linalg__powsum", "powsum"), lambda x, out: floating(x, 2 * x.numel - out.numel)),
    "norm": p_norm,
    "native_norm": p_norm,
    "dist": lambda x, other, out, p=2: norm(x, out, p) + floating(x, x.numel),
    "renorm": lambda x, out, p: norm(x, Shape((1,)), p) + floating(x, x.numel),
    "cumsum": scan,
    "cumprod": scan,
    "cummax": scan,
    "cummin": scan,
    "_cummax_helper": scan,
    "_cummin_helper": scan,
    "logcumsumexp": along(5, 5),
    "_logcumsumexp": along(5, 5),
    "logsumexp": logsumexp,
    # a row of D: maximum D - 1, subtract D, exp D, sum D - 1, divide D
    **dict.fromkeys(
        ("_softmax", "softmax", "_safe_softmax", "_masked_softmax", "_sparse_softmax"), along(5, 2)
    ),
    "_nested_tensor_softmax_with_shape": along(5, 2),
    # maximum D - 1, subtract D, exp D, sum D - 1, log 1, subtract D
    **dict.fromkeys(("_log_softmax", "log_softmax", "_sparse_log_softmax"), along(5, 1)),
    # y · (g - Σ g·y): product D, sum D - 1, subtract D, product D
    "_softmax_backward_data": along(4, 1),
    "_masked_softmax_backward": along(4, 1),
    "_sparse_softmax_backward_data": along(4, 1),
    # g - exp(y) · Σ g: sum D - 1, exp D, product D, subtract D
    "_log_softmax_backward_data": along(4, 1),
    "_sparse_log_softmax_backward_data": along(4, 1),
    **dict.fromkeys(("sort", "topk", "kthvalue", "mode"), sort),
    **dict.fromkeys(
        (
            *("median", "nanmedian", "_unique", "_unique2", "unique_dim", "unique_consecutive"),
            *("unique_dim_consecutive", "histc", "histogram"),
        ),
        sort_all,
    ),
    "searchsorted": _is_search(_search),
    "bucketize": _is_search(lambda x, boundaries: _search(boundaries, x)),
    "isin": isin,
    "_histogramdd_bin_edges": lambda x: floating(x, 2 * x.numel),  # both extremes of each column
    "_histogramdd_from_bin_cts": lambda x: floating(x, 3 * x.numel),  # subtract, scale, floor
    "_histogramdd_from_bin_tensors": bins,
    "scatter": scatter,
    "scatter_add": each_of(3),
    "scatter_reduce": each_of(3),
    "index_add": index_add,
    "index_reduce": lambda x, source: floating(source, source.numel),
    "index_put": index_put,
    "_index_put_impl": index_put,
    "_unsafe_index_put": index_put,
    "_unsafe_masked_index_put_accumulate": each_of(3),
    "put": put,
    "embedding_dense_backward": each_of(0),
    "embedding_renorm": lambda x, indices: elementwise(2 * indices.numel * x[-1]),
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "_embedding_bag_backward": lambda grad, indices: elementwise(indices.numel * grad[-1]),
    "_embedding_bag_dense_backward": lambda grad, indices: elementwise(indices.numel * grad[-1]),
    "_embedding_bag_per_sample_weights_backward": lambda grad, indices: elementwise(
        indices.numel * (2 * grad[-1] - 1)
    ),
    "unfold_backward": each_of(0),
    "col2im": each_of(0),
    "_cdist_forward": distances,
    "_cdist_backward": distances_backward,
    "_pdist_forward": neighbours,
    "_pdist_backward": distances_backward,
    "linalg_cross": lambda x, out: floating(out, 3 * out.numel),
    "segment_reduce": lambda data, out: floating(data, data.numel - out.numel),
    "_segment_reduce_backward": each_of(0),
    "bincount": lambda x, weights=None: Cost() if weights is None else floating(weights, weights.numel),
    "equal": each_of(0),
    "allclose": each_of(0, units=5),  # subtract, abs, tolerance 2, compare
    "masked_scatter_backward": lambda grad: Cost(),
}
