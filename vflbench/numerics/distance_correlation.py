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
so near that float32 loses their distance; rows nearer than 1e-7 of their length count as equal. One block of each mirrored
pair is computed; for many rows, for the value and again for the gradient.

Y may be rows of a table (`Table`): b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ, which is
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
_KEPT_ROWS = 8192  # of no more, the distances are kept for the gradient, in up to 144 MiB
_NEAR = 1e-3  # squared distance, over the largest squared norms of a block, below which float32 loses too many digits
_FEW_COLUMNS = 16  # so many are subtracted pair by pair


@dataclass(frozen=True)
class Table:
    """Rows of numeric columns (n, k), and of categorical ones (n, c), integers; either may have no column."""

    numeric: Tensor
    categorical: Tensor


def distance_correlation(x: Tensor, y: Tensor | Table, statistic: Literal["squared", "root"] = "squared") -> Tensor:
    """dCor^2(X, Y), or its root, as a float64 scalar that is differentiable in x.

    x: (n, d) floating; below 32 bits, it is computed in float32. y: (n,) integers or booleans are classes, at distance 1
    from each other; (n,) or (n, k) floating values have Euclidean distances; a `Table` has both. Coinciding points add
    nothing to the gradient. If x or y is constant, the value and the gradient are 0; if one is not finite, the value is nan.

    Memory: a few times x and a few blocks of 1024^2. Raises ValueError for other shapes.
    """
    shapes = [tuple(part.shape) for part in ((y.numeric, y.categorical) if isinstance(y, Table) else (y,))]
    allowed = (2,) if isinstance(y, Table) or (y.dim() == 2 and y.is_floating_point()) else (1,)
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
    def forward(ctx: Any, x: Tensor, y: Tensor | Table) -> Tensor:
        n, result = len(x), torch.zeros((), dtype=torch.float64, device=x.device)
        ctx.covariance, unit = 0.0, float((x.amax(dim=0).double() - x.amin(dim=0).double()).amax())
        centred, of_y = _classes(y) if isinstance(y, Tensor) and not y.is_floating_point() else _rows(y)
        if not (math.isfinite(unit) and math.isfinite(of_y)):
            return result.fill_(math.nan)
        if unit == 0 or of_y == 0:
            return result
        points = _Points(x.detach(), unit)  # dCor does not depend on the unit
        products, sums = (
            torch.zeros(2, dtype=torch.float64, device=x.device),
            torch.zeros(n, dtype=torch.float64, device=x.device),
        )
        for rows, columns in _blocks(n):
            e, weight = points.distances(rows, columns, 0.0).sub_(points.typical), 1 if rows == columns else 2
            b, ones = centred(rows, columns, 1.0, torch.zeros_like(sums, dtype=e.dtype)), torch.ones_like(e[0])
            parts = b.mul_(e).sum(dim=1), torch.linalg.vector_norm(e, dim=1).square()
            products += weight * torch.stack(parts).sum(dim=1, dtype=torch.float64)
            if ctx.needs_input_grad[0] and n <= _KEPT_ROWS and e.dtype == torch.float32:  # has no equal rows
                points.kept[rows.start, columns.start] = e
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
        gradient, shift = torch.zeros_like(points.right[torch.float64]), beta * (ctx.means.mean() / 2 - ctx.means)
        with in_full_precision():
            for rows, columns in _blocks(n):
                a = points.distances(rows, columns, math.inf)
                w, of = ctx.centred(rows, columns, alpha, shift.to(a.dtype)).div_(a), points.right[a.dtype]
                gradient[rows] += w @ of[columns]
                if rows != columns:
                    gradient[columns] += w.T @ of[rows]
            gradient = points.exact * gradient[:, -2:-1] + gradient[:, :-2] / 2
            gradient.add_(points.exact, alpha=n * beta)  # of W's constant part, as the mean of x is 0
            return (gradient * (upstream * ctx.value) / points.unit).to(points.dtype), None


