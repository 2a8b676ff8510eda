"""What noise on embeddings may claim about them, and how that adds up over messages. No label DP: see `privacy`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np

from vflbench.numerics.binomial import hockey_stick, theorem_condition, theorem_epsilon

_LARGEST = 20.0  # eps of one message beyond which releases are just added up
_POINTS = 2000  # of a privacy loss distribution, connected by straight lines above the true curve
_REST = 1e-12  # of probability, where its tail is cut; counted as lost


@dataclass(frozen=True)
class Sensitivity:
    """How far the whole numbers that stand for two embeddings of one row can be apart.

    width: how many there are. l1, l2, largest: bounds in steps, over all pairs of embeddings that can be.
    """

    width: int
    l1: float
    l2: float
    largest: int

    @classmethod
    def of_grid(cls, width: int, levels: int, step: float, norm: float | None = None) -> Self:
        """Of `width` numbers on so many levels: any two corners of the cube; or, if rows are clipped to an L2 norm first,

            largest = min(L - 1, floor(2 C / step) + 1),   l2 = min(sqrt(d) largest, 2 C / step + sqrt(d)),
            l1 = min(d largest, sqrt(d) l2, l2^2)

        since rounding moves two numbers apart by one step at most, and whole numbers are no longer than their squares.
        """
        largest, l2 = levels - 1, math.sqrt(width) * (levels - 1)
        if norm is not None:
            largest = min(largest, math.floor(2 * norm / step) + 1)
            l2 = min(math.sqrt(width) * largest, 2 * norm / step + math.sqrt(width))
        return cls(width, min(width * largest, math.sqrt(width) * l2, l2**2), l2, largest)


@dataclass(frozen=True)
class EmbeddingRelease:
    """One message about a row, (eps, delta)-DP in its embedding:

        P(message in S | h) <= e^eps P(message in S | h') + delta   for any two embeddings h, h' of the row, all else equal

    epsilon: None where nothing is claimed. reason: why not, or why it isn't what one might expect. after: (messages, delta)
    -> eps that so many messages about the row, each with noise of its own, add up to at that delta. exact_after: the same
    from the distribution of the noise rather than from a theorem; None where the two are one.
    """

    mechanism: str
    epsilon: float | None
    delta: float
    after: Callable[[int, float], float]
    exact_after: Callable[[int, float], float] | None = None
    reason: str = ""

    def delta_after(self, messages: int) -> float:
        """What so many deltas add up to, and as much again for adding up the eps; nothing is added to one message's."""
        return self.delta if messages == 1 else 2 * messages * self.delta


@dataclass(frozen=True)
class Sent:
    """What of one row crosses at one layer, as far as the defenses before have settled it.

    width: numbers a row. sensitivity: of the whole numbers that stand for it; None where it isn't known. reason: why it
    can't be. releases: by the name of the defense; each holds for all that is made of its message later.
    """

    width: int
    sensitivity: Sensitivity | None = None
    reason: str = ""
    releases: tuple[tuple[str, EmbeddingRelease], ...] = ()

    def released(self, name: str, release: EmbeddingRelease) -> Self:
        return replace(self, releases=(*self.releases, (name, release)))


def binomial_release(
    sensitivity: Sensitivity | None, reason: str, trials: int, chance: float, delta: float
) -> EmbeddingRelease:
    """Of Bin(N, p) on each of a row's whole numbers. sensitivity: None where it isn't known, for the `reason`.

    The eps of the theorem, if its condition holds; and where that is below the exact one, the exact one. The theorem says
    nothing of how large eps may be, but its first term is that of the classical Gaussian mechanism, which is proven for
    eps < 1 only: for 64 numbers of 16 levels, N = 2000, p = 1/2 and delta = 0.001 it gives 25.4, and the least that is true
    is 30.2.
    """
    if sensitivity is None:
        return EmbeddingRelease("binomial", None, delta, _nothing, reason=reason)
    s = sensitivity
    epsilon = theorem_epsilon(s.width, trials, chance, delta, s.l1, s.l2, s.largest)
    if epsilon is None:
        variance, least = theorem_condition(s.width, trials, chance, delta, s.largest)
        reason = (
            f"n p (1 - p) = {variance:.4g} is below max(23 log(10 d / delta), 2 Delta_inf) = {least:.4g} for d = {s.width}, "
            f"delta = {delta:g} and Delta_inf = {s.largest}; n = {math.ceil(least / (chance * (1 - chance)))} would do"
        )

    def exact_after(messages: int, total: float) -> float:
        return exact_binomial_epsilon(trials, chance, s.largest, s.width * messages, total)

    if epsilon is None:
        return EmbeddingRelease("binomial", None, delta, _nothing, exact_after, reason)
    claimed, note = max(epsilon, exact_after(1, delta)), ""
    if math.isinf(claimed):
        reason = f"the theorem gives eps = {epsilon:.4g}, and exact accounting finds none"
        return EmbeddingRelease("binomial", None, delta, _nothing, exact_after, reason)
    if claimed > epsilon:
        note = f"the theorem's eps = {epsilon:.4g} is less than this noise really has, so it is not what is claimed"

    def after(messages: int, total: float) -> float:
        return composed_epsilon(claimed, delta, messages, total)

    return EmbeddingRelease("binomial", claimed, delta, after, exact_after, note)


def gaussian_release(distance: float, sigma: float, delta: float) -> EmbeddingRelease:
    """Of N(0, sigma^2) on each coordinate of embeddings that are `distance` apart at most, in L2."""

    def after(messages: int, total: float) -> float:
        return gaussian_epsilon(math.sqrt(messages) * distance / sigma, total)

    return EmbeddingRelease("gaussian", after(1, delta), delta, after)


def laplace_release(epsilon: float) -> EmbeddingRelease:
    """Of Laplace noise of scale distance / eps on each coordinate of embeddings that are `distance` apart at most, in L1."""
    return EmbeddingRelease("laplace", epsilon, 0.0, lambda messages, _: messages * epsilon)


def _nothing(_messages: int, _delta: float) -> float:
    return math.inf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(eps) = Phi(mu / 2 - eps / mu) - e^eps Phi(-mu / 2 - eps / mu) of two unit Gaussians whose means are mu apart.

    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    """
    from scipy.special import log_ndtr, ndtr  # see vflbench.numerics.interval

    return max(0.0, float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least eps >= 0 with gaussian_delta(mu, eps) <= delta, from above."""
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    return _least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, low, high)


