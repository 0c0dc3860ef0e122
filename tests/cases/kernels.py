"""Operations off the beaten track: quantized, complex, sparse, factorized, transformed, deformed."""

from __future__ import annotations

from tests.cases.case import PTFLOPS, PYTORCH, THOP, Case
from tests.cases.products import LINEAR

CASES = (
    Case(  # integer products count like floating ones
        "quantized",
        "quantized",
        "quantized(nn.Sequential(nn.Linear(6, 8, bias=False)))",
        "d(5, 6)",
        LINEAR,
        None,
        f"{THOP}issues/202",
    ),
    Case(  # a complex multiply-add is 4 real ones
        "complex",
        "layout and dtype",
        "Weighted(lambda x, w: x @ w, 6, 8, dtype=torch.cfloat)",
        "r(5, 6, dtype=torch.cfloat)",
        4 * LINEAR,
        2 * 4 * LINEAR,
        f"{PYTORCH}issues/93121",
    ),
    Case(  # 4 + 3 + 2 + 1 stored elements, each with 3 columns; the sparse side needs no gradient
        "sparse",
        "sparse",
        "function(lambda s, x: torch.sparse.mm(s, x))",
        "d(4, 4).tril().to_sparse(), r(4, 3)",
        2 * (4 + 3 + 2 + 1) * 3,
        2 * (4 + 3 + 2 + 1) * 3,
        f"{PYTORCH}issues/123800",
    ),
    Case(  # a third of n cubed
        "cholesky",
        "factorization",
        "function(lambda x: torch.linalg.cholesky(x))",
        "torch.eye(9)",
        9**3 // 3,
        None,
        f"{PYTORCH}issues/93121",
        all_work=True,
    ),
    Case(  # 5 n log2 n, half of it where one side is real: three of 16 points
        "fourier",
        "factorization",
        "function(lambda x: torch.fft.rfft(x))",
        "d(3, 16)",
        3 * 5 * 16 * 4 // 2,
        None,
        f"{PYTORCH}issues/165425",
        all_work=True,
    ),
    Case(  # the convolution; where its taps come from is element-wise work
        "deformable",
        "torchvision",
        "deformable(3, 4, 3, bias=False).requires_grad_(False)",
        "d(1, 3, 6, 6), d(1, 18, 4, 4)",
        2 * 1 * 4 * 3 * (3 * 3) * (4 * 4),
        None,
        PTFLOPS,
    ),
)
