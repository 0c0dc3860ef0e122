"""FLOP of factorizations and Fourier transforms.

Their published leading term, for each matrix or line of a batch.

Letters: m x n a matrix, k = min(m, n), r right-hand sides.
Source: Golub and Van Loan, Matrix Computations, 4th edition: Cholesky n³/3 (4.2.5), LU 2n³/3 (3.2),
triangular solve n² (3.1), Householder QR 2n²(m - n/3) (5.2.2), SVD 6mn² + 20n³ with both sides, 4mn² + 8n³
less (8.6.3), symmetric eigenproblem 9n³, values alone 4n³/3 (8.3), general eigenproblem 25n³, values alone
10n³ (7.5).
Fourier: 5 n log2 n for n complex points (Van Loan 1992, section 1.4), half of it for real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from measurements.formulas.contractions import product
from measurements.formulas.cost import Cost, Formula, elementwise
from measurements.records import Shape


def _each_matrix(leading: Callable[[int, int], int]) -> Formula:
    """The formula of a leading term in m and n, once for each matrix of the batch.

    Complex arithmetic is 4 times as much.
    """

    def formula(x: Shape) -> Cost:
        return elementwise(math.prod(x[:-2]) * leading(x[-2], x[-1]) * (4 if x.is_complex else 1))

    return formula


def _tall(leading: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """A leading term in m ≥ n, for matrices of either orientation."""
    return lambda m, n: leading(max(m, n), min(m, n))


def _solves(factor: Callable[[int], int], each: Callable[[int], int]) -> Formula:
    """The formula of a factorization of an n x n matrix and so many operations for each right-hand side."""

    def formula(x: Shape, other: Shape) -> Cost:
        n = x[-1]
        sides = 1 if len(other) < len(x) else other[-1]
        return elementwise(math.prod(x[:-2]) * (factor(n) + each(n) * sides))

    return formula


def triangular(x: Shape, b: Shape) -> Cost:
    """FLOP of a triangular solve.

    Count: n² for each right-hand side. Shapes: one of them (…, n, n), the other (…, n, r).
    """
    n = x[-1] if x[-1] == x[-2] else b[-1]
    return elementwise((b.numel if x[-1] == x[-2] else x.numel) * n)


def svd(A: Shape, full_matrices: bool = False, compute_uv: bool = True) -> Cost:
    """FLOP of a singular value decomposition."""
    m, n = max(A[-2:]), min(A[-2:])
    return elementwise(
        math.prod(A[:-2]) * (6 * m * n * n + 20 * n**3 if compute_uv else 4 * m * n * n + 8 * n**3)
    )


def eigh(A: Shape, UPLO: str = "L", compute_v: bool = True) -> Cost:
    """FLOP of a symmetric eigenproblem."""
    return elementwise(math.prod(A[:-2]) * (9 * A[-1] ** 3 if compute_v else 4 * A[-1] ** 3 // 3))


def lstsq(x: Shape, b: Shape) -> Cost:
    """FLOP of least squares by Householder QR: 2n²(m - n/3), and 4mn for each right-hand side."""
    m, n = max(x[-2:]), min(x[-2:])
    return elementwise(math.prod(x[:-2]) * (2 * m * n * n - 2 * n**3 // 3 + 4 * m * n * b[-1]))


def reflectors(x: Shape, tau: Shape, other: Shape | None = None) -> Cost:
    """FLOP of applying k Householder reflectors: 4 for each element of the matrix and reflector."""
    return elementwise(4 * (x if other is None else other).numel * tau[-1])


def fourier(real: bool) -> Callable[..., Cost]:
    """The formula of a Fourier transform over some axes: 5 n log2 n, half of it where one side is real."""

    def formula(x: Shape, dim: Sequence[int], outs: tuple[Shape, ...]) -> Cost:
        points = max(x.numel, outs[0].numel) if real else x.numel
        sizes = [max(x[axis], outs[0][axis]) if real else x[axis] for axis in dim]
        flop = 5 * points * math.log2(max(math.prod(sizes), 1))
        return elementwise(round(flop / 2) if real else round(flop))

    return formula


CHOLESKY = _each_matrix(lambda m, n: n**3 // 3)
LU = _each_matrix(_tall(lambda m, n: m * n * n - n**3 // 3))

FACTORIZATIONS: dict[str, Formula] = {
    "linalg_cholesky_ex": CHOLESKY,
    "cholesky": CHOLESKY,
    "cholesky_inverse": _each_matrix(lambda m, n: 2 * n**3 // 3),
    "cholesky_solve": lambda x, input2: elementwise(2 * x.numel * input2[-1]),
    "_cholesky_solve_helper": lambda x, A: elementwise(2 * x.numel * A[-1]),
    "linalg_ldl_factor_ex": CHOLESKY,
    "linalg_ldl_solve": lambda LD, pivots, B: elementwise(2 * B.numel * LD[-1]),
    "linalg_lu": LU,
    "linalg_lu_factor_ex": LU,
    "linalg_lu_solve": lambda LU, pivots, B: elementwise(2 * B.numel * LU[-1]),
    "_linalg_det": _each_matrix(lambda m, n: 2 * n**3 // 3),
    "_linalg_slogdet": _each_matrix(lambda m, n: 2 * n**3 // 3),
    "linalg_inv_ex": _each_matrix(lambda m, n: 2 * n**3),
    "_linalg_solve_ex": _solves(lambda n: 2 * n**3 // 3, lambda n: 2 * n * n),
    "_spsolve": _solves(lambda n: 2 * n**3 // 3, lambda n: 2 * n * n),
    "linalg_solve_triangular": triangular,
    "triangular_solve": lambda x, A: triangular(A, x),
    "linalg_qr": _each_matrix(_tall(lambda m, n: 4 * m * n * n - 4 * n**3 // 3)),
    "geqrf": _each_matrix(_tall(lambda m, n: 2 * m * n * n - 2 * n**3 // 3)),
    "linalg_householder_product": reflectors,
    "ormqr": lambda x, input2, input3: reflectors(x, input2, input3),
    "_linalg_svd": svd,
    "_linalg_eigh": eigh,
    "linalg_eig": _each_matrix(lambda m, n: 25 * n**3),
    "_linalg_eigvals": _each_matrix(lambda m, n: 10 * n**3),
    "linalg_eigvals": _each_matrix(lambda m, n: 10 * n**3),
    "linalg_pinv": _each_matrix(_tall(lambda m, n: 6 * m * n * n + 20 * n**3)),
    "linalg_polar": _each_matrix(_tall(lambda m, n: 6 * m * n * n + 20 * n**3)),  # by the singular values
    "linalg_matrix_sqrth": _each_matrix(lambda m, n: 9 * n**3),  # by the eigenvalues
    "linalg_lstsq": lstsq,
    "linalg_matrix_exp": _each_matrix(lambda m, n: 2 * n**3),
    "_compute_linear_combination": lambda x, coefficients: product(
        coefficients, Shape((x[0], x.numel // x[0]))
    ),
    "_fft_c2c": fourier(real=False),
    "_fft_r2c": fourier(real=True),
    "_fft_c2r": fourier(real=True),
}