def gaussian_sigma(distance: float, epsilon: float, delta: float) -> float:
    """The least noise that makes embeddings so far apart (eps, delta)-DP, from above."""
    low, high = 0.0, 1.0
    while gaussian_delta(1 / high, epsilon) > delta:
        low, high = high, 2 * high
    return distance * _least(lambda sigma: sigma > 0 and gaussian_delta(1 / sigma, epsilon) <= delta, low, high)


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def composed_epsilon(epsilon: float, delta: float, messages: int, total: float) -> float:
    """eps of so many (epsilon, delta)-DP messages at `total`, which is at least messages x delta.

    The optimal composition of mechanisms of which no more is known (Kairouz, Oh and Viswanath, 2015), rounded to the safe
    side by dp-accounting; never above the sum.
    """
    if messages == 1 or epsilon > _LARGEST or total < messages * delta:
        return messages * epsilon
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = max(1e-4, 1e-5 * messages * epsilon)
    one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), step)
    return min(messages * epsilon, float(one.self_compose(messages).get_epsilon_for_delta(total)))


@cache
def exact_binomial_epsilon(trials: int, chance: float, shift: int, count: int, delta: float) -> float:
    """eps at delta of `count` whole numbers, each with Bin(N, p) on it and at most `shift` apart; inf if there is none.

    From the privacy loss distribution of one of them, which bounds both directions and all smaller shifts (see
    `numerics.binomial.hockey_stick`), composed as often and rounded to the safe side by dp-accounting, in float64.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    furthest = _furthest(trials, chance, shift)
    step = furthest / _POINTS
    places = np.arange(-_POINTS, _POINTS + 1)
    deltas = np.minimum.accumulate(hockey_stick(trials, chance, shift, places * step))
    one: Any = pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas))
    total = one if count == 1 else one.self_compose(count)
    return float(total.get_epsilon_for_delta(delta))


def _furthest(trials: int, chance: float, shift: int) -> float:
    """A privacy loss beyond which hardly any probability is, other than where one of the two is impossible."""
    grid = np.geomspace(1e-6, 1e3, 400)
    spent = hockey_stick(trials, chance, shift, grid)
    return float(grid[np.argmax(spent <= spent[-1] + _REST)])
