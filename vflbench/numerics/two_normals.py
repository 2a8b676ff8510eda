"""Two normal distributions with known shares, fitted to numbers of unknown origin."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-3  # variance of a component beside that of all numbers; a component can't shrink to one number


@dataclass(frozen=True)
class TwoNormals:
    """The density (1 - q) N(t; m0, v0) + q N(t; m1, v1) of each of k problems.

    upper_share: q. means, variances: (k, 2), the lower component first. gain: (k,), mean log likelihood, in nats a number,
    less that of one normal distribution.
    """

    upper_share: float
    means: Tensor
    variances: Tensor
    gain: Tensor

    def log_ratio(self, t: Tensor) -> Tensor:
        """log[q N(t; m1, v1) / ((1 - q) N(t; m0, v0))], the log odds of the upper component. t: (k, n). Returns (k, n)."""
        lower, upper = _log_densities(t, self.means, self.variances, self.upper_share).unbind(dim=1)
        return upper - lower


def fit_two_normals(t: Tensor, upper_share: float, iterations: int = 10) -> TwoNormals:
    """The most likely means and variances for given shares, a local maximum, by expectation-maximisation.

    t: (k, n) float64, k problems of n > 1 numbers each, in any units. upper_share: q in (0, 1). It starts from the lowest
    (1 - q) n and the highest q n numbers, so that the upper component has the higher mean at first, and stops after
    `iterations`. No variance is below a thousandth of that of all numbers. Equal numbers have gain 0 and log ratios
    log(q / (1 - q)).
    """
    center, spread = t.mean(dim=1, keepdim=True), t.std(dim=1, correction=0, keepdim=True)
    spread = torch.where(spread > 1e-12 * t.abs().amax(dim=1, keepdim=True), spread, 0.0)
    unit = torch.where(spread > 0, spread, 1.0)
    z = ((t - center) / unit).sort(dim=1).values  # sorted, so that sums don't depend on the order of rows
    split = min(max(round((1 - upper_share) * t.shape[1]), 1), t.shape[1] - 1)
    is_upper = torch.arange(t.shape[1], device=t.device) >= split
    weights = torch.stack([~is_upper, is_upper]).to(t).expand(len(t), -1, -1)  # (k, 2, n)
    for _ in range(iterations):
        sizes = weights.sum(dim=2).clamp_min(1e-9)
        means = (weights @ z[:, :, None])[:, :, 0] / sizes
        squares = (weights @ z.square()[:, :, None])[:, :, 0] / sizes
        variances = (squares - means.square()).clamp_min(_SMALLEST)
        densities = _log_densities(z, means, variances, upper_share)
        total = densities.logsumexp(dim=1)
        weights = (densities - total[:, None]).exp()
    gain = total.mean(dim=1) + 0.5 * (math.log(2 * math.pi) + 1)
    constant = spread == 0
    means = torch.where(constant, 0.0, means) * unit + center
    variances = torch.where(constant, 1.0, variances * unit.square())
    return TwoNormals(upper_share, means, variances, torch.where(constant[:, 0], 0.0, gain))


def _log_densities(t: Tensor, means: Tensor, variances: Tensor, upper_share: float) -> Tensor:
    """Of both components, shares included. t: (k, n). Returns (k, 2, n)."""
    log_shares = torch.tensor([1 - upper_share, upper_share], dtype=t.dtype, device=t.device).log()
    level = log_shares - 0.5 * (2 * math.pi * variances).log()
    return level[:, :, None] - 0.5 * (t[:, None] - means[:, :, None]).square() / variances[:, :, None]
