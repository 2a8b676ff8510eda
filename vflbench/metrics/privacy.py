"""What a defense may claim, and how claims add up over a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_LARGEST = 20.0  # eps of one release beyond which delta buys nothing that is worth computing


@dataclass(frozen=True)
class Exposure:
    """How much of one row an attacker has seen: in so many epochs, so many messages altogether."""

    epochs: int = 1
    messages: int = 1


@dataclass(frozen=True)
class Release:
    """A value that was made of each label by an eps-DP mechanism, and of which all that is sent is made.

        P(value | y) <= e^eps P(value | y')   for any two classes y, y' of a row, all else being equal

    mechanism: its name. fresh: whether it is drawn again in each epoch; otherwise there is one value for the whole run.
    """

    mechanism: str
    epsilon: float
    fresh: bool = False

    def count(self, exposure: Exposure) -> int:
        return exposure.epochs if self.fresh else 1


@dataclass(frozen=True)
class Guarantee:
    """A ceiling on what any attacker can learn of the labels, under the assumptions that `claim` names.

    claim: one sentence with its assumptions. leak_auc_after: exposure -> ceiling of the leak AUC of an attacker who has seen
    so many messages about each row, and can tell which are about the same, in [0.5, 1]; 1.0 where nothing is promised.
    error_after: exposure -> floor of the detection error, the mean of false positive and false negative rate, of such an
    attacker, in [0, 0.5]; 0.0 where nothing is promised. release: what stands behind it, where that is eps-label-DP.
    """

    claim: str
    leak_auc_after: Callable[[Exposure], float]
    error_after: Callable[[Exposure], float]
    release: Release | None = None

    def epsilon_after(self, exposure: Exposure) -> float | None:
        """The pure eps that all releases so far add up to; None where no label DP is claimed."""
        return None if self.release is None else self.release.epsilon * self.release.count(exposure)


def leak_auc_ceiling(epsilon: float, releases: int = 1) -> float:
    """Ceiling of the leak AUC after so many eps-DP releases of a label: sigma(eps) = e^eps / (1 + e^eps) after one.

        P(A > B) + 1/2 P(A = B),   A ~ Bin(n, sigma(eps)),   B ~ Bin(n, 1 - sigma(eps))

    Every eps-DP mechanism is a function of binary randomized response (Kairouz, Oh and Viswanath, 2015), and n of them of n,
    whose likelihood ratio counts how often each answer came; so no attacker's ROC curve is above that of the counts.
    One class against the rest obeys the same: P(value | rest) is a mean of P(value | y'), each within e^+-eps.
    """
    up, down = _counts(epsilon, releases)
    below, total = 0.0, 0.0
    for a, b in zip(up, down, strict=True):
        total += a * (below + b / 2)
        below += b
    return min(1.0, max(0.5, total))


def error_floor(epsilon: float, releases: int = 1) -> float:
    """Floor of the mean of false positive and false negative rate: 1 / (1 + e^eps) after one release.

    (1 - TV) / 2, TV the total variation between the counts of `leak_auc_ceiling`.
    """
    up, down = _counts(epsilon, releases)
    return math.fsum(min(a, b) for a, b in zip(up, down, strict=True)) / 2


def _counts(epsilon: float, releases: int) -> tuple[list[float], list[float]]:
    """Probabilities of 0 .. n answers "1" where the label is 1, and where it is 0."""
    keep = 1 / (1 + math.exp(-epsilon))
    log_keep, log_flip = math.log(keep), -epsilon + math.log(keep)
    chances = [
        math.exp(
            math.lgamma(releases + 1)
            - math.lgamma(k + 1)
            - math.lgamma(releases - k + 1)
            + k * log_keep
            + (releases - k) * log_flip
        )
        for k in range(releases + 1)
    ]
    return chances, chances[::-1]


class Ledger:
    """All releases of a run, added up.

    Each is taken for binary randomized response, the eps-DP mechanism that tells most: nothing is assumed of the mechanisms
    but their eps. Releases in a row, the later made of the earlier's value, count as much as if each were made of the label,
    which is an upper bound.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, Release, int]] = []

    def add(self, name: str, release: Release, exposure: Exposure) -> None:
        """name: of the defense. What it released to an attacker who has seen so much."""
        self.entries.append((name, release, release.count(exposure)))

    @property
    def epsilon(self) -> float:
        """The sum: pure eps-label-DP of the whole run."""
        return math.fsum(release.epsilon * count for _, release, count in self.entries)

    def epsilon_at(self, delta: float) -> float:
        """The least eps for which the run is known to be (eps, delta)-label-DP; never above the sum.

        From the privacy loss distributions of dp-accounting, rounded to the safe side. (Not from its PLDAccountant: that of
        version 0.6 counts `SelfComposedDpEvent(RandomizedResponseDpEvent(...), n)` once, not n times.)
        """
        spent = [(release.epsilon, count) for _, release, count in self.entries]
        if sum(count for _, count in spent) < 2 or max(epsilon for epsilon, _ in spent) > _LARGEST:
            return self.epsilon
        from dp_accounting.pld import privacy_loss_distribution as pld  # a second to import, which others needn't wait

        step = max(1e-4, 1e-5 * self.epsilon)
        total = pld.identity(value_discretization_interval=step)
        for epsilon, count in spent:
            one = pld.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step)
            total = total.compose(one.self_compose(count))
        return min(self.epsilon, float(total.get_epsilon_for_delta(delta)))
