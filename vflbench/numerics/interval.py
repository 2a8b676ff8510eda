"""Means and shares with confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval. low and high are nan if there is only one value."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean, mean +- t(0.975, n - 1) s / sqrt(n); nan if there are no values."""
    n = len(values)
    if not n:
        return Interval(math.nan, math.nan, math.nan)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, math.nan, math.nan)
    from scipy.special import stdtrit  # 0.2 s to import, not needed to prepare data

    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half)


def within_unit(interval: Interval) -> Interval:
    """The interval cut to [0, 1], for AUCs and shares; nan stays nan."""
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def least_probability(successes: int, trials: int, alpha: float) -> float:
    """Clopper-Pearson lower bound: the p at which `successes` or more have probability alpha; 0 for no successes."""
    if not successes:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, trials - successes + 1, alpha))
