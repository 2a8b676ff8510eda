"""Privacy claims of defenses, of labels and of embeddings under noise, and their composition over a run."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr


@dataclass(frozen=True)
class Exposure:
    """What an attacker has seen of one row: the number of epochs, and of messages in all of them."""

    epochs: int = 1
    messages: int = 1


_BITS = "random bits that nobody can predict, and the generator of this run is no cryptographic one"

ALSO_FLOAT = (
    "real numbers: its noise is drawn in floating point, whose least bits may reveal what the proof hides (Mironov, 2012); "
    f"and {_BITS}"
)
BINOMIAL_SAMPLER = (
    "an exact binomial distribution: its whole numbers are drawn by rejection in floating point, which is near it; and "
    f"{_BITS}"
)
COINS = (
    "coins of the stated probability: they are drawn with 53 bits, which changes eps by 2^-50 (K - 1 + e^eps) at most for K "
    f"classes; and {_BITS}"
)

"""What guarantees of noise assume of arithmetic and of random numbers. Noise that is drawn in floating point has gaps: the
outcomes that one input can have are not those that another can have, and tell the two apart however much noise there is.
Source: Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
"""

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

    def count(self, exposure: Exposure) -> int:
        """Visits that tell something new."""
        return 1 if self.once else min(exposure.epochs, self.epochs)

    def mu_after(self, exposure: Exposure) -> float:
        """mu sqrt(epochs seen / epochs), at most mu: epochs after the planned ones tell nothing new."""
        return self.mu * math.sqrt(min(1.0, exposure.epochs / self.epochs))

    def leak_auc_after(self, exposure: Exposure) -> float:
        return gaussian_auc_ceiling(self.mu_after(exposure))

    def error_after(self, exposure: Exposure) -> float:
        return gaussian_error_floor(self.mu_after(exposure))


def gaussian_auc_ceiling(mu: float) -> float:
    """Upper bound of the leak AUC: Phi(mu / sqrt(2)), that of N(0, 1) against N(mu, 1)."""
    return _NORMAL.cdf(mu / math.sqrt(2))


def rows_worth(rarest: int, share: float, ceiling: float) -> float:
    """How many rows with true labels the rows of the rarest class are worth to an estimate from labels with noise.

        rarest v / (v + 1 / mu^2),   v = share (1 - share),   mu = sqrt(2) Phi^-1(ceiling)

    v is the variance of the label, 1 / mu^2 that of Gaussian noise with this ceiling of the leak AUC; other noise with the
    same ceiling is taken for it. share: of the rarest class among all rows.
    """
    if not 0.5 < ceiling < 1:
        return rarest * float(ceiling > 0.5)
    variance = share * (1 - share)
    return rarest * variance / (variance + 1 / (math.sqrt(2) * _NORMAL.inv_cdf(ceiling)) ** 2)


def gaussian_error_floor(mu: float) -> float:
    """Lower bound of the mean of false positive and false negative rate: Phi(-mu / 2)."""
    return _NORMAL.cdf(-mu / 2)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta for which mu-GDP is (eps, delta)-DP: Phi(mu / 2 - eps / mu) - e^eps Phi(-mu / 2 - eps / mu); so are two unit
    Gaussians with means mu apart. (dp-accounting has the same number, and takes a second and a half to import.)

    Source: Balle and Wang, ICML 2018, Theorem 8; Dong, Roth and Su, 2022, Corollary 2.13.
    """
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(0.0, second - first)) if first > -700 else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least eps >= 0 with gaussian_delta(mu, eps) <= delta, rounded up in its last bits; 0 < delta < 1."""
    return _least(lambda epsilon: gaussian_delta(mu, epsilon) <= delta)


def gaussian_sigma(distance: float, epsilon: float, delta: float) -> float:
    """The least sigma that makes embeddings at this L2 distance (eps, delta)-DP, rounded up in its last bits."""
    return distance * _least(lambda sigma: sigma > 0 and gaussian_delta(1 / sigma, epsilon) <= delta)


def _least(holds: Callable[[float], bool]) -> float:
    """The least number from 0 on that holds, of those from which on all do."""
    low, high = 0.0, 1.0
    if holds(low):
        return low
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


_LARGEST = 20.0  # eps of one release above which the sum is reported for any delta


@dataclass(frozen=True)
class Release:
    """A value that an eps-DP mechanism computes from each label. Everything that is sent is computed from this value.

        P(value | y) <= e^eps P(value | y')   for any two classes y, y' of a row, all else being equal

    mechanism: its name. fresh: whether the value is drawn again in each epoch, rather than once for the whole run. numbers:
    of `laplace`, how many of them tell two classes apart, each with noise of scale numbers / eps.
    """

    mechanism: str
    epsilon: float
    fresh: bool = False
    numbers: int = 2

    @property
    def once(self) -> bool:
        """Whether all epochs use the same noise."""
        return not self.fresh

    def count(self, exposure: Exposure) -> int:
        return exposure.epochs if self.fresh else 1

    def leak_auc_after(self, exposure: Exposure) -> float:
        return leak_auc_ceiling(self.epsilon, self.count(exposure))

    def error_after(self, exposure: Exposure) -> float:
        return error_floor(self.epsilon, self.count(exposure))


THE_LEAK = "the leak"
ABOUT_ONE_ROW = "what the messages add about one row, given everything else"
"""What a guarantee bounds. The second is label privacy: features, and messages about other rows, may tell as well."""


@dataclass(frozen=True)
class Guarantee:
    """A bound on what any attacker can learn about the labels, under the assumptions that `claim` states.

    claim: one sentence with its assumptions. leak_auc_after: exposure -> upper bound of the leak AUC in [0.5, 1], for an
    attacker who can link all messages about a row; 1.0 promises nothing. error_after: exposure -> lower bound of the same
    attacker's detection error, the mean of false positive and false negative rate, in [0, 0.5]; 0.0 promises nothing.
    release: the label-privacy release behind the guarantee, if there is one.
    bounds: THE_LEAK or ABOUT_ONE_ROW. message: the kind of message that it is about, `gradient` or `embedding`; empty: all.
    assumption: what it assumes of the messages, in a short phrase; empty where it holds for any. tested_by: names of
    figures of the defense; the first measures how far the messages are from the assumption, in standard deviations of what
    it is where the assumption holds, and the others explain it.
    """

    claim: str
    leak_auc_after: Callable[[Exposure], float]
    error_after: Callable[[Exposure], float]
    release: Release | GaussianRelease | None = None
    bounds: str = THE_LEAK
    message: str = ""
    assumption: str = ""
    tested_by: tuple[str, ...] = ()


def holds(deviations: Sequence[float], level: float = 0.05) -> bool | None:
    """Whether an assumption passes: no deviation is above the standard normal quantile of 1 - level / their number, so that
    it is refused wrongly with probability `level` at most. None if there are none.
    """
    if not deviations:
        return None
    return max(deviations) <= statistics.NormalDist().inv_cdf(1 - level / len(deviations))


def leak_auc_ceiling(epsilon: float, releases: int = 1) -> float:
    """Upper bound of the leak AUC after several eps-DP releases of a label: sigma(eps) = e^eps / (1 + e^eps) after one.

        P(A > B) + 1/2 P(A = B),   A ~ Bin(n, sigma(eps)),   B ~ Bin(n, 1 - sigma(eps))

    Every eps-DP mechanism is a function of binary randomized response (Kairouz, Oh and Viswanath, 2015), and n mechanisms
    are a function of n such responses. Their likelihood ratio depends only on the number of each answer, so no attacker's
    ROC curve is above that of the counts. The same holds for one class against the rest, because P(value | rest) is a mean
    of P(value | y'), each within a factor e^+-eps.
    """
    up, down = _counts(epsilon, releases)
    return min(1.0, max(0.5, float(up @ (down.cumsum() - down / 2))))


def error_floor(epsilon: float, releases: int = 1) -> float:
    """Lower bound of the mean of false positive and false negative rate: 1 / (1 + e^eps) after one release.

    (1 - TV) / 2 with the total variation TV between the counts of `leak_auc_ceiling`.
    """
    return math.fsum(np.minimum(*_counts(epsilon, releases))) / 2


def _counts(epsilon: float, releases: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities of 0 .. n answers "1" if the label is 1, and if it is 0."""
    ones, log_keep = np.arange(releases + 1), -math.log1p(math.exp(-epsilon))
    ways = gammaln(releases + 1) - gammaln(ones + 1) - gammaln(releases - ones + 1)
    chances = np.exp(ways + ones * log_keep + (releases - ones) * (log_keep - epsilon))
    return chances, chances[::-1]


def label_privacy(what: str, release: Release | GaussianRelease) -> Guarantee:
    """The guarantee of a release of labels: what any attacker learns about one row. what: the claim's first clause."""

    is_coin = isinstance(release, Release) and release.mechanism != "laplace"
    claim = (
        f"{what}; for one class against the rest, of an attacker who learns about the label from nothing else, not even "
        f"from features. It assumes {COINS if is_coin else ALSO_FLOAT}"
    )
    return Guarantee(claim, release.leak_auc_after, release.error_after, release, bounds=ABOUT_ONE_ROW)


class Ledger:
    """All releases of a run, composed.

    Each eps-DP release counts as binary randomized response, the mechanism that reveals most; only eps is assumed of it. A
    release computed from the value of an earlier one counts as if computed from the label, which is an upper bound.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, Release, int]] = []
        self.gaussian: list[tuple[str, GaussianRelease, float]] = []

    def add(self, name: str, release: Release | GaussianRelease, exposure: Exposure) -> None:
        """Add what the defense `name` released under this exposure."""
        if isinstance(release, Release):
            self.entries.append((name, release, release.count(exposure)))
        else:
            self.gaussian.append((name, release, release.mu_after(exposure)))

    @property
    def epsilon(self) -> float:
        """The sum, pure eps-label-DP of the whole run; inf with Gaussian noise, which has none."""
        return math.inf if self.gaussian else math.fsum(release.epsilon * count for _, release, count in self.entries)

    @property
    def mu(self) -> float | None:
        """mu-Gaussian label privacy of the whole run: the root of the sum of squares. None if a release isn't Gaussian."""
        return None if self.entries or not self.gaussian else math.hypot(*(mu for *_, mu in self.gaussian))

    def epsilon_at(self, delta: float) -> float:
        """The least eps for which the run is proven to be (eps, delta)-label-DP; never above the sum.

        Of Gaussian noise alone from its formula, else computed from the privacy loss distributions of dp-accounting, rounded
        up. (Its PLDAccountant is not used: version 0.6 counts `SelfComposedDpEvent(RandomizedResponseDpEvent(...), n)` once,
        not n times.)
        """
        if self.mu is not None:
            return gaussian_epsilon(self.mu, delta)
        counts = [(release.epsilon, count) for _, release, count in self.entries if release.epsilon > 0]
        few = sum(count for _, count in counts) < 2 or max(epsilon for epsilon, _ in counts) > _LARGEST
        if few and not self.gaussian:
            return self.epsilon
        from dp_accounting.pld import privacy_loss_distribution as pld  # a second to import, and needed by few runs

        step = max(1e-4, 1e-5 * sum(epsilon * count for epsilon, count in counts))
        total = pld.identity(value_discretization_interval=step)
        for epsilon, count in counts:
            one = pld.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step)
            total = total.compose(one.self_compose(count))
        for *_, mu in self.gaussian:
            total = total.compose(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step))
        return min(self.epsilon, float(total.get_epsilon_for_delta(delta)))


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
    nothing = EmbeddingRelease("binomial", None, delta, _no_claim, reason=reason, assumes=BINOMIAL_SAMPLER)
    if s is None:
        return nothing

    def exact_after(messages: int, total: float) -> float:
        return exact_binomial_epsilon(trials, chance, s.largest, s.width * messages, total)

    epsilon = theorem_epsilon(s.width, trials, chance, delta, s.l1, s.l2, s.largest)
    if epsilon is None:
        variance, least = theorem_condition(s.width, trials, chance, delta, s.largest)
        reason = (
            f"n p (1 - p) = {variance:.4g} is below max(23 log(10 d / delta), 2 Delta_inf) = {least:.4g} for d = {s.width}, "
            f"delta = {delta:g} and Delta_inf = {s.largest}; n = {math.ceil(least / (chance * (1 - chance)))} is enough"
        )
        return replace(nothing, exact_after=exact_after, reason=reason)
    claimed, reason = max(epsilon, exact_after(1, delta)), ""
    if math.isinf(claimed):
        reason = f"the theorem gives eps = {epsilon:.4g}, but exact accounting gives no finite eps"
        return replace(nothing, exact_after=exact_after, reason=reason)
    if claimed > epsilon:
        reason = f"the theorem's eps = {epsilon:.4g} is below the exact eps of this noise, which is claimed instead"
    after = partial(composed_epsilon, claimed, delta)
    return replace(nothing, epsilon=claimed, after=after, exact_after=exact_after, reason=reason)


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
