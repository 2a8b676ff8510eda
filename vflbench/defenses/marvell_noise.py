"""The least Gaussian noise that leaves two classes of gradients within a sumKL of each other, and a test of its assumption.

**Isotropic classes** (`solve_target`, `solve_power`). Negative gradients are N(m0, u I), positive gradients N(m1, v I) in
R^d; g = |m1 - m0|^2, and p is the share of positives. Noise N(0, S_y),

    S_y = (l1y - l2y) e e^T + l2y I,    e = (m1 - m0) / sqrt(g)

is added to class y. The variances become a = u + l10 and b = v + l11 along e, and a2 = u + l20 and b2 = v + l21 along each
of the d - 1 directions across it. The divergence that remains between the classes is

    sumKL = KL(0 || 1) + KL(1 || 0) = 1/2 [ (d-1) (a2 - b2)^2 / (a2 b2) + (a - b)^2 / (a b) + g (1/a + 1/b) ]

and the cost of the noise is its power, p tr S_1 + (1-p) tr S_0. Both problems, least sumKL for a given power and least power
for a given sumKL, have the same solutions: a path with one parameter. In the logarithms of the variances the problems are
convex, so a point that satisfies the Karush-Kuhn-Tucker conditions is optimal. Let m <= M be the variances of the two
classes without noise. Let q be the weight of the class with variance m, and r = 1 - q the weight of the other class. Let x
and y be their variances along e with noise, and z the variance of class m across e. The other class gets no noise across e.
Where no bound is active, with D = q x + r y,

    t = y / x = sqrt((D + q g) / (D + r g)),   x = D / (q + r t),   mu = g (1 + t) (q + r t) / (t D^2)

where mu / 2 = -d sumKL / d power decreases in D. For a given mu, and so for a given D,

    z = clip(M / sqrt(1 + q mu M), m, M),
    x = m, y = sqrt(m (m + g) / (1 + r mu m))             if x would be below m and this y is above M; otherwise
    y = M, x = max(m, sqrt(M (M + g) / (1 + q mu M)))     if x would be below m or y below M.

Either problem is the root of a monotone function of log D.

**Any classes** (`equalising_noise`, `shared_noise`). Class k has mean m_k and covariance S_k, of any rank; d = m1 - m0.
Positive parts are of symmetric matrices: (A)_+ = V max(L, 0) V^T. Noise that makes two Gaussian classes alike but for their
means:

    N_0 = (S1 - S0)_+ + T,   N_1 = (S0 - S1)_+ + T,   S = S0 + (S1 - S0)_+ = S1 + (S0 - S1)_+,   T = (d d^T / s - S)_+

S is the covariance of least trace that is neither below S0 nor below S1. With S + T in both classes

    sumKL = d^T (S + T)^-1 d <= s   exactly if   S + T - d d^T / s >= 0,

and T is what has least trace of all that do so. It has one direction: d d^T / s - S has one positive eigenvalue l at most,
where  s = d^T (S + l I)^-1 d.  For T = t e e^T along e = d / |d| the formula of Sherman and Morrison gives
t = |d|^2 / s - 1 / (e^T S^-1 e) >= l; no inverse is needed for the positive part, so S may have any rank.

For noise that is the same for both (`shared_noise`), no shape of the classes is assumed. KL is jointly convex, so for rows
x0, x1 of the classes, drawn independently,

    sumKL(P0 * N || P1 * N) <= E (x1 - x0)^T N^-1 (x1 - x0) = tr N^-1 M,   M = S0 + S1 + d d^T

and the N of least trace for which that is s is  N = tr(M^1/2) / s  M^1/2,  of power  tr(M^1/2)^2 / s.

Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, theorem 2 and appendix. The form of
sumKL without cancellation, the path in D, the solution for a given sumKL and the noise for any classes are derived here; the
closed forms follow from the Schur complement, from the convexity of KL, and from the inequality of Cauchy and Schwarz,
tr(M^1/2)^2 <= tr(N) tr(N^-1 M).
"""

# ruff: noqa: N803, N806 (m and M, D: the letters of the formulas)

import math
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from vflbench.numerics.directions import eigenvectors

