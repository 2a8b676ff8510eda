"""Canaries, rows whose label is a fair coin: lower bounds on eps from guesses about them, and what so many can find."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import betainc, ndtr
from torch import Tensor

from vflbench.numerics.auc import array_of
from vflbench.numerics.interval import least_probability


@dataclass(frozen=True)
class Guesses:
    """Counts of guesses about canaries.

    high: canaries guessed positive (a class other than 0). low: canaries guessed 0. high_right, low_right: the right ones
    among them. Canaries without a guess are not counted.
    """

    high: int = 0
    high_right: int = 0
    low: int = 0
    low_right: int = 0

    def __add__(self, other: Guesses) -> Guesses:
        return Guesses(
            self.high + other.high,
            self.high_right + other.high_right,
            self.low + other.low,
            self.low_right + other.low_right,
        )

    @property
    def total(self) -> int:
        return self.high + self.low

    def epsilon_low(self, alpha: float) -> float:
        """Lower bound on eps, wrong with probability at most alpha; 0 if the guesses prove nothing.

            eps_low = max of log(p / (1 - p)) over four shares,   p = Clopper-Pearson bound at alpha / 4

        The four are the share of right guesses among the high and among the low ones, and the same with all guesses
        reversed. Since each canary is a fair coin, their odds are TPR / FPR and (1 - FPR) / (1 - TPR). Of r guesses about
        the input of an eps-DP mechanism, stochastically at most Bin(r, e^eps / (1 + e^eps)) are right, even though the
        canaries of one run are not independent.

        Source: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 2.1.
        """
        counts = [
            (self.high_right, self.high),
            (self.high - self.high_right, self.high),
            (self.low_right, self.low),
            (self.low - self.low_right, self.low),
        ]
        least = max(least_probability(right, guessed, alpha / len(counts)) for right, guessed in counts)
        return max(0.0, math.log(least / (1 - least))) if least > 0 else 0.0

    def mu_low(self, alpha: float, canaries: int) -> float:
        """Lower bound on mu of Gaussian label privacy, wrong with probability at most alpha; 0 if the guesses prove nothing.

            mu_low = 2 Phi^-1(p),   p = the larger Clopper-Pearson bound at alpha / 2 of the shares of right guesses among
                                    all canaries, and of wrong ones

        A canary without a guess counts as guessed wrong both times. Each label has noise of its own, so given the messages
        about them the coins are independent, and of guesses about r canaries at most Bin(r, Phi(mu / 2)) are right,
        stochastically. (`epsilon_low` looks at high guesses alone, too. Here that would be wrong: of the few surest guesses
        about Gaussian noise nearly all are right, for any mu.)

        Source: Steinke, Nasr and Jagielski, 2023; Phi(mu / 2) from Dong, Roth and Su, "Gaussian differential privacy", 2022.
        """
        right = self.high_right + self.low_right
        least = max(least_probability(count, canaries, alpha / 2) for count in (right, self.total - right))
        return max(0.0, 2 * NormalDist().inv_cdf(least)) if least > 0 else 0.0


def guess(scores: Tensor | np.ndarray, positive: Tensor | np.ndarray, canary: Tensor | np.ndarray) -> Guesses:
    """Guess positive for each canary with a score above the threshold, and 0 for all other canaries.

    scores, positive, canary: (n,), the last two bool. The threshold separates the classes of the other rows best. It does
    not depend on the labels of canaries.
    """
    values, ones, is_canary = array_of(scores), array_of(positive), array_of(canary)
    above = values > _threshold(values[~is_canary], ones[~is_canary])
    high, low = is_canary & above, is_canary & ~above
    return Guesses(*(int(rows.sum()) for rows in (high, high & ones, low, low & ~ones)))


def _threshold(scores: np.ndarray, positive: np.ndarray) -> float:
    """The score t with the largest |P(s > t | 1) - P(s > t | 0)|; the median if there is only one class."""
    if not len(scores):
        return 0.0
    order = scores.argsort(kind="stable")
    values, ones = scores[order].astype(np.float64), positive[order].astype(np.float64)
    if not 0 < ones.sum() < len(ones):
        return float(values[len(values) // 2])
    gap = np.abs(ones.cumsum() / ones.sum() - (1 - ones).cumsum() / (1 - ones).sum())
    ends = np.append(values[1:] != values[:-1], True)  # last index of each run of equal scores
    return float(values[np.where(ends, gap, -1.0).argmax()])


MOST_CANARIES = 1_000_000
_FAR = 6.5  # standard deviations of a fair coin's count; beyond lies less than 1e-10


def power(claim: float, times: float, canaries: int, alpha: float, *, gaussian: bool = False) -> float:
    """The probability that `Guesses.epsilon_low` (gaussian: `mu_low`) is above the claim, if the mechanism is weaker.

        eps:  1 - sum_h P(H = h) (1 - a(h)) (1 - a(n - h)),   H ~ Bin(n, 1/2),   X ~ Bin(h, q)
              a(h) = P(X >= c_h) + P(X <= h - c_h),   c_h the least count with P(Bin(h, p) >= c_h) < alpha / 4
        mu:   a(n), with alpha / 2

    p is the largest chance of a right guess under the claim, q that under `times` the claim: e^eps / (1 + e^eps) of eps,
    Phi(mu / 2) of mu. Exact for one reader of randomized response (of Gaussian noise), which tells as much as the promise
    allows, where the reader guesses every canary. A reader who sees less, or abstains, finds it more rarely.

    claim: eps or mu, of all messages together. canaries: how many. alpha: of the bound.
    """
    if not canaries or not 0 < claim < math.inf:
        return 0.0
    p, q = (_chance(value, gaussian=gaussian) for value in (claim, times * claim))
    if gaussian:
        return float(_caught(np.array([canaries]), p, q, alpha / 2)[0])
    half = _FAR * math.sqrt(canaries) / 2
    high = np.arange(max(0, math.floor(canaries / 2 - half)), min(canaries, math.ceil(canaries / 2 + half)) + 1)
    either = 1 - (1 - _caught(high, p, q, alpha / 4)) * (1 - _caught(canaries - high, p, q, alpha / 4))
    below = _at_least(high, canaries, 0.5) - _at_least(high + 1, canaries, 0.5)
    return float(np.average(either, weights=below))


def canaries_needed(claim: float, times: float, alpha: float, wanted: float = 0.8, *, gaussian: bool = False) -> int | None:
    """So many canaries have this power, rounded up to two digits; None if MOST_CANARIES have less.

    The power rises with the number of canaries but for small steps, as counts are whole.
    """
    low, high = 0, 16
    while power(claim, times, high, alpha, gaussian=gaussian) < wanted:
        low, high = high, 2 * high
        if high > MOST_CANARIES:
            return None
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        enough = power(claim, times, middle, alpha, gaussian=gaussian) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    step = 10 ** max(0, len(str(high)) - 2)
    rounded = -(-high // step) * step
    while power(claim, times, rounded, alpha, gaussian=gaussian) < wanted:
        rounded += step
    return rounded


def _chance(claim: float, *, gaussian: bool) -> float:
    """Of a right guess, at most."""
    return float(ndtr(claim / 2)) if gaussian else 1 / (1 + math.exp(-min(claim, 700.0)))


def _caught(guessed: np.ndarray, p: float, q: float, level: float) -> np.ndarray:
    """P(X >= c) + P(X <= n - c) of X ~ Bin(n, q), c the least count that Bin(n, p) reaches with less than `level`."""
    least, most = np.zeros_like(guessed), guessed + 1
    while (most - least > 1).any():
        middle = (least + most) // 2
        rare = _at_least(middle, guessed, p) < level
        least, most = np.where(rare, least, middle), np.where(rare, middle, most)
    return _at_least(most, guessed, q) + 1 - _at_least(guessed - most + 1, guessed, q)


def _at_least(count: np.ndarray, trials: np.ndarray | int, p: float) -> np.ndarray:
    """P(Bin(trials, p) >= count): I_p(count, trials - count + 1); 1 for count <= 0, and 0 for count > trials."""
    return np.where(count > trials, 0.0, betainc(np.maximum(count, 0), np.maximum(trials - count + 1, 1), p))
