"""Distance correlation: exact, in little memory, with an analytic gradient.

Let a_ij = |x_i - x_j| and b_ij = |y_i - y_j| be distances. Let A_ij = a_ij - a_i. - a_.j + a.. be doubly centred distances,
where a dot is the mean over an index, and B likewise. Then

    dCov^2(X, Y) = 1/n^2 sum_ij A_ij B_ij = 1/n^2 sum_ij a_ij B_ij
    dCor^2(X, Y) = dCov^2(X, Y) / sqrt(dCov^2(X, X) dCov^2(Y, Y))

dCor^2 lies in [0, 1]. In the limit of many rows it is 0 only if X and Y are independent; on few rows it is biased
upwards. For classes b_ij = 1[y_i != y_j]. Then B = -C C^T with the centred one-hot labels C (n, K), and
dCov^2(Y, Y) = |C^T C / n|^2. For X the row means of the distances are enough:
dCov^2(X, X) = mean a^2 + a..^2 - 2 mean_i a_i.^2, where mean a^2 = 2 mean |x_i - mean|^2. The gradient is

    W_ij = (alpha B_ij + beta A_ij) / a_ij,   0 where a_ij = 0
    d/dx_i [ alpha/2 sum aB + beta/4 sum A^2 ] = sum_j W_ij (x_i - x_j)

Distances are computed in blocks of rows and columns, one of each mirrored pair, and again for the gradient.

Y may be rows of a table (`Table`): b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ, which is
the Euclidean distance where each category stands for a unit vector over sqrt(2).

Source: Szekely, Rizzo and Bakirov, "Measuring and testing dependence by correlation of distances", 2007; the squared
statistic: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.numerics.table_distances import CentredRows, Table

_BLOCK = 1024
_NEAR = 1e-3  # squared distance / squared norms below which |x|^2 + |y|^2 - 2 x.y loses too many digits in float32
_SAME = 1e-14  # ... and all digits in float64
_FEW = 8  # in a block with a share of at most 1/8 of near pairs, these are computed one by one


def distance_correlation(x: Tensor, y: Tensor | Table, statistic: Literal["squared", "root"] = "squared") -> Tensor:
    """dCor^2(X, Y), or its root, as a float64 scalar that is differentiable in x.

    x: (n, d) floating. y: (n,) integers or booleans are classes, at distance 1 from each other; (n,) or (n, k) floating
    values have Euclidean distances; a `Table` has both. Coinciding points contribute nothing to the gradient. If x or y is
    constant, the value and the gradient are 0. Memory: a few times x and a few blocks of 1024^2. Relative accuracy about
    1e-6 in float32 and 1e-12 in float64. Raises ValueError for other shapes.
    """
    shapes = [tuple(part.shape) for part in ((y.numeric, y.categorical) if isinstance(y, Table) else (y,))]
    allowed = (2,) if isinstance(y, Table) else (1, 2)
    if x.dim() != 2 or not len(x) or any(len(shape) not in allowed or shape[0] != len(x) for shape in shapes):
        problem = f"x must be (n, d), y (n,), (n, k) or a table of n rows, n > 0; got {tuple(x.shape)} and {shapes}"
        raise ValueError(problem)
    squared = _DistanceCorrelation.apply(x, _centred(y))
    if statistic == "squared":
        return squared
    return squared.sqrt() if squared > 0 else squared  # the root has no derivative at 0


def _centred(y: Tensor | Table) -> "_Classes | _Numbers | CentredRows":
    if isinstance(y, Table):
        return CentredRows.of(y, _Points(y.numeric.double()))
    return _Numbers.of(y) if y.is_floating_point() else _Classes.of(y)


class _DistanceCorrelation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, centred_y: "_Classes | _Numbers | CentredRows") -> Tensor:
        n, spread = len(x), (x.detach() - x.detach().mean(dim=0)).abs().max().item()
        ctx.covariance = ctx.variance = 0.0
        if spread > 0 and centred_y.variance > 0 and math.isfinite(spread):
            unit = 2.0 ** math.frexp(spread)[1]  # dividing by a power of two is exact; dCor does not depend on the unit
            points = _Points(x.detach() / unit)
            row_sums, product = torch.zeros(n, dtype=torch.float64, device=x.device), 0.0
            for rows, columns, a in points.blocks():
                row_sums[rows] += a.sum(dim=1, dtype=torch.float64)
                if rows != columns:
                    row_sums[columns] += a.sum(dim=0, dtype=torch.float64)
                product += (1 if rows == columns else 2) * centred_y.product(rows, columns, a)
            ctx.points, ctx.centred_y, ctx.unit = points, centred_y, unit
            ctx.row_means = row_sums / n
            ctx.mean = ctx.row_means.mean().item()
            ctx.covariance = product / n**2
            ctx.variance = points.mean_square + ctx.mean**2 - 2 * ctx.row_means.square().mean().item()
        if ctx.variance <= 0 or ctx.covariance <= 0:
            ctx.covariance = 0.0
            return torch.zeros((), dtype=torch.float64, device=x.device)
        ctx.value = ctx.covariance / math.sqrt(ctx.variance * centred_y.variance)
        ctx.dtype = x.dtype
        return torch.tensor(ctx.value, dtype=torch.float64, device=x.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None]:
        if ctx.covariance == 0:
            return None, None
        points, centred_y, n = ctx.points, ctx.centred_y, len(ctx.points.x)
        # d value = value (d covariance / covariance - d variance / (2 variance))
        scale = upstream.item() * ctx.value / ctx.unit
        alpha, beta = 2 * scale / (n**2 * ctx.covariance), -2 * scale / (n**2 * ctx.variance)
        gradient = torch.zeros_like(points.x)
        half = ctx.row_means - ctx.mean / 2  # A_ij = a_ij - half_i - half_j
        for rows, columns, a in points.blocks():
            w = centred_y.block(rows, columns, a.dtype).mul_(alpha).add_(a, alpha=beta)
            w -= (beta * half[rows]).to(a.dtype)[:, None]
            w -= (beta * half[columns]).to(a.dtype)[None, :]
            w.div_(a.masked_fill_(a == 0, math.inf))
            x_rows, x_columns = points.centred(rows, a.dtype), points.centred(columns, a.dtype)
            gradient[rows] += x_rows * w.sum(dim=1, keepdim=True) - w @ x_columns
            if rows != columns:
                gradient[columns] += x_columns * w.sum(dim=0)[:, None] - w.T @ x_rows
        return gradient.to(ctx.dtype), None


class _Points:
    """The rows of X and their distances, block by block. mean_square: mean squared distance of all pairs."""

    def __init__(self, x: Tensor):
        self.x = x
        self._mean = x.mean(dim=0, dtype=torch.float64)
        self._centred = x - self._mean.to(x.dtype)
        self._lengths = self._centred.square().sum(dim=1, keepdim=True)
        cuts = [slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK)]
        self.mean_square = 2 * sum(self.centred(c, torch.float64).square().sum().item() for c in cuts) / len(x)

    def centred(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """x - mean. In float64 it is computed from x in float64, without rounding to float32 first."""
        return self._centred[rows] if dtype == self._centred.dtype else self.x[rows].to(dtype) - self._mean

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yields rows, columns and their distances (rows, columns), for the blocks on and above the diagonal."""
        cuts = range(0, len(self.x), _BLOCK)
        for top in cuts:
            for left in cuts[top // _BLOCK :]:
                rows, columns = slice(top, top + _BLOCK), slice(left, left + _BLOCK)
                yield rows, columns, self.distances(rows, columns)

    def distances(self, rows: slice, columns: slice) -> Tensor:
        """(rows, columns) distances."""
        squares = torch.addmm(self._lengths[columns].T, self._centred[rows], self._centred[columns].T, alpha=-2)
        squares += self._lengths[rows]
        longest = (self._lengths[rows].max() + self._lengths[columns].max()).item()
        same = rows == columns
        if same:
            squares.fill_diagonal_(math.inf)
        if squares.min().item() < _NEAR * longest:
            squares = self._recompute_near(squares, rows, columns, longest)
        if same:
            squares.fill_diagonal_(0.0)
        return squares.sqrt_()

    def _recompute_near(self, squares: Tensor, rows: slice, columns: slice, longest: float) -> Tensor:
        """Recompute near pairs, which lost digits to cancellation: one by one, or the whole block in float64 if many."""
        near = squares < _NEAR * longest
        count = int(near.sum())
        if _FEW * count <= squares.numel():
            i, j = near.nonzero(as_tuple=True)
            squares[i, j] = (self.x[rows][i] - self.x[columns][j]).square_().sum(dim=1)
            return squares
        if squares.dtype != torch.float64:
            left, right = (self.centred(place, torch.float64) for place in (rows, columns))
            lengths = left.square().sum(1), right.square().sum(1)
            squares = torch.addmm(lengths[0][:, None] + lengths[1], left, right.T, alpha=-2)
        return squares.masked_fill_(squares < _SAME * longest, 0.0)


@dataclass(frozen=True)
class _Classes:
    """Centred distances of classes: B = -C C^T. centred: C (n, K). variance: dCov^2(Y, Y)."""

    centred: Tensor
    variance: float

    @staticmethod
    def of(y: Tensor) -> "_Classes":
        if y.dim() != 1:
            raise ValueError(f"classes must be (n,), got {tuple(y.shape)}")
        one_hot = torch.nn.functional.one_hot(y.long().unique(return_inverse=True)[1]).double()
        centred = one_hot - one_hot.mean(dim=0)
        variance = (centred.T @ centred / len(y)).square().sum().item() if one_hot.shape[1] > 1 else 0.0
        return _Classes(centred, variance)

    def block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """B (rows, columns)."""
        return -self.centred[rows].to(dtype) @ self.centred[columns].to(dtype).T

    def product(self, rows: slice, columns: slice, a: Tensor) -> float:
        """sum a_ij B_ij over the block."""
        return -(self.centred[rows] * (a @ self.centred[columns].to(a.dtype)).double()).sum().item()


@dataclass(frozen=True)
class _Numbers:
    """Centred Euclidean distances of numbers, computed block by block.

    values: (n, k). half: (n,) row means of the distances, minus half of their mean. variance: dCov^2(Y, Y).
    """

    values: Tensor
    half: Tensor
    variance: float

    @staticmethod
    def of(y: Tensor) -> "_Numbers":
        values = (y[:, None] if y.dim() == 1 else y).double()
        values = values - values.mean(dim=0)
        unit = values.abs().max().item()
        values = values / unit if unit > 0 else values
        sums, squares = torch.zeros(len(y), dtype=torch.float64, device=y.device), 0.0
        for start in range(0, len(y), _BLOCK):
            b = torch.cdist(values[start : start + _BLOCK], values, compute_mode="donot_use_mm_for_euclid_dist")
            sums[start : start + _BLOCK] = b.sum(dim=1)
            squares += b.square().sum().item()
        means = sums / len(y)
        mean = means.mean().item()
        variance = squares / len(y) ** 2 + mean**2 - 2 * means.square().mean().item()
        return _Numbers(values, means - mean / 2, variance if variance > 1e-14 * squares / len(y) ** 2 else 0.0)

    def block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """B (rows, columns)."""
        b = torch.cdist(self.values[rows], self.values[columns], compute_mode="donot_use_mm_for_euclid_dist")
        return (b - self.half[rows][:, None] - self.half[columns]).to(dtype)

    def product(self, rows: slice, columns: slice, a: Tensor) -> float:
        """sum a_ij B_ij over the block."""
        return (a * self.block(rows, columns, a.dtype)).sum(dtype=torch.float64).item()
