"""Means and shares with confidence intervals, and the range of a figure, which no interval may leave."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

FigureRange = tuple[float, float]
"""The least and the largest value that a figure can have."""

ANY: FigureRange = (-math.inf, math.inf)
UNIT: FigureRange = (0.0, 1.0)
_Z = 1.959964  # the 0.975 quantile of N(0, 1)
LEAST_RUNS = 3
"""So many runs have an interval. Of two runs, Student's t is 12.7: the interval would only say that two are too few."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval. low and high are nan if there is only one value."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A mean of `count` values and its standard error s / sqrt(count); the error is nan for fewer than two values.

    terms: of a mean of AUCs, what `auc_low` needs; 0 of anything else. classes: of a mean AMI, rows in all and the mean
    entropy of their classes, in nats.
    """

    mean: float
    error: float
    count: int
    terms: tuple[float, float] = (0.0, 0.0)
    classes: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, values: Sequence[float], rows: Sequence[tuple[float, float]] = ()) -> Self:
        """rows: of AUCs, positives P and negatives N of each."""
        n = len(values)
        if not n:
            return cls(math.nan, math.nan, 0)
        mean = math.fsum(values) / n
        pairs = math.fsum(1 / (p * q) for p, q in rows) / n**2
        terms = pairs, math.fsum(((p + q) / 2 - 1) / (p * q) for p, q in rows) / n**2
        if n == 1:
            return cls(mean, math.nan, 1, terms)
        return cls(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n), n, terms)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Student's t interval, mean +- t((1 + confidence) / 2, count - 1) error. Of AUCs it reaches at least as far as
        `auc_low` at either end: batches whose AUCs are all near 1 vary too little to show how far from it the truth is.

        An AMI's half is at least what a share q of wrong rows costs it, if n rows can be right by chance with (1 - c) / 2:

            q + h(q) / H,   q = log(2 / (1 - c)) / n,   H the entropy of the classes, h that of a coin with q

        Misses of the 95 % interval by simulation: at most 5 in 100 for normal scores of one variance at any AUC, 8 where
        some positives are read exactly and all others not at all, 9 where few positives have five times the deviation.
        """
        if self.count < 2:
            return Interval(self.mean, math.nan, math.nan)
        from scipy.special import entr, ndtri, stdtrit

        half = float(stdtrit(self.count - 1, (1 + confidence) / 2)) * self.error
        if self.classes[1]:
            wrong = min(0.5, math.log(2 / (1 - confidence)) / self.classes[0])
            half = max(half, wrong + float(entr(wrong) + entr(1 - wrong)) / self.classes[1])
        ends = self.mean - half, self.mean + half
        if self.terms[0] and 0 <= self.mean <= 1:
            z = float(ndtri((1 + confidence) / 2))
            ends = min(ends[0], auc_low(self.mean, self.terms, z)), max(ends[1], 1 - auc_low(1 - self.mean, self.terms, z))
        return Interval(self.mean, *ends)


@dataclass(frozen=True)
class OverRuns(Interval):
    """The mean of so many runs; low and high are nan for fewer than LEAST_RUNS."""

    runs: int = 0


def mean_interval(values: Sequence[float], limits: FigureRange = ANY) -> Interval:
    """Student's t interval of the mean of those that are not nan, cut to the figure's range; nan if there are none.

        [max(a, mean - h), min(b, mean + h)],   h = t(0.975, n - 1) s / sqrt(n),   a, b: limits

    Cutting costs no coverage: the true mean of values in [a, b] is in [a, b], so what is cut off never holds it. A t
    interval of logits would be one of another mean than the one that is printed, and there is none for a value of a or b.
    """
    return cut(Estimate.of([value for value in values if not math.isnan(value)]).interval(), limits)


def share_interval(hits: Sequence[float]) -> Interval:
    """Wilson's 95 % interval of a share. hits: 1 or 0 a row, a part of 1 where a row counts for a part, or nan for nothing.

        (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),   z = 1.96

    It has a width where all rows are alike, and never leaves [0, 1]. Source: Wilson, JASA 1927.
    """
    known = [hit for hit in hits if not math.isnan(hit)]
    if not (n := len(known)):
        return Interval(math.nan, math.nan, math.nan)
    p, z = math.fsum(known) / n, _Z
    middle, half = p + z**2 / (2 * n), z * math.sqrt(max(p * (1 - p), 0.0) / n + (z / (2 * n)) ** 2)
    low, high = ((middle + side * half) / (1 + z**2 / n) for side in (-1, 1))
    return cut(Interval(p, min(low, p), max(high, p)))


def auc_interval(auc: float, positives: int, negatives: int) -> Interval:
    """Newcombe's 95 % interval of the AUC of a model on so many rows of either class; nan if a class has none."""
    if not (positives and negatives) or math.isnan(auc):
        return Interval(auc, math.nan, math.nan)
    terms = Estimate.of([auc], [(positives, negatives)]).terms
    return Interval(auc, auc_low(auc, terms, _Z), 1 - auc_low(1 - auc, terms, _Z))


