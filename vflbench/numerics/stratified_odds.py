"""Odds ratios of tables in strata: an exact lower bound, and an estimate."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflbench.numerics.special import gammaln

Counts = NDArray[np.int64]
_MOST = 60.0  # log odds ratio that no bound exceeds
_HALVINGS = 28  # to 3e-7
_LEAST_MASS = 1e-20


@dataclass(frozen=True)
class StratifiedTable:
    """How many of the rows in two groups are positive, stratum by stratum.

    high, low: (S,) rows of each group. high_positive, low_positive: (S,) the positive ones among them.
    """

    high: Counts
    high_positive: Counts
    low: Counts
    low_positive: Counts

    @property
    def rows(self) -> int:
        """Rows in strata that have both groups and both classes. No other stratum counts."""
        positive, total = self.high_positive + self.low_positive, self.high + self.low
        counts = (self.high > 0) & (self.low > 0) & (positive > 0) & (positive < total)
        return int(total[counts].sum())

    def log_odds_low(self, alpha: float) -> float:
        """Lower bound on the log odds ratio w of positives in the high group against the low one; 0 if nothing is shown.

            w_low = the largest w >= 0 with P(T >= t) <= alpha,   T = sum over strata of independent
                    noncentral hypergeometric counts of positives in the high group, given all margins, odds ratio e^w

        Where no exchange of one positive row of the low group for a row of the high group in its stratum multiplies the
        probability of the labels by more than e^w, the observed t exceeds T's (1 - alpha) quantile with probability at most
        alpha. Rows need not be independent beyond that (docs/explain/observational.md has the proof).

        Source: Fisher, "The logic of inductive inference", 1935, for the law of T; Rosenbaum, "Observational Studies", 2002,
        chapter 4, for its use where odds are known up to a factor.
        """
        strata = _log_weights(self)
        observed = int(self.high_positive.sum()) - sum(least for least, _ in strata)
        weights = [weight for _, weight in strata if len(weight) > 1]
        if _tail(weights, observed, 0.0) > alpha:
            return 0.0
        below, above = 0.0, _MOST
        for _ in range(_HALVINGS):
            middle = (below + above) / 2
            below, above = (middle, above) if _tail(weights, observed, middle) <= alpha else (below, middle)
        return below

    def log_odds(self) -> tuple[float, float]:
        """An estimate of the log odds ratio that all strata share, and its standard error; (0, inf) without one.

            e^w = R / Q,   R = sum a d / n,   Q = sum b c / n,   half a row added to each of the two

        a, b: positives and others in the high group; c, d: in the low one; n: rows of the stratum.

        Source: Mantel and Haenszel, 1959; variance of Robins, Breslow and Greenland, "Estimators of the Mantel-Haenszel
        variance consistent in both sparse data and large-strata limiting models", Biometrics 1986.
        """
        n = self.high + self.low
        full = n > 0
        a, c, n = self.high_positive[full], self.low_positive[full], n[full]
        b, d = self.high[full] - a, self.low[full] - c
        right, wrong = a * d / n, b * c / n
        r, q = float(right.sum()) + 0.5, float(wrong.sum()) + 0.5
        if r + q <= 1:
            return 0.0, math.inf
        p, rest = (a + d) / n, (b + c) / n
        variance = (
            (0.5 + (p * right).sum()) / (2 * r * r)
            + (0.5 + (p * wrong + rest * right).sum()) / (2 * r * q)
            + (0.5 + (rest * wrong).sum()) / (2 * q * q)
        )
        return math.log(r / q), math.sqrt(float(variance))


def _log_weights(table: StratifiedTable) -> list[tuple[int, NDArray[np.float64]]]:
    """For each stratum, the least count of positives in the high group, and the log weights of it and all larger ones."""
    strata = []
    for high, low, positive in zip(table.high, table.low, table.high_positive + table.low_positive, strict=True):
        least, most = max(0, int(positive - low)), int(min(high, positive))
        t = np.arange(least, most + 1)
        strata.append((least, _log_choose(high, t) + _log_choose(low, positive - t)))
    return strata


def _log_choose(n: int, k: Counts) -> NDArray[np.float64]:
    result: NDArray[np.float64] = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return result


def _tail(strata: list[NDArray[np.float64]], observed: int, log_odds: float) -> float:
    """P(T >= observed), with T counted from its least value; what rounding leaves out counts as if it were in the tail."""
    start, law = 0, np.ones(1)
    for weights in strata:
        exponent = weights + log_odds * np.arange(len(weights))
        chances = np.exp(exponent - exponent.max())
        chances /= chances.sum()
        first, end = _ends(chances)
        law = np.convolve(law, chances[first:end])
        start += first
        first, end = _ends(law)
        start, law = start + first, law[first:end]
    return min(1.0, max(0.0, 1.0 - float(law[: max(0, observed - start)].sum())))


def _ends(law: NDArray[np.float64]) -> tuple[int, int]:
    places = np.flatnonzero(law > _LEAST_MASS)
    return int(places[0]), int(places[-1]) + 1
