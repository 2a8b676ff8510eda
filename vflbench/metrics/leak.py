"""What one attack's scores on one layer give away over an epoch, and what a coin would seem to give away."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import Any

from vflbench.metrics.canary import Guesses
from vflbench.numerics.interval import Estimate, Interval, cut, mean_interval

Key = tuple[str, str, str, str, bool]
"""Attack, message, party, layer, and whether an attacker sees that layer."""

CLASS_FIGURES = ("accuracy", "ami", "macro_auc")
UNDEFINED = Interval(math.nan, math.nan, math.nan)


def two_sided(raw: Interval) -> Interval:
    """max(a, 1 - a) of a mean leak AUC, its interval folded at 0.5 with it.

    Taken of the epoch's mean, not batch by batch: the mean of max(a, 1 - a) is above 0.5 even for a coin.
    """
    if math.isnan(raw.mean):
        return raw
    mean = max(raw.mean, 1 - raw.mean)
    ends = sorted((abs(raw.low - 0.5), abs(raw.high - 0.5)))
    low = 0.5 if raw.low <= 0.5 <= raw.high else 0.5 + ends[0]
    return Interval(mean, low, 0.5 + ends[1])


@dataclass(frozen=True)
class Leak:
    """One attack on one layer of one party's network over an epoch.

    raw: leak AUC, mean over `batches` audited batches. two_sided: max(a, 1 - a) of that mean. oriented: the mean of
    max(a, 1 - a), what an attacker reaches who knows in each batch which end is positive. coin: what `oriented` is for
    random scores, which is above 0.5. net: what that attacker reaches, less what a coin reaches:

        coin = 1/2 + mean_b s_b sqrt(2 / pi),   s_b^2 = (n + 1) / (12 P N), the variance of the AUC of random scores
        net = 1/2 + sqrt(max(0, mean_b [((a_b - 1/2)^2 - s_b^2) / (1 - 4 s_b^2)])), at most `oriented`

    for P positives and N negatives, n = P + N, in batch b. Under the root, a coin has a mean of exactly 0, however small the
    batch, and a = 1 gives 1/4: the variance of a_b counts as 4 A (1 - A) s_b^2, for the A that is estimated. A batch of one
    positive and one negative (s^2 = 1/4) says nothing, and counts as 0. Where batches leak more and less, the root of the
    mean square is above what anybody reaches, hence the bound; of the low ends the lower one counts as well. Ties make the
    variance smaller: for answers of few values, coin is too high and net too low.

    candidates: m of an attack that leaves it open which of m directions, and which end of it, is the label. `oriented`,
    `coin` and `net` are then of the best column: j and its sign are chosen once, by the largest |mean_b a_bj - 1/2|.

        oriented = 1/2 + |mean_b a_bj - 1/2|,   coin = 1/2 + s E M,   net = 1/2 + sqrt(max(0, (mean_b a_bj - 1/2)^2
        - 4 a (1 - a) s^2 E M^2)),   s^2 = mean_b s_b^2 / batches,   M the largest of m independent |N(0, 1)|

    left_out: batches of a single class, where no AUC exists, or with too few positives for an attack that knows some.
    guesses: about canaries, which count for no AUC.
    classes: of an attack that scores every class, the means of accuracy, ami and macro_auc, as `class_figures` has them.
    For K > 2 there is no leak AUC (nan), and `batches` are those with an accuracy.
    estimates: name -> means over batches with their errors, from which intervals of any confidence are made: auc, square
    (what is under the root of `net`), candidates (m of them), oriented, ami, macro_auc.
    """

    attack: str
    message: str
    party: str
    layer: str
    visible: bool
    raw: Interval
    two_sided: Interval
    oriented: Interval
    batches: int
    left_out: int
    guesses: Guesses = field(default_factory=Guesses)
    classes: Mapping[str, Interval] = field(default_factory=dict)
    coin: float = math.nan
    net: Interval = UNDEFINED
    candidates: int = 0
    estimates: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)

    @property
    def of_classes(self) -> bool:
        """Whether it is about K > 2 classes, and has no leak AUC."""
        return bool(self.classes) and math.isnan(self.raw.mean)


def leak_of(key: Key, batches: Sequence[Mapping[str, Any]]) -> Leak:
    """One leak from the figures of its batches: auc with positives and negatives, candidates (an AUC a column), guesses
    about canaries, and CLASS_FIGURES; a batch that was left out has none.
    """

    def defined(figure: str) -> list[float]:
        return [figures[figure] for figures in batches if not math.isnan(figures.get(figure, math.nan))]

    scored = [figures for figures in batches if not math.isnan(figures.get("auc", math.nan))]
    areas = [figures["auc"] for figures in scored]
    variances = [coin_variance(figures["positives"], figures["negatives"]) for figures in scored]
    columns = _columns(scored)
    raw = cut(mean_interval(areas))
    estimates: dict[str, Sequence[Estimate]] = {"auc": [Estimate.of(areas)]} if areas else {}
    if columns:
        estimates["candidates"] = [Estimate.of(column) for column in columns]
        oriented, coin = _best(estimates["candidates"]), 0.5 + _error(variances) * coin_of(len(columns))[0]
        net = net_of_candidates(estimates["candidates"], _error(variances), 1 - 0.05 / len(columns))
    else:
        estimate = Estimate.of([max(a, 1 - a) for a in areas])
        oriented = cut(estimate.interval())
        coin = 0.5 + (fmean(math.sqrt(2 / math.pi * variance) for variance in variances) if variances else math.nan)
        squares = [_net_square(a, variance) for a, variance in zip(areas, variances, strict=True)]
        estimates |= {"square": [Estimate.of(squares)], "oriented": [estimate]} if areas else {}
        net = net_of_square(Estimate.of(squares), estimate)
    classes = {}
    if any("accuracy" in figures for figures in batches):
        classes = {figure: _within_one(figure, mean_interval(defined(figure))) for figure in CLASS_FIGURES}
        estimates |= {figure: [Estimate.of(defined(figure))] for figure in ("ami", "macro_auc")}
    many = bool(classes) and not any("auc" in figures for figures in batches)
    count = len(defined("accuracy")) if many else len(areas)
    left_out = len(batches) - count
    return Leak(
        *key,
        raw,
        two_sided(raw),
        oriented,
        count,
        left_out,
        sum((Guesses(*figures["guesses"]) for figures in batches if "guesses" in figures), Guesses()),
        classes,
        coin=coin,
        net=net,
        candidates=len(columns),
        estimates=estimates,
    )


def coin_variance(positives: float, negatives: float) -> float:
    """(n + 1) / (12 P N): exact variance of the AUC of random scores without ties."""
    return (positives + negatives + 1) / (12 * positives * negatives)


@lru_cache
def coin_of(candidates: int) -> tuple[float, float]:
    """E M and E M^2 of the largest M of so many independent |N(0, 1)|; sqrt(2 / pi) and 1 for one of them.

    E M = int_0^oo 1 - erf(x / sqrt 2)^m dx,   E M^2 = int_0^oo 2 x (1 - erf(x / sqrt 2)^m) dx
    """
    step, total, square = 1e-3, 0.0, 0.0
    for place in range(9000):
        x = (place + 0.5) * step
        rest = 1 - math.erf(x / math.sqrt(2)) ** candidates
        total, square = total + rest * step, square + 2 * x * rest * step
    return total, square


def net_of_square(square: Estimate, oriented: Estimate, confidence: float = 0.95) -> Interval:
    """`Leak.net`: 1/2 + sqrt(max(0, v)) of the mean square v and of the ends of its interval; the mean and the low end are
    at most those of `oriented`.
    """
    squares, bound = square.interval(confidence), oriented.interval(confidence)
    mean, low = min(_from_square(squares.mean), bound.mean), min(_from_square(squares.low), bound.low)
    return Interval(mean, max(low, 0.5), _from_square(squares.high))


def net_of_candidates(columns: Sequence[Estimate], error: float, confidence: float) -> Interval:
    """`Leak.net` of the best of several columns. The ends hold for the best column whichever was chosen, if the columns'
    intervals at this confidence hold together: the largest low end and the largest high end of |a - 1/2|.

    error: s, the standard deviation of a coin's mean AUC over the epoch.
    """
    best = max((abs(column.mean - 0.5) for column in columns), default=math.nan)
    mean = _from_square(best**2 - (1 - 4 * best**2) * error**2 * coin_of(len(columns))[1])
    folded = [two_sided(column.interval(confidence)) for column in columns]
    low, high = max(one.low for one in folded), max(one.high for one in folded)
    return Interval(mean, min(low, mean), min(high, 1.0)) if not math.isnan(low) else Interval(mean, low, high)


def _net_square(area: float, variance: float) -> float:
    """An estimate of (A - 1/2)^2, by the AUC of one batch, which has a variance of 4 A (1 - A) times that of a coin."""
    left = 1 - 4 * variance
    return ((area - 0.5) ** 2 - variance) / left if left > 0 else 0.0


def _from_square(value: float) -> float:
    return value if math.isnan(value) else min(1.0, 0.5 + math.sqrt(max(0.0, value)))


def _best(columns: Sequence[Estimate]) -> Interval:
    """max(a, 1 - a) of the mean of the column that is furthest from 1/2."""
    return two_sided(cut(max(columns, key=lambda column: abs(column.mean - 0.5)).interval()))


def _columns(scored: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Of each candidate that every batch has, its AUCs."""
    m = min((len(figures.get("candidates", ())) for figures in scored), default=0)
    return [[figures["candidates"][j] for figures in scored] for j in range(m)]


def _error(variances: Sequence[float]) -> float:
    """The standard deviation of the mean."""
    return math.sqrt(math.fsum(variances)) / len(variances)


def _within_one(figure: str, interval: Interval) -> Interval:
    """Accuracy and AUC lie in [0, 1]; AMI is below 0 where there is less in common than by chance."""
    if figure == "ami":
        return Interval(interval.mean, interval.low, min(interval.high, 1.0))
    return cut(interval)
