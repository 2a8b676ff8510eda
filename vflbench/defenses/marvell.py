"""Marvell: the least Gaussian noise that keeps the classes' gradients within a given sumKL of each other.

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
import statistics
from math import inf, sqrt
from typing import Annotated, Any, Literal, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from vflbench.defenses.base import Context, LabelDefense, WithheldError
from vflbench.errors import NonFiniteError, UserError
from vflbench.metrics.privacy import Exposure, Guarantee
from vflbench.numerics.directions import eigenvectors
from vflbench.options import HalfShare, Range, options

_TEST_EVERY = 32  # batches of both classes
_TEST_ROWS = 1024  # of each class; the power of the test needs no more
_FIGURES = ("sumkl_without_noise", "sumkl", "power_ratio", "anisotropy", "effective_dimension_0", "effective_dimension_1")
"""What each instance measures. The last three test the assumption of `published`."""
_SAFE_RANGE = (1e-15, 1e15)  # of float32 numbers whose squares are added up


@options
class Marvell(LabelDefense):
    """The least Gaussian noise that leaves the classes of a batch at most sumKL apart, if they are isotropic Gaussians.
    Gradients of real networks are not: it falls to `remainder`, which needs no label and only one message.

        g'_i = g_i + N(0, S_y),   S_y = (l1y - l2y) e e^T + l2y I,   e = (m1 - m0) / |m1 - m0|

    with the variances l that follow (see the module) from the moments of the batch: class means m0, m1, population
    variances u, v averaged over coordinates, share of positives p. Each batch and layer that crosses is solved anew.

    noise: `published` is the noise above. `full` and `shared` are ours, and derived there. They use the whole
    covariances S0, S1 of the classes, of any rank, and the difference d = m1 - m0.

    With `full`, each class gets the noise that it lacks beside the other (the positive part of the difference). Both get T:

        N_0 = (S1 - S0)_+ + T,   N_1 = (S0 - S1)_+ + T

    Both classes then have one covariance, S + T. T has the least power for which d^T (S + T)^-1 d <= sumkl. This promises
    nothing: real gradients are not Gaussian, and apart from T mostly one class has noise. `recurrence` finds the other
    class, whose directions recur in several rows, without a label.

    With `shared`, both classes get the same noise:

        N = tr(M^1/2) / sumkl M^1/2,   M = S0 + S1 + d d^T

    This is the noise of least power for a bound on sumKL that holds for classes of any shape: its ceiling assumes no
    distribution. It takes about three times the power of the other two, and the model loses as much as that. The bound is
    kept on average over pairs of a negative and a positive row of a batch, g_i - g_j. Rows with a long Jacobian, which a
    party can choose, are read better by whoever knows J: at AUC Phi(sqrt(J^T N^-1 J / 2)). Of the longest rows, that can be
    above the ceiling (docs/experiments/strongest_attacks.md). Of several messages about a row it promises nothing: in
    batches with fewer rows than the cut is wide, the noise stays in the affine hull of their gradients, and a row's own
    gradient is where the hulls of its batches meet. At a low learning rate, where it hardly changes, that gives it away. One
    such batch is enough for whoever knows J as well.

    sumkl: the largest KL(0 || 1) + KL(1 || 0) that may be left, in nats; inf adds no noise. You can give error_bound or
    power instead.

    error_bound: L in [0, 0.5). It sets sumkl = (2 - 4 L)^2, so that no detector errs on less than a share L.

    power: s > 0, of `published`. The noise has power s |m1 - m0|^2, and leaves the least sumKL that is possible with it.
    This promises nothing.

    one_class: what happens to a batch of a single class, which has no such moments. `last` adds the noise that the last
    batch of both classes needed, and withholds the gradient while there is no such batch. `withhold` always withholds it.

    The bound holds for an attacker who reads gradients and nothing else. The bound of `published` assumes that the classes
    of a batch are the Gaussians N(m_y, u_y I), isotropic and of full rank. Real gradients have low rank, and the optimum
    gives the noise across e to one class only. So a row with noise in directions without gradients belongs to that class.
    The assumption is tested on the gradients of the run, on the first batch and every 32nd after it, class by class
    (`sphericity`). Noise is drawn again in each epoch. So for an attacker who joins n messages about a row, sumkl is n
    times as large (attack=averaging).

    Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022; ByteDance, "Technical Report of
    Label Leakage and Protection in Federated Learning".
    """

    max_classes = 2

    noise: Literal["published", "full", "shared"] = "published"
    sumkl: Annotated[float, Range(1e-6, 1e6, infinity=True)] = 0.16
    error_bound: HalfShare | None = None
    power: Annotated[float, Range(1e-6, 1e6)] | None = None
    one_class: Literal["last", "withhold"] = "last"

    def __post_init__(self) -> None:
        if self.power is not None and (self.error_bound is not None or self.noise != "published"):
            problem = "it is for noise=published and not given beside error_bound: either takes the place of sumkl"
            raise UserError(problem, key="power", value=self.power)
        self._last: dict[str, Any] = {}
        self._seen: dict[str, list[float]] = {name: [] for name in _FIGURES}
        self._batches = 0

    @property
    def target(self) -> float:
        """The sumKL that may be left, in nats; not asked for where `power` is given."""
        return self.sumkl if self.error_bound is None else (2 - 4 * self.error_bound) ** 2

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        """g: (n, d) gradients; y: (n,) classes 0 and 1."""
        positive = y != 0
        is_of_one = not 0 < int(positive.sum()) < len(y)
        is_withheld = is_of_one and (self.one_class == "withhold" or not self._last)
        self.tally("one_class_batches", int(is_of_one))
        self.tally("withheld_batches", int(is_withheld))
        if is_withheld:
            what = "no batch before it had both" if self.one_class == "last" else "one_class=withhold"
            raise WithheldError(f"the batch has rows of one class only, and {what}")
        if not is_of_one:
            self._last = self._published(g, positive) if self.noise == "published" else self._of_any_rank(g, positive)
            self._batches += 1
        return self._perturbed(g, positive, context.rng)

    def _published(self, g: Tensor, positive: Tensor) -> dict[str, Any]:
        """Standard deviations by class, along e and everywhere, and e. On some batches, tests whether the classes are
        isotropic.
        """
        for name, rows in (("0", g[~positive]), ("1", g[positive])) if self._batches % _TEST_EVERY == 0 else ():
            if (result := sphericity(rows[:_TEST_ROWS])) is not None:
                self._seen["anisotropy"].append(result.deviation)
                self._seen[f"effective_dimension_{name}"].append(result.dimension)
        moments, share = class_moments(g, positive), positive.double().mean().item()
        u, v, gap, d = moments.u, moments.v, _finite(moments.gap), len(moments.direction)
        solve, goal = (solve_target, self.target) if self.power is None else (solve_power, self.power * gap)
        noise = solve(u, v, d, gap, share, goal)
        self._seen["sumkl_without_noise"].append(sumkl_without_noise(u, v, d, gap))
        self._seen["sumkl"].append(noise.sumkl)
        self._seen["power_ratio"].append(noise.power / gap if gap else 0.0)
        along = [math.sqrt(max(0.0, along - across)) for along, across in ((noise.l10, noise.l20), (noise.l11, noise.l21))]
        return {"along": along, "everywhere": [math.sqrt(noise.l20), math.sqrt(noise.l21)], "direction": moments.direction}

    def _of_any_rank(self, g: Tensor, positive: Tensor) -> dict[str, Any]:
        """Roots (2, d, k) of the classes' covariances of noise."""
        moments, solve = full_moments(g, positive), equalising_noise if self.noise == "full" else shared_noise
        gap = _finite(float(moments.gap.square().sum()))
        if math.isinf(self.target):
            return {"roots": torch.zeros(2, g.shape[1], 1, dtype=torch.float64, device=g.device)}
        noise = solve(moments, self.target)
        self._seen["sumkl"].append(noise.sumkl)
        self._seen["power_ratio"].append(noise.power / gap if gap else 0.0)
        return {"roots": noise.roots}

    def _perturbed(self, g: Tensor, positive: Tensor, rng: torch.Generator) -> Tensor:
        if "roots" in self._last:  # in float64: rounding then has the size of the sum, in either class
            roots = self._last["roots"].to(g.device)
            z = torch.randn(len(g), roots.shape[2], generator=rng, device=g.device, dtype=g.dtype).double()
            return (g.double() + torch.where(positive[:, None], z @ roots[1].T, z @ roots[0].T)).to(g.dtype)
        along = torch.tensor(self._last["along"], dtype=g.dtype, device=g.device)[positive.long()]
        along *= torch.randn(len(g), generator=rng, device=g.device, dtype=g.dtype)
        noisy = torch.addr(g, along, self._last["direction"].to(g))
        for is_class, deviation in zip((~positive, positive), self._last["everywhere"], strict=True):
            if deviation > 0:  # of one class at most
                rows = is_class.nonzero()[:, 0]
                noise = torch.randn(len(rows), g.shape[1], generator=rng, device=g.device, dtype=g.dtype)
                noisy.index_add_(0, rows, noise, alpha=deviation)
        return noisy

    def guarantee(self) -> Guarantee | None:
        if self.noise == "full" or self.power is not None or math.isinf(self.target):
            return None
        s, published = self.target, self.noise == "published"
        isotropic = "where a batch's classes are isotropic Gaussians with its moments"
        where = isotropic if published else "on average over pairs of rows, more of long ones, if no other message is read"
        several = f"n of them that are known to be about the same row {s:.4g} n" if published else "several of them any"

        def left(exposure: Exposure) -> float:
            return exposure.messages * s if published or exposure.messages <= 1 else math.inf

        return Guarantee(
            f"{where}, a gradient about a row leaves sumKL <= {s:.4g}, and {several}; batches of a single class are not "
            "covered, and neither are embeddings",
            lambda exposure: leak_auc_bound(left(exposure)),
            lambda exposure: max(0.0, 0.5 - math.sqrt(left(exposure)) / 4),
            message="gradient",
            assumption="the gradients of each class of a batch are isotropic Gaussians" if published else "",
            tested_by=_FIGURES[3:] if published else (),
        )

    def figures(self) -> dict[str, float]:
        """Batches of one class, batches withheld, and medians over batches of sumKL without noise (of `published`) and with
        it, and of power / |m1 - m0|^2. Over the batches that were tested: anisotropy, the sum of the deviations of
        `sphericity` over the root of their number, N(0, 1) for isotropic Gaussians; and the medians of the classes'
        effective dimensions.
        """
        figures = {
            name: math.fsum(values) / math.sqrt(len(values)) if name == "anisotropy" else statistics.median(values)
            for name, values in self._seen.items()
            if values
        }
        self._seen = {name: [] for name in _FIGURES}
        return super().figures() | figures