_NEGLIGIBLE = 1e-30  # g relative to the variances, which stands for less
_FARTHEST = 150.0  # of log D in units of M + g, which are its ends


class Variances(NamedTuple):
    """Variances to add, and their effect.

    First digit: 1 along e, 2 across it. Second digit: the class. sumkl: what remains. power: p tr S_1 + (1-p) tr S_0.
    """

    l10: float
    l20: float
    l11: float
    l21: float
    sumkl: float
    power: float


def solve_power(u: float, v: float, d: float, g: float, p: float, power: float) -> Variances:
    """The noise of at most this power that minimises sumKL.

    u, v: variance per coordinate of class 0 and 1, >= 0. d: coordinates, >= 1. g: squared distance of the class means, >= 0.
    p: share of class 1, in [0, 1]. power: >= 0 and finite, in the units of u, v and g. Relative accuracy about 1e-12, in any
    units.
    """
    return _solved(u, v, d, g, p, power, by_power=True)


def solve_target(u: float, v: float, d: float, g: float, p: float, sumkl: float) -> Variances:
    """The noise of least power that leaves at most this sumKL, > 0. Otherwise as `solve_power`.

    No noise is added if the sumKL is that small without noise, and none for inf.
    """
    return _solved(u, v, d, g, p, sumkl, by_power=False)


def sumkl_without_noise(u: float, v: float, d: float, g: float) -> float:
    """1/2 [ d (u - v)^2 / (u v) + g (1/u + 1/v) ]; inf where a variance is 0 and the classes differ."""
    least, most = min(u, v), max(u, v)
    if least == 0:
        return inf if most > 0 or g > 0 else 0.0
    return 0.5 * (d * ((most - least) / least) * ((most - least) / most) + g / least + g / most)


def _solved(u: float, v: float, d: float, g: float, p: float, goal: float, *, by_power: bool) -> Variances:
    """goal: the power if `by_power`, otherwise the sumKL."""
    before = sumkl_without_noise(u, v, d, g)
    if before == 0 or (goal == 0 if by_power else goal >= before):
        return Variances(0.0, 0.0, 0.0, 0.0, before, 0.0)
    m, M, q = (u, v, 1 - p) if u <= v else (v, u, p)
    unit, r = M + g, 1 - q
    m, M, g = m / unit, M / unit, max(g / unit, _NEGLIGIBLE)
    goal = goal / unit if by_power else goal

    def power(x: float, y: float, z: float) -> float:
        return q * (x - m) + r * (y - M) + (d - 1) * q * (z - m)

    def excess(log_D: float) -> float:
        sumkl, *variances = _point(math.exp(log_D), m, M, d, g, q, r)
        return math.log(max(power(*variances) if by_power else sumkl, 1e-300) / goal)

    D = math.exp(brentq(excess, -_FARTHEST, _FARTHEST, xtol=1e-15, rtol=1e-15, maxiter=1000))
    sumkl, x, y, z = _point(D, m, M, d, g, q, r)
    of_m, of_M = (unit * (x - m), unit * (z - m)), (unit * (y - M), 0.0)
    return (
        Variances(*of_m, *of_M, sumkl, unit * power(x, y, z))
        if u <= v
        else Variances(*of_M, *of_m, sumkl, unit * power(x, y, z))
    )


def _point(D: float, m: float, M: float, d: float, g: float, q: float, r: float) -> tuple[float, float, float, float]:
    """One point of the path: sumkl, x, y, z."""
    at_r = D + r * g
    t = sqrt((D + q * g) / at_r)
    mu = g * (1 + t) * (q + r * t) / (t * D * D)
    k = q * mu * M
    w = sqrt(1 + k)
    z, across = m, 0.0
    if d > 1 and m < M:
        z = max(m, M / w)
        across = (d - 1) * ((k / (1 + w)) ** 2 / w if z > m else ((M - z) / z) * ((M - z) / M))  # (w - 1)^2 / w
    x = D / (q + r * t)
    y = t * x
    if x >= m and y >= M:
        along = (g * (q - r) / (at_r * (1 + t))) ** 2 / t + g * (1 + t) / y  # t - 1 without cancellation
    else:
        y_at_m = sqrt(m * (m + g) / (1 + r * mu * m))
        x, y = (m, y_at_m) if x < m and y_at_m > M else (max(m, sqrt(M * (M + g) / (1 + k))), M)
        along = ((x - y) / x) * ((x - y) / y) + g / x + g / y
    return 0.5 * (across + along), x, y, z


