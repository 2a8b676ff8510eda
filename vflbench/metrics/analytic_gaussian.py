"""(eps, delta) of Gaussian noise on real numbers, exactly."""

import math
from collections.abc import Callable

from vflbench.numerics.special import log_ndtr, ndtr


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(eps) = Phi(mu / 2 - eps / mu) - e^eps Phi(-mu / 2 - eps / mu) for two unit Gaussians with means mu apart.

    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    """
    return max(0.0, float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least eps >= 0 with gaussian_delta(mu, eps) <= delta, rounded up."""
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    return _least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, low, high)


def gaussian_sigma(distance: float, epsilon: float, delta: float) -> float:
    """The least sigma that makes embeddings at this L2 distance (eps, delta)-DP, rounded up."""
    low, high = 0.0, 1.0
    while gaussian_delta(1 / high, epsilon) > delta:
        low, high = high, 2 * high
    return distance * _least(lambda sigma: sigma > 0 and gaussian_delta(1 / sigma, epsilon) <= delta, low, high)


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
