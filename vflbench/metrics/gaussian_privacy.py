"""Gaussian differential privacy of labels: what mu promises."""

import math
import statistics
from dataclasses import dataclass

from vflbench.metrics.exposure import Exposure
from vflbench.numerics.special import log_ndtr

_NORMAL = statistics.NormalDist()


@dataclass(frozen=True)
class GaussianRelease:
    """Values computed from each label by a mu-GDP mechanism; everything that is sent is computed from them.

    To the best reader two classes of a row, all else being equal, are N(0, 1) and N(mu, 1) at most (Dong, Roth and Su,
    "Gaussian differential privacy", 2022, Definition 2.6).

    mechanism: its name. mu: of all values together. epochs: the number over which mu is spread, an equal share of mu^2 each;
    1 where the first epoch spends all. once: whether all epochs use the same noise.
    """

    mechanism: str
    mu: float
    epochs: int = 1
    once: bool = False

    def mu_after(self, exposure: Exposure) -> float:
        """mu sqrt(epochs seen / epochs), at most mu: epochs after the planned ones tell nothing new."""
        return self.mu * math.sqrt(min(1.0, exposure.epochs / self.epochs))


def gaussian_auc_ceiling(mu: float) -> float:
    """Upper bound of the leak AUC: Phi(mu / sqrt(2)), that of N(0, 1) against N(mu, 1)."""
    return _NORMAL.cdf(mu / math.sqrt(2))


def gaussian_error_floor(mu: float) -> float:
    """Lower bound of the mean of false positive and false negative rate: Phi(-mu / 2)."""
    return _NORMAL.cdf(-mu / 2)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The delta for which mu-GDP is (eps, delta)-DP: Phi(-eps / mu + mu / 2) - e^eps Phi(-eps / mu - mu / 2).

    Source: Dong, Roth and Su, 2022, Corollary 2.13; Balle and Wang, ICML 2018, Theorem 8.
    """
    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(0.0, second - first)) if first > -700 else 0.0


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The least eps for which mu-GDP is (eps, delta)-DP, rounded up in its last bits; 0 < delta < 1."""
    low, high = 0.0, 1.0
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, mu) > delta else (low, middle)
    return high