def _finite(gap: float) -> float:
    """|m1 - m0|^2. A gradient that is no finite number leaves it none; asking for it costs no read from the device."""
    if not math.isfinite(gap):
        raise NonFiniteError("Marvell was given a gradient that is not a finite number")
    return gap


def leak_auc_bound(sumkl: float) -> float:
    """1/2 + sqrt(s)/2 - s/8, at most 1: ceiling of any attacker's leak AUC on messages whose classes are sumKL s apart.

    From Pinsker's inequality, total variation <= sqrt(s)/2, and AUC <= 1/2 + TV - TV^2/2.
    """
    return 1.0 if sumkl >= 4 else 0.5 + math.sqrt(sumkl) / 2 - sumkl / 8


class Moments(NamedTuple):
    """u, v: population variance of class 0 and 1, mean over coordinates. gap: |m1 - m0|^2. direction: (d,) float64, e."""

    u: float
    v: float
    gap: float
    direction: Tensor


def class_moments(g: Tensor, positive: Tensor) -> Moments:
    """Of g (n, d), rows of both classes among them; positive (n,) bool. In any units."""
    largest = g.abs().max().item()
    exact = g if _SAFE_RANGE[0] < largest < _SAFE_RANGE[1] else g.double()
    members = torch.stack([~positive, positive])
    shares = members / members.sum(dim=1, keepdim=True)
    means = shares.to(exact) @ exact
    squares = (exact - means[positive.long()]).square_().sum(dim=1)
    u, v = (shares.double() @ squares.double() / g.shape[1]).tolist()
    difference = (means[1] - means[0]).double()
    length = difference.norm().item()
    return Moments(u, v, length * length, difference / length if length > 0 else difference)


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
    first, second = (of_m, of_M) if u <= v else (of_M, of_m)
    return Variances(*first, *second, sumkl, unit * power(x, y, z))


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