@dataclass(frozen=True)
class ClassMoments:
    """gap: (d,), m1 - m0. covariances: (2, d, d), population covariances S0 and S1. share: of class 1. In float64."""

    gap: Tensor
    covariances: Tensor
    share: float


@dataclass(frozen=True)
class ClassNoise:
    """roots: (2, d, k) float64, R_k with N_k = R_k R_k^T for class k. sumkl: an upper bound of what is left, in nats. power:
    p tr N_1 + (1 - p) tr N_0, in the units of the covariances.
    """

    roots: Tensor
    sumkl: float
    power: float


def full_moments(g: Tensor, positive: Tensor) -> ClassMoments:
    """g: (n, d). positive: (n,) bool, with rows of both classes."""
    exact = g.double()
    parts = exact[~positive], exact[positive]
    means = [rows.mean(dim=0) for rows in parts]
    centred = [rows - mean for rows, mean in zip(parts, means, strict=True)]
    covariances = torch.stack([rows.T @ rows / len(rows) for rows in centred])
    return ClassMoments(means[1] - means[0], covariances, len(parts[1]) / len(g))


def equalising_noise(moments: ClassMoments, sumkl: float | None = None, power: float | None = None) -> ClassNoise:
    """Noise that gives both classes one covariance, and the least above that for a sumKL, or for a power in all.

    sumkl: s > 0 in nats, that may be left. power: in the units of the covariances; where it doesn't suffice for one
    covariance, that noise is scaled down. One of them is given, and finite.
    """
    gap, (s0, s1) = moments.gap, moments.covariances
    scale = float(moments.covariances.diagonal(dim1=1, dim2=2).sum()) + float(gap @ gap)
    alike = torch.stack([positive_root(s1 - s0, scale), positive_root(s0 - s1, scale)])
    gap_axis, common = torch.zeros_like(alike[:, :, :1]), s0 + alike[0] @ alike[0].T
    of_class = alike.square().sum(dim=(1, 2)).tolist()
    spent = (1 - moments.share) * of_class[0] + moments.share * of_class[1]
    if power is not None and power <= spent:
        scaled = alike * math.sqrt(power / spent if spent else 0.0)
        left = 0.0 if scale == 0 or (power == spent and not gap.any()) else math.inf
        return ClassNoise(torch.cat([scaled, gap_axis], dim=2), left, power if spent else 0.0)
    sumkl = _left(gap, common, power - spent) if power is not None else sumkl
    if sumkl:
        gap_axis[:] = positive_root(torch.outer(gap, gap) / sumkl - common, scale * max(1, 1 / sumkl))[:, :1]
    above = float(gap_axis[0].square().sum())
    left = sumkl if sumkl and above > 0 else _left(gap, common, 0.0)
    return ClassNoise(torch.cat([alike, gap_axis], dim=2), left, spent + above)


def shared_noise(moments: ClassMoments, sumkl: float | None = None, power: float | None = None) -> ClassNoise:
    """The same noise for both classes, that leaves at most a sumKL whatever their shapes; or such noise of a power.

    sumkl: s > 0 in nats. power: in the units of the covariances. One of them is given, and finite. Directions of less
    variance than rounding count as if they had that much.
    """
    values, vectors = eigenvectors(moments.covariances.sum(dim=0) + torch.outer(moments.gap, moments.gap))
    values = values.clamp_min(torch.finfo(values.dtype).eps * float(values.max())).sqrt()
    values = torch.where((vectors != 0).any(dim=0), values, 0)
    trace = float(values.sum())
    if trace == 0 or power == 0:
        return ClassNoise(torch.zeros_like(moments.covariances), math.inf if trace else 0.0, 0.0)
    left = trace**2 / power if power is not None else sumkl
    assert left is not None
    half = vectors * (values * trace / left).sqrt()
    return ClassNoise(torch.stack([half, half]), left, trace**2 / left)


