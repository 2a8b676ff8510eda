"""What each row adds to the sums of the groups that it was in."""

import torch
from torch import Tensor

_STEPS = 300
_TOLERANCE = 1e-8  # of the residual, relative to the first


def rows_of_sums(rows: Tensor, groups: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """The r (n,) of least squares with a ridge, float64, by conjugate gradients; no (n, n) matrix is formed.

        min_r  sum_G (z_G - sum_(i in G) r_i)^2 / |G| + ridge |r|^2

    rows, groups: (m,) places of a row and of a group that it is in; each row is in one at least. sums: z (groups,).
    """
    count = int(rows.max()) + 1
    sizes = groups.bincount(minlength=len(sums)).clamp_min(1).double()

    def added(r: Tensor) -> Tensor:
        return sums.new_zeros(len(sums), dtype=torch.float64).index_add_(0, groups, r[rows]) / sizes

    def back(z: Tensor) -> Tensor:
        return sums.new_zeros(count, dtype=torch.float64).index_add_(0, rows, z[groups])

    residual = back(sums.double() / sizes)
    r, step = torch.zeros_like(residual), residual
    square = first = float(residual @ residual)
    for _ in range(_STEPS):
        if square <= _TOLERANCE**2 * first:
            break
        image = back(added(step)) + ridge * step
        length = square / float(step @ image)
        r, residual = r + length * step, residual - length * image
        before, square = square, float(residual @ residual)
        step = residual + square / before * step
    return r
