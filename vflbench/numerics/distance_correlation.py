"""Distance correlation: exact, in blocks of rows and columns, with an analytic gradient.

Let a_ij = |x_i - x_j| and b_ij = |y_i - y_j| be distances. Let A_ij = a_ij - a_i. - a_.j + a.. be doubly centred distances,
where a dot is the mean over an index, and B likewise. Then

    dCov^2(X, Y) = 1/n^2 sum_ij A_ij B_ij = 1/n^2 sum_ij a_ij B_ij
    dCor^2(X, Y) = dCov^2(X, Y) / sqrt(dCov^2(X, X) dCov^2(Y, Y))

dCor^2 lies in [0, 1]. In the limit of many rows it is 0 only if X and Y are independent; on few rows it is biased
upwards. For classes b_ij = 1[y_i != y_j]. Then B = -C C^T with the centred one-hot labels C (n, K), and
dCov^2(Y, Y) = |C^T C / n|^2. A constant added to all a_ij changes no A_ij, so sums run over e_ij = a_ij - m with a typical
distance m, which leaves them more digits: row means are enough for

    dCov^2(X, X) = mean e^2 + e..^2 - 2 mean_i e_i.^2

The gradient is, with s_i = beta (a../2 - a_i.),

    W_ij = (alpha B_ij + beta A_ij) / a_ij = beta + (alpha B_ij + s_i + s_j) / a_ij,   0 where a_ij = 0
    d/dx_i [ alpha/2 sum aB + beta/4 sum A^2 ] = sum_j W_ij (x_i - x_j)

Distances come from products of matrices, |x|^2 + |y|^2 - 2 x.y: in float32, and in float64 for a block in which two rows are
so near that float32 loses their distance, or for all where one row is so far from the mean that float32 leaves too few
digits for the others. Pairs for which float64 is too coarse as well are subtracted one by one. One block of each mirrored
pair is computed; for many rows, for the value and again for the gradient.

Y may be rows of a table (`MixedColumns`): b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ:
the Euclidean distance where each category stands for a unit vector over sqrt(2).

Source: Szekely, Rizzo and Bakirov, "Measuring and testing dependence by correlation of distances", 2007; the squared
statistic: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.numerics.system import in_full_precision

_BLOCK = 1024
_BLOCK_OF_DEVICES = 8192  # on devices that wait whenever they are asked for a number
_KEPT_ROWS = 8192  # of no more, the distances are kept for the gradient, in up to 144 MiB
_NEAR = 1e-3  # squared distance, over the largest squared norms of a block, below which float32 loses too many digits
_VERY_NEAR = 1e-6  # ... below which rows of float32 are subtracted one from another; of float64 it is `_NEAR`
_STRAY = 64  # squared distance of a row from the mean, over the mean one
_NUMBERS = 2**20  # at a time, of differences of single pairs
_FEW_COLUMNS = 16  # so many are subtracted pair by pair


@dataclass(frozen=True)
class MixedColumns:
    """Rows of numeric columns (n, k), and of categorical ones (n, c), integers; either may have no column."""

    numeric: Tensor
    categorical: Tensor


def distance_correlation(x: Tensor, y: Tensor | MixedColumns, statistic: Literal["squared", "root"] = "squared") -> Tensor:
    """dCor^2(X, Y), or its root, as a float64 scalar that is differentiable in x.

    x: (n, d) floating; below 32 bits, it is computed in float32. y: (n,) integers or booleans are classes, at distance 1
    from each other; (n,) or (n, k) floating values have Euclidean distances; a `MixedColumns` has both. Coinciding points
    add nothing to the gradient. If x or y is constant, the value and the gradient are 0; not finite, the value is nan.

    Memory: a few times x and a few blocks of 1024^2. Relative accuracy of the value and of the norm of the gradient: about
    1e-6 in float32 and 1e-12 in float64. Raises ValueError for other shapes.
    """
    shapes = [tuple(part.shape) for part in ((y.numeric, y.categorical) if isinstance(y, MixedColumns) else (y,))]
    allowed = (2,) if isinstance(y, MixedColumns) or (y.dim() == 2 and y.is_floating_point()) else (1,)
    if x.dim() != 2 or not len(x) or any(len(shape) not in allowed or shape[0] != len(x) for shape in shapes):
        problem = f"x must be (n, d), y (n,), (n, k) or a table of n rows, n > 0; got {tuple(x.shape)} and {shapes}"
        raise ValueError(problem)
    with in_full_precision():
        squared: Tensor = _DistanceCorrelation.apply(x if x.dtype == torch.float64 else x.float(), y)
    if statistic == "squared":
        return squared
    return squared.sqrt() if squared > 0 else squared  # the root has no derivative at 0


class _DistanceCorrelation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | MixedColumns) -> Tensor:
        n, result = len(x), torch.zeros((), dtype=torch.float64, device=x.device)
        centred, of_y = _classes(y) if isinstance(y, Tensor) and not y.is_floating_point() else _rows(y)
        spread, of_y = torch.stack([(x.amax(dim=0).double() - x.amin(dim=0).double()).amax(), of_y]).tolist()
        ctx.covariance = 0.0
        if not (math.isfinite(spread) and math.isfinite(of_y)):
            return result.fill_(math.nan)
        if spread == 0 or of_y == 0:
            return result
        points = _Points(x.detach(), 2.0 ** math.frexp(spread)[1])  # dCor does not depend on the unit
        products, sums = (
            torch.zeros(2, dtype=torch.float64, device=x.device),
            torch.zeros(n, dtype=torch.float64, device=x.device),
        )
        for rows, columns in _blocks(n, x.device):
            a, weight = points.distances(rows, columns, 0.0)[0], 1 if rows == columns else 2
            e = a - points.typical
            b, ones = centred(rows, columns, 1.0, torch.zeros_like(sums, dtype=e.dtype)), torch.ones_like(e[0])
            parts = b.mul_(e).sum(dim=1), torch.linalg.vector_norm(e, dim=1).square()
            products += weight * torch.stack(parts).sum(dim=1, dtype=torch.float64)
            if ctx.needs_input_grad[0] and n <= _KEPT_ROWS and a.dtype == torch.float32:  # has no equal rows
                points.kept[rows.start, columns.start] = a
            sums[rows] += e @ ones
            if rows != columns:
                sums[columns] += ones[: len(e)] @ e if len(e) <= len(ones) else e.sum(dim=0)
        means = sums / n
        moments = torch.cat([products / n**2, (means.mean() ** 2 - 2 * means.square().mean())[None]])
        covariance, square, less = moments.tolist()  # the one number that a card is asked for in the end
        variance = square + less
        if variance > 0 and covariance > 0:
            ctx.covariance, ctx.variance, ctx.means = covariance, variance, means + points.typical
            ctx.points, ctx.centred, ctx.value = points, centred, covariance / math.sqrt(variance * of_y)
            result.fill_(ctx.value)
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None]:
        if ctx.covariance == 0:
            return None, None
        points, n = ctx.points, len(ctx.means)
        # d value = value (d covariance / covariance - d variance / (2 variance))
        alpha, beta = 2 / (n**2 * ctx.covariance), -2 / (n**2 * ctx.variance)
        gradient, weights = torch.zeros_like(points.exact), torch.zeros_like(ctx.means)
        shift = beta * (ctx.means.mean() / 2 - ctx.means)
        with in_full_precision():
            for rows, columns in _blocks(n, gradient.device):
                a, near = points.distances(rows, columns, math.inf)
                w, x = ctx.centred(rows, columns, alpha, shift.to(a.dtype)).div_(a).add_(beta), points.rows(a.dtype)[0]
                for i, j, differences in points.differences(rows, columns, near):
                    terms = differences.mul_(w[i, j, None])
                    w[i, j] = 0
                    gradient[rows].index_add_(0, i, terms)
                    if rows != columns:
                        gradient[columns].index_add_(0, j, terms, alpha=-1)
                weights[rows] += w.sum(dim=1)
                gradient[rows] -= w @ x[columns]
                if rows != columns:
                    weights[columns] += w.sum(dim=0)
                    gradient[columns] -= w.T @ x[rows]
            gradient.addcmul_(points.exact, weights[:, None])
            return (gradient * (upstream * ctx.value) / points.unit).to(points.dtype), None


_Pairs = tuple[Tensor, Tensor]
"""Places in the rows and in the columns of a block."""


class _Points:
    """The rows of x (n, d), less their mean, and their distances, in units of `unit`. typical: the root mean square."""

    def __init__(self, x: Tensor, unit: float):
        self.unit, self.dtype, self._x = unit, x.dtype, x
        self.kept: dict[tuple[int, int], Tensor] = {}  # first row and column -> a block of distances
        self._groups: Tensor | None = None
        self.exact = (x.double() - x.mean(dim=0, dtype=torch.float64)) / unit
        lengths = self.exact.square().sum(dim=1)
        total, longest = torch.stack([lengths.sum(), lengths.amax()]).tolist()
        self.typical = math.sqrt(2 * total / max(1, len(x) - 1))
        self._dtypes = [x.dtype, torch.float64] if longest * len(x) <= _STRAY * total else [torch.float64]
        self._rows = dict[torch.dtype, tuple[Tensor, Tensor]]()

    def rows(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The rows (n, d), and their squared lengths (n, 1)."""
        if dtype not in self._rows:
            x = self.exact.to(dtype)
            self._rows[dtype] = x, x.square().sum(dim=1, keepdim=True)
        return self._rows[dtype]

    def distances(self, rows: slice, columns: slice, of_equal: float) -> tuple[Tensor, _Pairs | None]:
        """a_ij (rows, columns), and the pairs that are so near that their terms of the gradient don't come from products.
        of_equal: what stands between equal rows.
        """
        if (a := self.kept.pop((rows.start, columns.start), None)) is not None:
            return (a.fill_diagonal_(of_equal) if rows == columns else a), None
        for dtype in self._dtypes:
            x, lengths = self.rows(dtype)
            squares = torch.addmm(lengths[rows] + lengths[columns].T, x[rows], x[columns].T, alpha=-2)
            if rows == columns:
                squares.fill_diagonal_(math.inf)
            limit = _NEAR * (lengths[rows].amax() + lengths[columns].amax())
            if dtype == self._dtypes[0] and squares.amin() >= limit:  # the second type is there for near rows alone
                a = squares.sqrt_()
                return (a.fill_diagonal_(of_equal) if rows == columns else a), None
        if self._groups is None:
            self._groups = self._x.unique(dim=0, return_inverse=True)[1]
        equal = self._groups[rows, None] == self._groups[columns]
        limit = (_NEAR if self.dtype == torch.float64 else _VERY_NEAR) * (lengths[rows] + lengths[columns].T)
        i, j = ((squares < limit) & ~equal).nonzero(as_tuple=True)
        near = i, j
        for i, j, differences in self.differences(rows, columns, near):
            squares[i, j] = differences.square_().sum(dim=1)
        return squares.sqrt_().masked_fill_(equal, of_equal), near

    def differences(self, rows: slice, columns: slice, pairs: _Pairs | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pairs of a block, some at a time, and their x_i - x_j (m, d)."""
        size = max(1, _NUMBERS // self._x.shape[1])
        for i, j in zip(*(places.split(size) for places in pairs or ()), strict=True) if pairs else ():
            yield i, j, (self._x[rows][i].double() - self._x[columns][j]) / self.unit


def _blocks(n: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks on and above the diagonal of an (n, n) matrix."""
    size = _BLOCK if device.type == "cpu" else _BLOCK_OF_DEVICES
    cuts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    return ((rows, columns) for place, rows in enumerate(cuts) for columns in cuts[place:])


_Centred = tuple[Callable[[slice, slice, float, Tensor], Tensor], Tensor]
"""Rows, columns, alpha and s (n,) -> alpha B_ij + s_i + s_j (rows, columns) of the type of s; and the mean of B^2."""


def _classes(y: Tensor) -> _Centred:
    one_hot = torch.nn.functional.one_hot(y.unique(return_inverse=True)[1])
    c = one_hot.double() - one_hot.double().mean(dim=0)

    def centred(rows: slice, columns: slice, alpha: float, shift: Tensor) -> Tensor:
        of_rows, of_columns, one = c[rows].to(shift), c[columns].to(shift), torch.ones_like(shift)[:, None]
        left = torch.cat([-alpha * of_rows, shift[rows, None], one[rows]], dim=1)
        return left @ torch.cat([of_columns, one[columns], shift[columns, None]], dim=1).T

    return centred, (c.T @ c / len(y)).square().sum()


def _rows(y: Tensor | MixedColumns) -> _Centred:
    """b_ij, pair by pair where columns are few, in units of the largest number."""
    values = (y.numeric if isinstance(y, MixedColumns) else y.reshape(len(y), -1)).double()
    mode = "donot_use_mm_for_euclid_dist" if values.shape[1] <= _FEW_COLUMNS else "use_mm_for_euclid_dist"

    def distances(rows: slice, columns: slice) -> Tensor:
        b = torch.cdist(values[rows], values[columns], compute_mode=mode)
        if not isinstance(y, MixedColumns):
            return b
        differ = sum((ids[rows, None] != ids[columns]).double() for ids in y.categorical.T)
        return (b.square() + differ).sqrt()

    if not isinstance(y, MixedColumns):
        values = (values - values.mean(dim=0)) / values.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
    n, square, sums = len(values), values.new_zeros(()), values.new_zeros(len(values))
    for rows, columns in _blocks(n, values.device):
        b = distances(rows, columns)
        square += (1 if rows == columns else 2) * b.square().sum() / n**2
        sums[rows] += b.sum(dim=1)
        if rows != columns:
            sums[columns] += b.sum(dim=0)
    means = sums / n
    half = means - means.mean() / 2
    variance = square + means.mean() ** 2 - 2 * means.square().mean()

    def centred(rows: slice, columns: slice, alpha: float, shift: Tensor) -> Tensor:
        less = shift - alpha * half
        return (alpha * distances(rows, columns)).add_(less[rows, None]).add_(less[columns]).to(shift.dtype)

    return centred, variance.masked_fill(variance <= 1e-14 * square, 0.0)
