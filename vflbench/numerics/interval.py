"""A mean of few values, and how sure one can be of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; low and high are nan where one value is too few to tell."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean, mean +- t(0.975, n - 1) s / sqrt(n). nan for no values."""
    n = len(values)
    if not n:
        return Interval(math.nan, math.nan, math.nan)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, math.nan, math.nan)
    from scipy.special import stdtrit  # takes a fifth of a second to import, which those who only prepare data needn't wait

    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half)


def within_unit(interval: Interval) -> Interval:
    """An AUC lies in [0, 1], and so does its interval (nan stays nan)."""
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def least_probability(successes: int, trials: int, alpha: float) -> float:
    """Clopper-Pearson's lower bound: the p for which so many successes or more have probability alpha; 0 for none."""
    if not successes:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, trials - successes + 1, alpha))