class ClassMoments(NamedTuple):
    """gap: (d,), m1 - m0. covariances: (2, d, d), population covariances S0 and S1. share: of class 1. In float64."""

    gap: Tensor
    covariances: Tensor
    share: float


class ClassNoise(NamedTuple):
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


def equalising_noise(moments: ClassMoments, sumkl: float) -> ClassNoise:
    """Noise that gives both classes one covariance, and the least above that for a sumKL s > 0 in nats, finite."""
    gap, (s0, s1) = moments.gap, moments.covariances
    scale = float(moments.covariances.diagonal(dim1=1, dim2=2).sum()) + float(gap @ gap)
    alike = torch.stack([positive_root(s1 - s0, scale), positive_root(s0 - s1, scale)])
    gap_axis, common = torch.zeros_like(alike[:, :, :1]), s0 + alike[0] @ alike[0].T
    of_class = alike.square().sum(dim=(1, 2)).tolist()
    spent = (1 - moments.share) * of_class[0] + moments.share * of_class[1]
    gap_axis[:] = positive_root(torch.outer(gap, gap) / sumkl - common, scale * max(1, 1 / sumkl))[:, :1]
    above = float(gap_axis[0].square().sum())
    left = sumkl if above > 0 else _left(gap, common)
    return ClassNoise(torch.cat([alike, gap_axis], dim=2), left, spent + above)


