"""Distance correlation: exact, in little memory, with an analytic gradient.

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

Distances are computed in blocks of rows and columns, one of each mirrored pair. For the gradient they are kept if all of
them fit a budget, and computed again if not.

Y may be rows of a table (`Table`): b_ij^2 = |y_i - y_j|^2 + number of categorical columns in which i and j differ, which is
the Euclidean distance where each category stands for a unit vector over sqrt(2).

Source: Szekely, Rizzo and Bakirov, "Measuring and testing dependence by correlation of distances", 2007; the squared
statistic: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.numerics.class_distances import CentredClasses
from vflbench.numerics.point_distances import Points, size_of_blocks
from vflbench.numerics.system import in_full_precision
from vflbench.numerics.table_distances import CentredRows, Table

KEPT_MIB = 256
"""What may be kept for one gradient, in MiB."""

_Centred = CentredClasses | CentredRows


def distance_correlation(
    x: Tensor, y: Tensor | Table, statistic: Literal["squared", "root"] = "squared", kept_mib: float = KEPT_MIB
) -> Tensor:
    """dCor^2(X, Y), or its root, as a float64 scalar that is differentiable in x.

    x: (n, d) floating; below 32 bits, it is computed in float32. y: (n,) integers or booleans are classes, at distance 1
    from each other; (n,) or (n, k) floating values have Euclidean distances; a `Table` has both. Coinciding points add
    nothing to the gradient. If x or y is constant, the value and the gradient are 0; if one is not finite, the value is nan.

    Memory: a few times x and a few blocks of 1024^2. With a gradient to come, some 2 n^2 bytes of distances in float32 more,
    4 n^2 where y are no classes, if that is at most kept_mib; which changes no bit of the result. Relative accuracy of the
    value and of the norm of the gradient: about 1e-6 in float32 and 1e-12 in float64. Raises ValueError for other shapes.
    """
    shapes = [tuple(part.shape) for part in ((y.numeric, y.categorical) if isinstance(y, Table) else (y,))]
    allowed = (2,) if isinstance(y, Table) else (1, 2)
    if x.dim() != 2 or not len(x) or any(len(shape) not in allowed or shape[0] != len(x) for shape in shapes):
        problem = f"x must be (n, d), y (n,), (n, k) or a table of n rows, n > 0; got {tuple(x.shape)} and {shapes}"
        raise ValueError(problem)
    x = x if x.dtype == torch.float64 else x.float()
    room = 2**20 * kept_mib / (x.element_size() * size_of_blocks(len(x), x.device))  # in units of all blocks
    with_gradient = x.requires_grad and torch.is_grad_enabled()
    with in_full_precision():
        if isinstance(y, Table) or y.is_floating_point():
            keeps = with_gradient and room >= 1
            centred: _Centred = (
                CentredRows.of_table(y, keeps=keeps) if isinstance(y, Table) else CentredRows.of_numbers(y, keeps=keeps)
            )
            room -= 1
        else:
            centred = CentredClasses(y)
        squared = _DistanceCorrelation.apply(x, centred, with_gradient and room >= 1)
    if statistic == "squared":
        return squared
    return squared.sqrt() if squared > 0 else squared  # the root has no derivative at 0


class _DistanceCorrelation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: _Centred, keeps: bool) -> Tensor:
        low, high = x.amin(dim=0).double(), x.amax(dim=0).double()
        spread = (high - low).amax().item()
        ctx.covariance, ctx.dtype = 0.0, x.dtype
        if not (math.isfinite(spread) and math.isfinite(y.variance)):
            return torch.full((), math.nan, dtype=torch.float64, device=x.device)
        if spread == 0 or y.variance == 0:
            return torch.zeros((), dtype=torch.float64, device=x.device)
        unit = 2.0 ** math.frexp(spread)[1]  # dCor does not depend on it
        points = Points(x.detach(), unit, keeps=keeps)
        if x.dtype != torch.float64 and points.stray():
            points = Points(x.detach().double(), unit)
        row_means, covariance, variance = _moments(points, y)
        if variance <= 0 or covariance <= 0:
            return torch.zeros((), dtype=torch.float64, device=x.device)
        ctx.points, ctx.y, ctx.row_means, ctx.covariance, ctx.variance = points, y, row_means, covariance, variance
        ctx.value = covariance / math.sqrt(variance * y.variance)
        return torch.full((), ctx.value, dtype=torch.float64, device=x.device)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None, None]:
        if ctx.covariance == 0:
            return None, None, None
        points, n = ctx.points, len(ctx.points.x)
        # d value = value (d covariance / covariance - d variance / (2 variance))
        alpha, beta = 2 / (n**2 * ctx.covariance), -2 / (n**2 * ctx.variance)
        with in_full_precision():
            gradient, weights = torch.zeros_like(points.x), torch.zeros_like(ctx.row_means)
            shift = beta * (ctx.row_means.mean() / 2 - ctx.row_means)
            numerator = ctx.y.numerators(alpha, shift)
            for rows, columns, inverses in points.inverses():
                w = numerator(rows, columns, inverses.dtype).mul_(inverses).add_(beta)
                points.add_differences(gradient, weights, rows, columns, inverses, w)
            gradient.addcmul_(points.centred, weights.to(gradient.dtype)[:, None])
            points.forget()
            ctx.y.forget()
            half = 2.0 ** (math.frexp(points.unit)[1] // 2)  # a unit of 1e-40 has no inverse in float32
            gradient = gradient.div_(half).mul_(upstream * ctx.value / (points.unit / half))
            return gradient.to(ctx.dtype), None, None


def _moments(points: Points, y: _Centred) -> tuple[Tensor, float, float]:
    """Means of the rows of a (n,), dCov^2(X, Y) and dCov^2(X, X)."""
    n, typical, products = len(points.x), points.typical(), []
    sums, squares = torch.zeros(2, n, dtype=torch.float64, device=points.x.device)
    for rows, columns, e in points.excesses(typical):
        weight = 1 if rows == columns else 2
        column_sums, product = y.sums(rows, columns, e)
        products.append(weight * product)
        sums[rows] += e.sum(dim=1)
        if rows != columns:
            sums[columns] += column_sums
        squares[rows] += torch.linalg.vector_norm(e, dim=1).square_().mul_(weight)
    product = torch.stack(products).sum() - typical * y.trace  # e_ii = -typical
    means = (sums - typical) / n
    variance = (squares.sum() + n * typical**2) / n**2 + means.mean() ** 2 - 2 * means.square().mean()
    covariance, variance = torch.stack([product / n**2, variance]).tolist()
    return means + typical, covariance, variance
