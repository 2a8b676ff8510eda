"""Privacy claims of defenses, and their composition over a run."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
