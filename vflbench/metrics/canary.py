"""Canaries, rows whose label is a fair coin: lower bounds on eps from guesses about them, and what so many can find."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, reduce
from statistics import NormalDist

import numpy as np
from scipy.special import betainc, logit, ndtr
from torch import Tensor

from vflbench.metrics.privacy import GaussianRelease, Release
from vflbench.numerics.auc import array_of
from vflbench.numerics.interval import least_probability


@dataclass(frozen=True)
class Guesses:
    """Counts of guesses about canaries.

    high: canaries guessed positive, the second of their two classes. low: guessed the first. high_right, low_right: the
    right ones among them. Canaries without a guess are not counted.
    """

    high: int = 0
    high_right: int = 0
    low: int = 0
    low_right: int = 0

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
        pairs = ((self.high_right, self.high), (self.low_right, self.low))
        shares = [(count, guessed) for right, guessed in pairs for count in (right, guessed - right)]
        least = max(least_probability(count, guessed, alpha / len(shares)) for count, guessed in shares)
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


MOST_CANARIES, POWER = 1_000_000, 0.8
TOO_WEAK = (1.5, 2.0)
"""How many times the promised eps or mu a mechanism leaks, for which the power of the check is computed."""
CanaryRead = tuple[float, float] | None
"""The chances of a right and of a wrong guess about a canary."""
_DRAWS, _BOUNDS, _FAR = 1 << 19, 16, 6.5  # of Laplace noise; that are tried; deviations beyond which lies less than 1e-10


@cache
def reader_of(
    release: Release | GaussianRelease, claim: float, visits: int, canaries: int, alpha: float, classes: int = 0
) -> tuple[float, dict[float, CanaryRead]]:
    """The reader that finds mechanisms TOO_WEAK times weaker than promised most often, chosen without a look at any label.

    It adds up what each visit tells of a row's label, and guesses by the sign where the sum is farther than a bound from 0.
    Returns this bound, in units of what one visit can tell, and for each of TOO_WEAK its chances. Of Gaussian noise it
    guesses every canary, at a tie by a coin: few sure guesses prove nothing there.

    claim: eps or mu of all visits together. visits: with noise of their own. classes: how many there are for a reader who
    sees the class of each visit; 0 for one who sees what the noise tells.
    """
    gaussian = isinstance(release, GaussianRelease)
    of = {times: _sums(release, times, claim, visits, classes) for times in TOO_WEAK}
    heights = np.unique(np.abs(of[TOO_WEAK[0]][0]))[:-1]
    bounds = [0.0, *heights[np.linspace(0, len(heights) - 1, min(_BOUNDS, len(heights))).astype(int)]]

    def read(times: float, bound: float) -> CanaryRead:
        sums, share = of[times]
        tie = gaussian * share[sums == 0].sum() / 2
        return float(share[sums > bound].sum() + tie), float(share[sums < -bound].sum() + tie)

    def advantage(bound: float) -> float:
        return sum(power(claim, times, canaries, alpha, read=read(times, bound)) for times in of)

    best = 0.0 if gaussian else max(bounds, key=advantage)
    return best, {times: read(times, best) for times in of}


def _sums(
    release: Release | GaussianRelease, times: float, claim: float, visits: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """(k,) what a row of class 1 can add up to, and (k,) how probable it is."""
    if isinstance(release, GaussianRelease):
        visits, classes = visits if classes else 1, 2  # a sum of likelihood ratios is one ratio of all
        odds = min(700.0, logit(ndtr(times * claim / math.sqrt(visits) / 2)))
    elif release.mechanism == "laplace" and not classes:
        draw, n = np.random.default_rng(0), max(1 << 16, _DRAWS // visits)
        evidence = np.zeros((2, n))
        for _ in range(visits):
            x = np.array([[1], [0]]) + draw.laplace(0, release.numbers / (times * release.epsilon), (2, n))
            evidence += np.abs(x) - np.abs(x - 1)
        sums = evidence[0] if release.numbers == 1 else (evidence[0] - evidence[1]) / 2
        return sums.round(9), np.full(n, 1 / n)
    else:
        odds = min(700.0, times * release.epsilon)
    one = np.array([1.0, max(0, classes - 2), math.exp(odds)])  # the class 0, a third one, its own
    share = reduce(np.convolve, [one / one.sum()] * visits)
    return np.arange(-visits, visits + 1.0), share


@cache
def power(
    claim: float, times: float, canaries: int, alpha: float, *, gaussian: bool = False, read: CanaryRead = None
) -> float:
    """The probability that `Guesses.epsilon_low` (gaussian: `mu_low`) is above the claim, if the mechanism is weaker.

        eps:  1 - sum_h P(H = h) (1 - a(h)) (1 - a(g - h)),   g = canaries (right + wrong),   H ~ Bin(g, 1/2)
              a(h) = P(X >= c_h) + P(X <= h - c_h),   X ~ Bin(h, q),   c_h least with P(Bin(h, p) >= c_h) < alpha / 4
        mu:   a(canaries), with alpha / 2

    p is the largest chance of a right guess under the claim: e^eps / (1 + e^eps), or Phi(mu / 2); q = right / (right +
    wrong). Exact where every canary is guessed; else g stands for a number that varies about it.

    claim: eps or mu, of all messages together. canaries: how many. alpha: of the bound. read: the chances of a right and of
    a wrong guess about a canary (`reader_of`); left out, of the best reader of one visit that leaks `times` the claim, who
    guesses every canary: no reader finds it more often.
    """
    p, best = (_chance(value, gaussian=gaussian) for value in (claim, times * claim))
    right, wrong = read or (best, 1 - best)
    guessed = round(canaries * (right + wrong))
    if not guessed or not 0 < claim < math.inf:
        return 0.0
    q = right / (right + wrong)
    if gaussian:
        return float(_caught(np.array([canaries]), p, q, alpha / 2)[0])
    half = _FAR * math.sqrt(guessed) / 2
    high = np.arange(max(0, math.floor(guessed / 2 - half)), min(guessed, math.ceil(guessed / 2 + half)) + 1)
    either = 1 - (1 - _caught(high, p, q, alpha / 4)) * (1 - _caught(guessed - high, p, q, alpha / 4))
    below = _at_least(high, guessed, 0.5) - _at_least(high + 1, guessed, 0.5)
    return float(np.average(either, weights=below))


@cache
def canaries_needed(
    claim: float, times: float, alpha: float, *, gaussian: bool = False, read: CanaryRead = None
) -> int | None:
    """So many canaries have the power POWER, rounded up to two digits; None if MOST_CANARIES have less.

    The power rises with the number of canaries but for small steps, as counts are whole.
    """

    def enough(canaries: int) -> bool:
        return power(claim, times, canaries, alpha, gaussian=gaussian, read=read) >= POWER

    rounded = [*range(1, 100), *(two * 10**k for k in range(1, 5) for two in range(10, 100)), MOST_CANARIES]
    return next(filter(enough, rounded[bisect_left(rounded, True, key=enough) :]), None)


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