def auc_low(auc: float, terms: tuple[float, float], z: float) -> float:
    """The low end L of Newcombe's interval of a mean A of B AUCs on P_b positives and N_b negatives each.

        A - L = z SE(L),   SE(L)^2 = L (1 - L) (t_1 + t_2 ((1 - L) / (2 - L) + L / (1 + L)))
        t_1 = sum_b 1 / (P_b N_b) / B^2,   t_2 = sum_b n_b / (P_b N_b) / B^2,   n_b = (P_b + N_b) / 2 - 1

    The variance is Hanley and McNeil's (Radiology 1982), symmetric in the classes, and taken at the end rather than at A: so
    an AUC of 1 has an interval as well. Source: Newcombe, Statistics in Medicine 2006, method 5.
    """
    below, inside = 0.0, auc
    for _ in range(60):
        end = (below + inside) / 2
        spread = end * (1 - end) * (terms[0] + terms[1] * ((1 - end) / (2 - end) + end / (1 + end)))
        below, inside = (end, inside) if auc - end > z * math.sqrt(spread) else (below, end)
    return inside


def over_runs(values: Iterable[float], limits: FigureRange = ANY) -> OverRuns:
    """`mean_interval` of the values that are not nan, one a run; without an interval for fewer than LEAST_RUNS."""
    known = [value for value in values if not math.isnan(value)]
    interval = mean_interval(known, limits)
    ends = (interval.low, interval.high) if len(known) >= LEAST_RUNS else (math.nan, math.nan)
    return OverRuns(interval.mean, *ends, len(known))


def cut(interval: Interval, limits: FigureRange = UNIT) -> Interval:
    """The interval without what lies outside the limits, those of AUCs and shares unless others are given; as it is if its
    mean lies outside; nan stays nan.
    """
    low, high = limits
    if interval.mean < low or interval.mean > high:
        return interval
    return Interval(interval.mean, max(interval.low, low), min(interval.high, high))


def interval_text(interval: Interval, digits: str = ".3f") -> str:
    """`0.760 (0.751 - 0.769)`. Over runs without an interval: `0.760 (2 runs: no interval)`; of runs with one and the same
    value, whose spread says nothing: `1.000 (5 equal runs)`.
    """
    if math.isnan(interval.mean):
        return "-"
    mean = f"{interval.mean:{digits}}"
    runs = interval.runs if isinstance(interval, OverRuns) else 0
    if math.isnan(interval.low):
        return f"{mean} ({runs} run{'s' * (runs > 1)}: no interval)" if runs else mean
    if runs and interval.high - interval.low <= 1e-12 * abs(interval.mean):
        return f"{mean} ({runs} equal runs)"
    return f"{mean} ({interval.low:{digits}} - {interval.high:{digits}})"


def least_probability(successes: int, trials: int, alpha: float) -> float:
    """Clopper-Pearson lower bound: the p at which `successes` or more have probability alpha; 0 for no successes."""
    if not successes:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, trials - successes + 1, alpha))


POLICIES = ("fast", "average", "voting")
"""The last score; the mean of the last `window`; the majority of all groups of `window`: below the threshold."""


def alarm(scores: Sequence[float], policy: str, window: int, threshold: float) -> bool:
    """Whether the policy raises an alarm after the last of these scores, of which there is at least one."""
    if policy == "fast":
        return scores[-1] < threshold
    if len(scores) < window:
        return False
    if policy == "average":
        return math.fsum(scores[-window:]) / window < threshold
    groups = [scores[i : i + window] for i in range(0, len(scores) - window + 1, window)]
    below = sum(math.fsum(group) / window < threshold for group in groups)
    return 2 * below > len(groups)


_ABOVE_A_COIN = ("leak_auc", "leak_two_sided", "leak_oriented", "leak_net", "leak_coin")
_SHARES: tuple[str, ...] = (
    "auc",
    "accuracy",
    "ece",
    "right",
    "certain",
    "exact",
    "contained",
    "unique",
    "proved",
    "recovered",
    "separated",
    "recognised",
    "share",
    "mse",
    "identified",
    "tolerance",
)
_SHARES += ("raw", "dcor", "distance_correlation", "dcs", "ended")
_AT_LEAST_0 = (
    "seconds",
    "bytes",
    "loss",
    "error",
    "matches",
    "rounds",
    "residual",
    "condition",
    "calibration",
    "hamming",
    "count",
    "missing",
)


def range_of(name: str) -> FigureRange:
    """The least and largest value of a figure, as `test_auc`, `leak_auc:norm`, `rebuilt.entries_right:ATTACK`.

    Two-sided AUCs are in [0.5, 1], |AUC - 0.5| in [0, 0.5]; AUCs, shares and mean squared errors, of columns in [0, 1], in
    [0, 1]; R^2 and adjusted mutual information are 1 at most, SSIM is in [-1, 1]; losses, errors, feature distances, times
    and counts are 0 at least. Any other figure: all numbers.
    """
    head = name.partition(":")[0].rpartition(".")[2].lower()
    if head in _ABOVE_A_COIN:
        return 0.5, 1.0
    if head == "leak_distance":
        return 0.0, 0.5
    if head == "feature_distance":
        return 0.0, math.inf
    if head == "ssim":
        return -1.0, 1.0
    words = head.split("_")
    if "ami" in words or head == "r2":
        return -math.inf, 1.0
    if any(word in _AT_LEAST_0 for word in words) or name.startswith("bytes"):
        return 0.0, math.inf
    return UNIT if head in _SHARES or any(word in _SHARES for word in words) else ANY
