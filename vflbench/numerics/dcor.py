"""Distance correlation, exact, in little memory, with an analytic gradient.

Distances a_ij = |x_i - x_j| and b_ij = |y_i - y_j|, doubly centred: A_ij = a_ij - a_i. - a_.j + a.. (means), B alike. Then

    dCov^2(X, Y) = 1/n^2 sum_ij A_ij B_ij = 1/n^2 sum_ij a_ij B_ij
    dCor^2(X, Y) = dCov^2(X, Y) / sqrt(dCov^2(X, X) dCov^2(Y, Y))

in [0, 1], 0 in the limit of many rows only if X and Y are independent; of few rows it is biased upwards. Between classes
b_ij = 1[y_i != y_j], for which B = -C C^T with the centred one-hot labels C (n, K), and dCov^2(Y, Y) = |C^T C / n|^2. Of X
only the row sums of distances are needed beside: dCov^2(X, X) = mean a^2 + a..^2 - 2 mean_i a_i.^2, where
mean a^2 = 2 mean |x_i - mean|^2. With

    W_ij = (alpha B_ij + beta A_ij) / a_ij,   0 where a_ij = 0
    d/dx_i [ alpha/2 sum aB + beta/4 sum A^2 ] = sum_j W_ij (x_i - x_j)

Distances come in blocks of rows, one of each mirrored pair, and are computed again for the gradient.

Source: Szekely, Rizzo and Bakirov, "Measuring and testing dependence by correlation of distances", 2007; the statistic
without the root: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

_BLOCK = 1024
_NEAR = 1e-3  # squared distance beside squared lengths, below which float32 products of lengths say too little
_SAME = 1e-14  # ... and float64 ones nothing
_FEW = 8  # a block with at most a share 1/8 of near pairs has these computed one by one


def distance_correlation(x: Tensor, y: Tensor, statistic: Literal["squared", "root"] = "squared") -> Tensor:
    """dCor^2(X, Y), or its root, as a float64 scalar that is differentiable in x.

    x: (n, d) floating. y: (n,) integers or booleans are classes, all equally far from each other; (n,) or (n, k) floating
    numbers are as far apart as they are. Points that coincide have no direction to move apart in, and no part in the
    gradient. Where x or y is constant nothing can be told: 0, with gradient 0. Memory: a few times x and a few blocks of
    1024^2. Relative accuracy about 1e-6 in float32, 1e-12 in float64. Raises ValueError for other shapes.
    """
    if x.dim() != 2 or y.dim() not in (1, 2) or len(x) != len(y) or not len(x):
        raise ValueError(f"x must be (n, d), y (n,) or (n, k), n > 0; got {tuple(x.shape)} and {tuple(y.shape)}")
    squared = _DistanceCorrelation.apply(x, _Others.of(y))
    if statistic == "squared":
        return squared
    return squared.sqrt() if squared > 0 else squared  # the root has no derivative at 0


class _DistanceCorrelation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, others: "_Others") -> Tensor:
        n, spread = len(x), (x.detach() - x.detach().mean(dim=0)).abs().max().item()
        ctx.covariance = ctx.variance = 0.0
        if spread > 0 and others.variance > 0 and math.isfinite(spread):
            unit = 2.0 ** math.frexp(spread)[1]  # a power of two loses no digit; dCor does not see it
            points = _Points(x.detach() / unit)
            row_sums, product = torch.zeros(n, dtype=torch.float64, device=x.device), 0.0
            for rows, columns, a in points.blocks():
                row_sums[rows] += a.sum(dim=1, dtype=torch.float64)
                if rows != columns:
                    row_sums[columns] += a.sum(dim=0, dtype=torch.float64)
                product += (1 if rows == columns else 2) * others.product(rows, columns, a)
            ctx.points, ctx.others, ctx.unit = points, others, unit
            ctx.row_means = row_sums / n
            ctx.mean = ctx.row_means.mean().item()
            ctx.covariance = product / n**2
            ctx.variance = points.mean_square + ctx.mean**2 - 2 * ctx.row_means.square().mean().item()
        if ctx.variance <= 0 or ctx.covariance <= 0:
            ctx.covariance = 0.0
            return torch.zeros((), dtype=torch.float64, device=x.device)
        ctx.value = ctx.covariance / math.sqrt(ctx.variance * others.variance)
        ctx.dtype = x.dtype
        return torch.tensor(ctx.value, dtype=torch.float64, device=x.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None]:
        if ctx.covariance == 0:
            return None, None
        points, others, n = ctx.points, ctx.others, len(ctx.points.x)
        # d value = value (d covariance / covariance - d variance / (2 variance))
        scale = upstream.item() * ctx.value / ctx.unit
        alpha, beta = 2 * scale / (n**2 * ctx.covariance), -2 * scale / (n**2 * ctx.variance)
        gradient = torch.zeros_like(points.x)
        half = ctx.row_means - ctx.mean / 2  # A_ij = a_ij - half_i - half_j
        for rows, columns, a in points.blocks():
            w = others.block(rows, columns, a.dtype).mul_(alpha).add_(a, alpha=beta)
            w -= (beta * half[rows]).to(a.dtype)[:, None]
            w -= (beta * half[columns]).to(a.dtype)[None, :]
            w.div_(a.masked_fill_(a == 0, math.inf))
            x_rows, x_columns = points.centred(rows, a.dtype), points.centred(columns, a.dtype)
            gradient[rows] += x_rows * w.sum(dim=1, keepdim=True) - w @ x_columns
            if rows != columns:
                gradient[columns] += x_columns * w.sum(dim=0)[:, None] - w.T @ x_rows
        return gradient.to(ctx.dtype), None


class _Points:
    """Rows of numbers, and their distances block by block. mean_square: of the distances of all pairs."""

    def __init__(self, x: Tensor):
        self.x = x
        self._mean = x.mean(dim=0, dtype=torch.float64)
        self._centred = x - self._mean.to(x.dtype)
        self._lengths = self._centred.square().sum(dim=1, keepdim=True)
        cuts = [slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK)]
        self.mean_square = 2 * sum(self.centred(c, torch.float64).square().sum().item() for c in cuts) / len(x)

    def centred(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """x - mean, without a loss of digits if asked for in float64."""
        return self._centred[rows] if dtype == self._centred.dtype else self.x[rows].to(dtype) - self._mean

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Rows, columns and their distances (rows, columns), for columns that don't lie before the rows."""
        cuts = range(0, len(self.x), _BLOCK)
        for top in cuts:
            for left in cuts[top // _BLOCK :]:
                rows, columns = slice(top, top + _BLOCK), slice(left, left + _BLOCK)
                yield rows, columns, self._distances(rows, columns)

    def _distances(self, rows: slice, columns: slice) -> Tensor:
        squares = torch.addmm(self._lengths[columns].T, self._centred[rows], self._centred[columns].T, alpha=-2)
        squares += self._lengths[rows]
        longest = (self._lengths[rows].max() + self._lengths[columns].max()).item()
        same = rows == columns
        if same:
            squares.fill_diagonal_(math.inf)
        if squares.min().item() < _NEAR * longest:
            squares = self._closer(squares, rows, columns, longest)
        if same:
            squares.fill_diagonal_(0.0)
        return squares.sqrt_()

    def _closer(self, squares: Tensor, rows: slice, columns: slice, longest: float) -> Tensor:
        """Near pairs, of which the lengths leave few digits, again: one by one, or if they are many all in float64."""
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
class _Others:
    """What is held against the points: B = -C C^T of classes, or the centred distances of numbers.

    classes: C (n, K), or None. numbers: (n, k), or None, and their distances' row means. variance: dCov^2(Y, Y).
    """

    classes: Tensor | None
    numbers: Tensor | None
    half: Tensor | None
    variance: float

    @staticmethod
    def of(y: Tensor) -> "_Others":
        if not y.is_floating_point():
            if y.dim() != 1:
                raise ValueError(f"classes must be (n,), got {tuple(y.shape)}")
            one_hot = torch.nn.functional.one_hot(y.long().unique(return_inverse=True)[1]).double()
            centred = one_hot - one_hot.mean(dim=0)
            variance = (centred.T @ centred / len(y)).square().sum().item() if one_hot.shape[1] > 1 else 0.0
            return _Others(centred, None, None, variance)
        numbers = (y[:, None] if y.dim() == 1 else y).double()
        numbers = numbers - numbers.mean(dim=0)
        unit = numbers.abs().max().item()
        numbers = numbers / unit if unit > 0 else numbers
        sums, squares = torch.zeros(len(y), dtype=torch.float64, device=y.device), 0.0
        for start in range(0, len(y), _BLOCK):
            b = torch.cdist(numbers[start : start + _BLOCK], numbers, compute_mode="donot_use_mm_for_euclid_dist")
            sums[start : start + _BLOCK] = b.sum(dim=1)
            squares += b.square().sum().item()
        means = sums / len(y)
        mean = means.mean().item()
        variance = squares / len(y) ** 2 + mean**2 - 2 * means.square().mean().item()
        return _Others(None, numbers, means - mean / 2, variance if variance > 1e-14 * squares / len(y) ** 2 else 0.0)

    def block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor:
        """B (rows, columns)."""
        if self.classes is not None:
            return -self.classes[rows].to(dtype) @ self.classes[columns].to(dtype).T
        b = torch.cdist(self.numbers[rows], self.numbers[columns], compute_mode="donot_use_mm_for_euclid_dist")
        return (b - self.half[rows][:, None] - self.half[columns]).to(dtype)

    def product(self, rows: slice, columns: slice, a: Tensor) -> float:
        """sum a_ij B_ij over the block."""
        if self.classes is not None:
            return -(self.classes[rows] * (a @ self.classes[columns].to(a.dtype)).double()).sum().item()
        return (a * self.block(rows, columns, a.dtype)).sum(dtype=torch.float64).item()
