"""A lower bound of a mechanism's eps, by an attacker who distinguishes two of its inputs."""

import math

import numpy as np
from scipy import stats


def lower_bound(low, high, delta):
    """The largest eps with eps <= log((P(total > t | high) - delta) / P(total > t | low)), or its mirror image, at some t.

    low, high: (n,) totals of messages about either input. With probability 99.9 % for all 50 thresholds together.
    """
    thresholds = np.quantile(np.concatenate([low, high]), np.linspace(0.01, 0.99, 50))
    error, best = 0.001 / (4 * len(thresholds)), 0.0
    for one, other in ((high, low), (-low, -high)):
        for t in thresholds if one is high else -thresholds:
            hits, false = int((one > t).sum()), int((other > t).sum())
            least = stats.beta.ppf(error, hits, len(one) - hits + 1) if hits else 0.0
            most = stats.beta.ppf(1 - error, false + 1, len(other) - false)
            best = max(best, math.log(max(least - delta, 1e-300) / most))
    return best