def shared_noise(moments: ClassMoments, sumkl: float) -> ClassNoise:
    """The same noise for both classes, that leaves at most a sumKL s > 0 in nats, finite, whatever their shapes. Directions
    of less variance than rounding count as if they had that much.
    """
    values, vectors = eigenvectors(moments.covariances.sum(dim=0) + torch.outer(moments.gap, moments.gap))
    values = values.clamp_min(torch.finfo(values.dtype).eps * float(values.max())).sqrt()
    values = torch.where((vectors != 0).any(dim=0), values, 0)
    trace = float(values.sum())
    half = vectors * (values * trace / sumkl).sqrt()
    return ClassNoise(torch.stack([half, half]), sumkl if trace else 0.0, trace**2 / sumkl)


def positive_root(matrix: Tensor, scale: float) -> Tensor:
    """R (d, d) with R R^T = (A)_+, for a symmetric float64 matrix A; its columns are orthogonal, the longest first.

    scale: the size of what A was computed from; eigenvalues that rounding could have made of it are 0.
    """
    values, vectors = eigenvectors(matrix)
    values = torch.where(values > len(matrix) * torch.finfo(matrix.dtype).eps * scale, values, 0)
    return vectors * values.sqrt()


def _left(gap: Tensor, common: Tensor) -> float:
    """d^T S^-1 d; inf where d is outside the range of S."""
    values, vectors = eigenvectors(common)
    rounding = len(gap) * torch.finfo(gap.dtype).eps
    values, parts = torch.where(values > rounding * float(values[0]), values, 0), (vectors.T @ gap).square()
    outside = (gap - vectors @ (vectors.T @ gap)).square().sum()[None]  # along rows of zeros
    parts, values = torch.cat([parts, outside]), torch.cat([values, torch.zeros_like(outside)])
    counts = parts > rounding * float(gap @ gap)
    return float((parts[counts] / values[counts]).sum())


class Sphericity(NamedTuple):
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
