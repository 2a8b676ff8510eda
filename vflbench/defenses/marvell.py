"""Marvell: the least Gaussian noise that keeps the classes' gradients within a given sumKL of each other."""

import math
import statistics
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, LabelDefense, WithheldError
from vflbench.defenses.marvell_noise import (
    equalising_noise,
    full_moments,
    shared_noise,
    solve_power,
    solve_target,
    sphericity,
    sumkl_without_noise,
)
from vflbench.errors import NonFiniteError, UserError
from vflbench.metrics.privacy import Exposure, Guarantee
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

    with the variances l that `defenses.marvell_noise` computes from the moments of the batch: class means m0, m1, population
    variances u, v averaged over coordinates, share of positives p. Each batch and layer that crosses is solved anew.

    noise: `published` is the noise above. `full` and `shared` are ours (`defenses.marvell_noise`). They use the whole
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

    power: s > 0. The noise has power s |m1 - m0|^2, and leaves the least sumKL that is possible with it, as published. This
    promises nothing.

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
        if self.error_bound is not None and self.power is not None:
            raise UserError(
                "it can't be given beside error_bound: either takes the place of sumkl", key="power", value=self.power
            )
        self._last: dict[str, Any] = {}
        self._seen: dict[str, list[float]] = {name: [] for name in _FIGURES}
        self._one_class_batches = self._withheld_batches = self._batches = 0

    @property
    def target(self) -> float:
        """The sumKL that may be left, in nats; not asked for where `power` is given."""
        return self.sumkl if self.error_bound is None else (2 - 4 * self.error_bound) ** 2

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        """g: (n, d) gradients; y: (n,) classes 0 and 1."""
        positive = y != 0
        if 0 < int(positive.sum()) < len(y):
            self._last = self._published(g, positive) if self.noise == "published" else self._of_any_rank(g, positive)
            self._batches += 1
        else:
            self._one_class_batches += 1
            if self.one_class == "withhold" or not self._last:
                self._withheld_batches += 1
                what = "no batch before it had both" if self.one_class == "last" else "one_class=withhold"
                raise WithheldError(f"the batch has rows of one class only, and {what}")
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
        if self.power is None and math.isinf(self.target):
            return {"roots": torch.zeros(2, g.shape[1], 1, dtype=torch.float64, device=g.device)}
        noise = solve(moments, sumkl=self.target) if self.power is None else solve(moments, power=self.power * gap)
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
        if not self._last and not self._one_class_batches:
            return {}
        counts = {"one_class_batches": self._one_class_batches, "withheld_batches": self._withheld_batches}
        figures = {
            name: math.fsum(values) / math.sqrt(len(values)) if name == "anisotropy" else statistics.median(values)
            for name, values in self._seen.items()
            if values
        }
        self._one_class_batches = self._withheld_batches = 0
        self._seen = {name: [] for name in _FIGURES}
        return counts | figures


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


@dataclass(frozen=True)
class Moments:
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
