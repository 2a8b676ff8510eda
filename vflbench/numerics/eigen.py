"""Eigenvectors of symmetric matrices: the top one, the first ones, or all."""

import torch
from torch import Tensor

_SOLUTIONS = 2
_ABOVE = 1e-15  # of the eigenvalue: how far above it the shift is, so that nothing is divided by 0
_TOLERANCE = 1e-14
_NOTHING = 1e-12  # of the largest eigenvalue: what is below is rounding


def top_eigenvectors(matrices: Tensor) -> Tensor:
    """Unit eigenvectors v of the largest eigenvalue, A v = lambda v, each of arbitrary sign. As accurate as LAPACK's eigh.

        v <- (A - s I)^-1 v,   s just above lambda

    matrices: (m, d, d) float64, positive semidefinite, in any units. Returns (m, d); zeros for a matrix of zeros.

    LAPACK finds the eigenvalues alone, and inverse iteration the one vector: half the work of all eigenvectors. v begins as
    the same vector of mixed signs for all matrices. Where |A v - lambda v| is above 1e-14 lambda in the end, eigh does it.
    """
    largest = matrices.diagonal(dim1=1, dim2=2).amax(dim=1)
    scaled = matrices / torch.where(largest > 0, largest, 1.0)[:, None, None]
    v = _start(matrices)
    try:
        value = torch.linalg.eigvalsh(scaled)[:, -1][:, None, None]
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        converged = torch.zeros(len(matrices), dtype=torch.bool)
    else:
        shifted = scaled - value * (1 + _ABOVE) * torch.eye(scaled.shape[1], dtype=scaled.dtype, device=scaled.device)
        factors = torch.linalg.lu_factor_ex(shifted)
        for _ in range(_SOLUTIONS):
            v = torch.linalg.lu_solve(factors.LU, factors.pivots, v)
            v = v / v.norm(dim=1, keepdim=True).clamp_min(1e-300)
        residual = (scaled @ v - value * v).norm(dim=1)
        converged = (residual <= _TOLERANCE * value[:, 0])[:, 0] & (value > 0)[:, 0, 0]
    v = v[:, :, 0]
    for i in (~converged).nonzero().ravel().tolist():
        v[i] = _by_lapack(scaled[i])[1][:, 0]
    return v


def _start(matrices: Tensor) -> Tensor:
    """(m, d, 1): between -1/2 and 1/2, no two alike: the fractional parts of multiples of the golden ratio."""
    m, d, _ = matrices.shape
    places = torch.arange(1, d + 1, device=matrices.device, dtype=matrices.dtype)
    return (places * 0.6180339887498949 % 1 - 0.5).repeat(m, 1)[:, :, None]


def leading_components(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first right singular vectors of rows that are centred, and the spread of the rows along each of them.

        x = U diag(s) V^T,   spread_j = s_j / sqrt(n)

    x: (n, d), centred, in any units. Returns spreads (count,) in falling order, in units of x, and vectors (d, count), in
    float64 and of arbitrary sign; both are zero beyond the directions in which the rows vary by more than rounding. By way
    of X^T X in float64.
    """
    largest = x.abs().amax().double().clamp_min(torch.finfo(x.dtype).tiny)
    scaled = x.double() / largest
    values, vectors = _by_lapack(scaled.T @ scaled / max(len(x), 1))
    values, vectors = values[:count], vectors[:, :count]
    varies = values > _NOTHING * values[:1]
    values, vectors = torch.where(varies, values, 0), torch.where(varies, vectors, 0)
    missing = count - len(values)
    pad = torch.nn.functional.pad
    return pad(values.sqrt() * largest, (0, missing)), pad(vectors, (0, missing))


def eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (d,) in falling order, none below 0, and the unit eigenvectors in the columns of (d, d).

    matrix: (d, d) float64, symmetric and positive semidefinite. The eigenvector of a row of zeros is zero.
    """
    values, vectors = _by_lapack(matrix)
    return values.clamp_min(0), vectors


def _by_lapack(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (d,) in falling order, and eigenvectors (d, d), a column each."""
    nonzero = matrix.diagonal() > 0  # eigh can fail on matrices with many rows of zeros, which carry no information
    inner = matrix[nonzero][:, nonzero]
    try:
        values, columns = torch.linalg.eigh(inner)
        values, columns = values.flip(0), columns.flip(1)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # eigh fails on some ordinary matrices; the slower SVD does not
        columns, values, _ = torch.linalg.svd(inner)
    all_values, vectors = matrix.new_zeros(len(matrix)), torch.zeros_like(matrix)
    all_values[: len(values)] = values
    rows = nonzero.nonzero()[:, 0]
    vectors[rows, : len(rows)] = columns
    return all_values, vectors
