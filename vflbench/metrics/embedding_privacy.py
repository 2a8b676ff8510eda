"""Differential privacy of embeddings under noise, and its composition over messages. For label DP see `privacy`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, Self

import numpy as np

from vflbench.metrics.privacy import ALSO_FLOAT, BINOMIAL_SAMPLER, gaussian_epsilon


def theorem_condition(width: int, trials: int, chance: float, delta: float, largest: float) -> tuple[float, float]:
    """The variance N p (1 - p) of the noise, and the smallest variance for which `theorem_epsilon` holds.

    Source: Agarwal et al., "cpSGD: communication-efficient and differentially-private distributed SGD", 2018, Theorem 1.
    """
    return trials * chance * (1 - chance), max(23 * math.log(10 * width / delta), 2 * largest)


def theorem_epsilon(
    width: int, trials: int, chance: float, delta: float, l1: float, l2: float, largest: float
) -> float | None:
    """eps for which independent Bin(N, p) noise on d integers is (eps, delta)-DP; None if the condition fails.

        eps =  l2 sqrt(2 log(1.25 / delta)) / sqrt(V)  +  (l2 c sqrt(log(10 / delta)) + l1 b) / (V (1 - delta / 10))
             + (2/3 l8 log(1.25 / delta) + l8 d' log(20 d / delta) log(10 / delta)) / V,      V = N p (1 - p)
        b = 2/3 (p^2 + q^2) + (1 - 2 p),   c = sqrt(2) (3 p^3 + 3 q^3 + 2 p^2 + 2 q^2),   d' = 4/3 (p^2 + q^2),   q = 1 - p

    if V >= max(23 log(10 d / delta), 2 l8). Noise with p > 1/2 is the mirror image of noise with 1 - p, and has its eps.
    l1, l2, largest (l8): sensitivities, the largest distances of two neighbours in the L1, L2 and maximum norm.

    Source: Agarwal et al., "cpSGD: communication-efficient and differentially-private distributed SGD", 2018, Theorem 1.
    """
    variance, least = theorem_condition(width, trials, chance, delta, largest)
    if variance < least:
        return None
    p = min(chance, 1 - chance)
    squares = p**2 + (1 - p) ** 2
    b = 2 / 3 * squares + (1 - 2 * p)
    c = math.sqrt(2) * (3 * p**3 + 3 * (1 - p) ** 3 + 2 * squares)
    d = 4 / 3 * squares
    log10, log125 = math.log(10 / delta), math.log(1.25 / delta)
    return (
        l2 * math.sqrt(2 * log125 / variance)
        + (l2 * c * math.sqrt(log10) + l1 * b) / (variance * (1 - delta / 10))
        + (2 / 3 * largest * log125 + largest * d * math.log(20 * width / delta) * log10) / variance
    )


def hockey_stick(trials: int, chance: float, shift: int, epsilons: np.ndarray) -> np.ndarray:
    """max_S P(S) - e^eps Q(S) for P, Q = Bin(N, p) and Bin(N, p) + shift; the larger value of both orders of P and Q.

    epsilons: (m,), any sign. Returns (m,) float64.

    The binomial distribution is log-concave. So the likelihood ratio increases with the outcome, the best S is a tail, and
    no smaller shift has a larger divergence.
    """
    outcomes = np.arange(trials + shift + 1)
    from scipy import stats  # slow to import, and needed by few runs

    log_p, log_q = stats.binom.logpmf(outcomes, trials, chance), stats.binom.logpmf(outcomes - shift, trials, chance)
    return np.maximum(_divergence(log_p, log_q, epsilons), _divergence(log_q, log_p, epsilons))


def _divergence(log_p: np.ndarray, log_q: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    possible = log_p > -np.inf
    log_p, log_q = log_p[possible], log_q[possible]
    loss = log_p - log_q
    order = np.argsort(-loss, kind="stable")
    p, q = (np.concatenate([[0.0], np.cumsum(np.exp(x[order]))]) for x in (log_p, log_q))
    above = np.searchsorted(-loss[order], -epsilons, side="left")  # number of larger losses
    bounded = np.minimum(epsilons, 700.0)
    divergence = np.where(q[above] > 0, p[above] - np.exp(bounded + np.log(np.maximum(q[above], 1e-300))), p[above])
    return np.clip(divergence, np.maximum(0.0, -np.expm1(bounded)), 1.0)


_LARGEST = 20.0  # eps of one message above which the sum replaces the optimal composition
_SHARED = {
    "noise": "all messages about a row have the same noise, so that their differences, which are those of the embeddings, "
    "cross as they are: of more than one message nothing is claimed",
    "message": "the first message about a row in training is sent again in all epochs; a row that is predicted and has not "
    "been trained on, such as a test row, has another each time, of which the run makes one an epoch",
}
_POINTS = 2000  # grid points of a privacy loss distribution on each side of 0
_REST = 1e-12  # probability of the tail that is cut off, and counted in delta


@dataclass(frozen=True)
class Sensitivity:
    """The largest distances between the quantized values of two possible embeddings of one row.

    width: values per row. l1, l2, largest: bounds on the L1, L2 and maximum norm of the difference, in steps.
    """

    width: int
    l1: float
    l2: float
    largest: int

    @classmethod
    def of_grid(cls, width: int, levels: int, step: float, norm: float | None = None) -> Self:
        """For `width` values on `levels` levels: the diagonal of the cube, or, if rows are first clipped to an L2 norm C,

            largest = min(L - 1, floor(2 C / step) + 1),   l2 = min(sqrt(d) largest, 2 C / step + sqrt(d)),
            l1 = min(d largest, sqrt(d) l2, l2^2)

        since rounding moves two values apart by at most one step, and no integer exceeds its square.
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

    epsilon: None if nothing is claimed. reason: why nothing is claimed, or why epsilon is not that of the theorem.
    after: (messages, delta) -> eps of that many messages about the row at this delta, each with fresh noise. exact_after:
    the same from the distribution of the noise; None if `after` is exact already. memoised: what all messages about a row
    share: nothing (`none`), their noise, or the whole `message`. assumes: of the arithmetic and of the random numbers.
    """

    mechanism: str
    epsilon: float | None
    delta: float
    after: Callable[[int, float], float]
    exact_after: Callable[[int, float], float] | None = None
    reason: str = ""
    memoised: Literal["none", "noise", "message"] = "none"
    assumes: str = ""

    def delta_after(self, messages: int) -> float:
        """delta at which `messages` are reported: for one its own, otherwise the sum, and as much again to compose eps."""
        return self.delta if messages == 1 else 2 * messages * self.delta

    def messages(self, training: int, predicting: int) -> int:
        """Different messages about a row, at most. training, predicting: messages about it."""
        return min(training, 1) + predicting if self.memoised == "message" else training + predicting

    def refused(self, reason: str) -> Self:
        """The same noise, which hides nothing, and why."""
        return replace(self, epsilon=None, after=_no_claim, exact_after=None, reason=reason)

    def sharing(self, memoised: Literal["none", "noise", "message"]) -> Self:
        """The release whose messages about a row share so much. With shared noise the difference of two of them is that of
        the embeddings, and nothing is claimed of more than one; a message that is sent again says nothing new, and
        counts once.
        """
        if memoised == "none":
            return self
        shared = replace(self, reason=_SHARED[memoised], memoised=memoised)
        if memoised == "message":
            return shared
        one = self.after(1, self.delta)
        return replace(shared, after=lambda messages, _delta: one if messages == 1 else math.inf)


@dataclass(frozen=True)
class Sent:
    """What is known of the message about one row at one layer, after the defenses applied so far.

    width: values per row. sensitivity: of the quantized values; None if unknown. reason: why it cannot be known. releases:
    (name of the defense, release); each also holds for anything computed from its message later.
    """

    width: int
    sensitivity: Sensitivity | None = None
    reason: str = ""
    releases: tuple[tuple[str, EmbeddingRelease], ...] = ()

    def released(self, name: str, release: EmbeddingRelease) -> Self:
        return replace(self, releases=(*self.releases, (name, release)))

    def refused(self, reason: str) -> Self:
        """The same noise where something else that crosses tells what it hides."""
        hidden = tuple((name, release.refused(reason)) for name, release in self.releases)
        return replace(self, releases=hidden)


def binomial_release(s: Sensitivity | None, reason: str, trials: int, chance: float, delta: float) -> EmbeddingRelease:
    """The release of Bin(N, p) noise on each quantized value of a row. s: None if unknown, for the `reason`.

    If the condition of the theorem holds, eps is the larger of the theorem's and the exact one. The theorem does not limit
    eps, but its first term is that of the classical Gaussian mechanism, which is proven only for eps < 1. For 64 values of
    16 levels, N = 2000, p = 1/2 and delta = 0.001 the theorem gives 25.4, while the smallest valid eps is 30.2.
    """
    if s is None:
        return EmbeddingRelease("binomial", None, delta, _no_claim, reason=reason, assumes=BINOMIAL_SAMPLER)
    epsilon = theorem_epsilon(s.width, trials, chance, delta, s.l1, s.l2, s.largest)
    if epsilon is None:
        variance, least = theorem_condition(s.width, trials, chance, delta, s.largest)
        reason = (
            f"n p (1 - p) = {variance:.4g} is below max(23 log(10 d / delta), 2 Delta_inf) = {least:.4g} for d = {s.width}, "
            f"delta = {delta:g} and Delta_inf = {s.largest}; n = {math.ceil(least / (chance * (1 - chance)))} is enough"
        )

    def exact_after(messages: int, total: float) -> float:
        return exact_binomial_epsilon(trials, chance, s.largest, s.width * messages, total)

    if epsilon is None:
        return EmbeddingRelease("binomial", None, delta, _no_claim, exact_after, reason, assumes=BINOMIAL_SAMPLER)
    claimed, note = max(epsilon, exact_after(1, delta)), ""
    if math.isinf(claimed):
        reason = f"the theorem gives eps = {epsilon:.4g}, but exact accounting gives no finite eps"
        return EmbeddingRelease("binomial", None, delta, _no_claim, exact_after, reason, assumes=BINOMIAL_SAMPLER)
    if claimed > epsilon:
        note = f"the theorem's eps = {epsilon:.4g} is below the exact eps of this noise, which is claimed instead"

    after = partial(composed_epsilon, claimed, delta)
    return EmbeddingRelease("binomial", claimed, delta, after, exact_after, note, assumes=BINOMIAL_SAMPLER)


def gaussian_release(distance: float, sigma: float, delta: float) -> EmbeddingRelease:
    """The release of N(0, sigma^2) on each coordinate of embeddings at most `distance` apart in the L2 norm."""

    def after(messages: int, total: float) -> float:
        return gaussian_epsilon(math.sqrt(messages) * distance / sigma, total)

    return EmbeddingRelease("gaussian", after(1, delta), delta, after, assumes=ALSO_FLOAT)


def laplace_release(epsilon: float) -> EmbeddingRelease:
    """The release of Laplace noise of scale distance / eps on each coordinate; distance: the largest in the L1 norm."""
    return EmbeddingRelease("laplace", epsilon, 0.0, lambda messages, _: messages * epsilon, assumes=ALSO_FLOAT)


def _no_claim(_messages: int, _delta: float) -> float:
    return math.inf


def composed_epsilon(epsilon: float, delta: float, messages: int, total: float) -> float:
    """eps of several (epsilon, delta)-DP messages together at delta `total`; inf below messages x delta, where none follows.

    The optimal composition of arbitrary mechanisms (Kairouz, Oh and Viswanath, 2015), rounded up by dp-accounting; never
    above the sum.
    """
    if total >= 1:
        return 0.0
    if total < messages * delta:
        return math.inf
    if messages == 1 or epsilon > _LARGEST:
        return messages * epsilon
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = max(1e-4, 1e-5 * messages * epsilon)
    one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), step)
    return min(messages * epsilon, float(one.self_compose(messages).get_epsilon_for_delta(total)))


@cache
def exact_binomial_epsilon(trials: int, chance: float, shift: int, count: int, delta: float) -> float:
    """eps at delta of `count` integers with Bin(N, p) noise and sensitivity `shift` each; inf if no finite eps holds.

    The privacy loss distribution of one integer bounds both directions and all smaller shifts (see
    `hockey_stick`). dp-accounting composes `count` of them and rounds up, in float64.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    largest = _largest_loss(trials, chance, shift)
    step = largest / _POINTS
    places = np.arange(-_POINTS, _POINTS + 1)
    deltas = np.minimum.accumulate(hockey_stick(trials, chance, shift, places * step))
    never = -math.expm1(count * math.log1p(-min(float(deltas[-1]), 1 - 2**-53)))  # outcomes that only one of the two has
    if never > delta:
        return math.inf
    one: Any = pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas))
    total = one if count == 1 else one.self_compose(count)
    return float(total.get_epsilon_for_delta(delta))


def _largest_loss(trials: int, chance: float, shift: int) -> float:
    """A bound on the privacy loss, exceeded with negligible probability except where only one distribution has outcomes."""
    grid = np.geomspace(1e-6, 1e3, 400)
    deltas = hockey_stick(trials, chance, shift, grid)
    return float(grid[np.argmax(deltas <= deltas[-1] + _REST)])