def positive_root(matrix: Tensor, scale: float) -> Tensor:
    """R (d, d) with R R^T = (A)_+, for a symmetric float64 matrix A; its columns are orthogonal, the longest first.

    scale: the size of what A was computed from; eigenvalues that rounding could have made of it are 0.
    """
    values, vectors = eigenvectors(matrix)
    values = torch.where(values > len(matrix) * torch.finfo(matrix.dtype).eps * scale, values, 0)
    return vectors * values.sqrt()


def _left(gap: Tensor, common: Tensor, power: float) -> float:
    """d^T (S + l I)^-1 d, for l = power; inf where d is outside the range of S and l = 0."""
    values, vectors = eigenvectors(common)
    rounding = len(gap) * torch.finfo(gap.dtype).eps
    values = torch.where(values > rounding * max(float(values[0]), power), values, 0) + power
    parts = (vectors.T @ gap).square()
    outside = (gap - vectors @ (vectors.T @ gap)).square().sum()[None]  # along rows of zeros
    parts, values = torch.cat([parts, outside]), torch.cat([values, torch.full_like(outside, power)])
    counts = parts > rounding * float(gap @ gap)
    return float((parts[counts] / values[counts]).sum())


@dataclass(frozen=True)
class Sphericity:
    """deviation: of U from what isotropic Gaussians have, in standard deviations. dimension: the effective dimension, from
    1 to d.
    """

    deviation: float
    dimension: float


def sphericity(x: Tensor) -> Sphericity | None:
    """John's statistic U, standardised; None where it says nothing: fewer than three rows, one column, or equal rows.

        U = tr[(S / (tr S / d) - I)^2] / d = d tr S^2 / (tr S)^2 - 1,   S the covariance of n rows,   m = n - 1
        E U = d (m + d + 1) / (m d + 2) - 1,   Var U = d^2 (E tr(W^2)^2 / E (tr W)^4 - (E tr W^2 / E (tr W)^2)^2)

    with both moments exact for every m and d: W ~ Wishart(m, I) has tr W^2 / (tr W)^2 independent of tr W, and

        E tr W^2 = m d (m + d + 1),   Var tr W^2 = 4 m d (2 m^2 + 5 m d + 2 d^2 + 5 m + 5 d + 5).

    As m and d grow together this is Ledoit and Wolf's test, (m U - d - 1) / 2 -> N(0, 1), which holds where d > n too.
    The effective dimension is (tr C)^2 / tr C^2 of the covariance C of the distribution, with the unbiased estimate

        tr C^2 ~ m^2 / ((m - 1) (m + 2)) (tr S^2 - (tr S)^2 / m).

    x: (n, d), in any units. No (n, n) matrix for n > d.

    Source: John, "Some optimal multivariate tests", 1971; Ledoit and Wolf, "Some hypothesis tests for the covariance matrix
    when the dimension is large compared to the sample size", Annals of Statistics, 2002.
    """
    m, d = len(x) - 1, x.shape[1]
    centred = x - x.mean(dim=0)
    largest = float(centred.abs().max()) if x.numel() else 0.0
    if m < 2 or d < 2 or not 0 < largest < math.inf:
        return None
    scaled = centred / largest if largest >= torch.finfo(x.dtype).tiny else centred.double() / largest
    gram = scaled.T @ scaled if m >= d else scaled @ scaled.T
    trace, square = float(gram.diagonal().double().sum()), float(gram.double().square().sum())
    ratio = square / trace**2
    of_square = m * d * (m + d + 1)
    of_fourth = of_square**2 + 4 * m * d * (2 * m * m + 5 * m * d + 2 * d * d + 5 * m + 5 * d + 5)
    mean = of_square / (m * d * (m * d + 2))
    variance = of_fourth / (m * d * (m * d + 2) * (m * d + 4) * (m * d + 6)) - mean**2
    unbiased = m * m / ((m - 1) * (m + 2)) * (ratio - 1 / m)
    dimension = float(d) if unbiased * d <= 1 else max(1.0, 1 / unbiased)
    return Sphericity((ratio - mean) / math.sqrt(variance), dimension)