class _Points:
    """The rows of x (n, d), less their mean, and their distances, in units of `unit`. typical: the root mean square."""

    def __init__(self, x: Tensor, unit: float):
        self.unit, self.dtype = unit, x.dtype
        self.kept: dict[tuple[int, int], Tensor] = {}  # first row and column -> a block of distances, less `typical`
        self.exact = (x.double() - x.mean(dim=0, dtype=torch.float64)) / unit
        of = {x.dtype: self.exact.to(x.dtype), torch.float64: self.exact}
        self._squares = {dtype: rows.square().sum(dim=1, keepdim=True) for dtype, rows in of.items()}
        ones = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
        self._left = {dtype: torch.cat([x, self._squares[dtype], ones.to(x)], dim=1) for dtype, x in of.items()}
        self.right = {dtype: torch.cat([-2 * x, ones.to(x), self._squares[dtype]], dim=1) for dtype, x in of.items()}
        self.typical = math.sqrt(2 * float(self._squares[torch.float64].sum()) / max(1, len(x) - 1))

    def distances(self, rows: slice, columns: slice, of_equal: float) -> Tensor:
        """a_ij (rows, columns). of_equal: what stands there between equal rows."""
        if (e := self.kept.pop((rows.start, columns.start), None)) is not None:
            return e.add_(self.typical).fill_diagonal_(of_equal) if rows == columns else e.add_(self.typical)
        for dtype, lengths in self._squares.items():
            squares = self._left[dtype][rows] @ self.right[dtype][columns].T
            if rows == columns:
                squares.fill_diagonal_(math.inf)
            if dtype == torch.float64 or squares.amin() >= _NEAR * (lengths[rows].amax() + lengths[columns].amax()):
                break
        if dtype == torch.float64:
            squares.masked_fill_(squares <= 1e-14 * (lengths[rows] + lengths[columns].T), of_equal)
        a = squares.sqrt_()
        return a.fill_diagonal_(of_equal) if rows == columns else a


def _blocks(n: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks on and above the diagonal of an (n, n) matrix."""
    cuts = [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
    return ((rows, columns) for place, rows in enumerate(cuts) for columns in cuts[place:])


_Centred = tuple[Callable[[slice, slice, float, Tensor], Tensor], float]
"""Rows, columns, alpha and s (n,) -> alpha B_ij + s_i + s_j (rows, columns) of the type of s; and the mean of B^2."""


def _classes(y: Tensor) -> _Centred:
    one_hot = torch.nn.functional.one_hot(y.unique(return_inverse=True)[1])
    c = one_hot.double() - one_hot.double().mean(dim=0)

    def centred(rows: slice, columns: slice, alpha: float, shift: Tensor) -> Tensor:
        of_rows, of_columns, one = c[rows].to(shift), c[columns].to(shift), torch.ones_like(shift)[:, None]
        left = torch.cat([-alpha * of_rows, shift[rows, None], one[rows]], dim=1)
        return left @ torch.cat([of_columns, one[columns], shift[columns, None]], dim=1).T

    return centred, float((c.T @ c / len(y)).square().sum()) if c.shape[1] > 1 else 0.0


def _rows(y: Tensor | Table) -> _Centred:
    """b_ij, pair by pair where columns are few, in units of the largest number."""
    values = (y.numeric if isinstance(y, Table) else y.reshape(len(y), -1)).double()
    mode = "donot_use_mm_for_euclid_dist" if values.shape[1] <= _FEW_COLUMNS else "use_mm_for_euclid_dist"

    def distances(rows: slice, columns: slice) -> Tensor:
        b = torch.cdist(values[rows], values[columns], compute_mode=mode)
        if not isinstance(y, Table):
            return b
        differ = sum((ids[rows, None] != ids[columns]).double() for ids in y.categorical.T)
        return (b.square() + differ).sqrt()

    if not isinstance(y, Table):
        values = (values - values.mean(dim=0)) / values.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
    n, square, sums = len(values), 0.0, values.new_zeros(len(values))
    for rows, columns in _blocks(n):
        b = distances(rows, columns)
        square += (1 if rows == columns else 2) * float(b.square().sum()) / n**2
        sums[rows] += b.sum(dim=1)
        if rows != columns:
            sums[columns] += b.sum(dim=0)
    means = sums / n
    half = means - means.mean() / 2
    variance = square + float(means.mean() ** 2 - 2 * means.square().mean())

    def centred(rows: slice, columns: slice, alpha: float, shift: Tensor) -> Tensor:
        less = shift - alpha * half
        return (alpha * distances(rows, columns)).add_(less[rows, None]).add_(less[columns]).to(shift.dtype)

    return centred, 0.0 if variance <= 1e-14 * square else variance
