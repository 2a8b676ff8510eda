"""What an attack's scores give away over an epoch, what a coin would seem to give away, and the worst attack."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from statistics import fmean
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor

from vflbench.errors import UserError
from vflbench.metrics.canary import Guesses, guess
from vflbench.numerics.auc import array_of, auc
from vflbench.numerics.interval import Estimate, Interval, cut, range_of

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

    surest: the two-sided leak AUC among the tenth of a batch that the attack is surest of, a twentieth with the highest and
    one with the lowest scores; a bound that holds on average over rows says nothing of these. Batches in which they are all
    of one class are left out.

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
    surest: Interval = UNDEFINED
    estimates: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)

    @property
    def of_classes(self) -> bool:
        """Whether it is about K > 2 classes, and has no leak AUC."""
        return bool(self.classes) and math.isnan(self.raw.mean)


def leak_of(key: Key, batches: Sequence[Mapping[str, Any]]) -> Leak:
    """One leak from the figures of its batches: auc with positives and negatives, candidates (an AUC a column), guesses
    about canaries, and CLASS_FIGURES; a batch that was left out has none.
    """
    defined = {
        figure: [figures[figure] for figures in batches if not math.isnan(figures.get(figure, math.nan))]
        for figure in (*CLASS_FIGURES, "surest")
    }
    scored = [figures for figures in batches if not math.isnan(figures.get("auc", math.nan))]
    areas = [figures["auc"] for figures in scored]
    rows = [(figures["positives"], figures["negatives"]) for figures in scored]
    variances = [coin_variance(*of) for of in rows]
    m = min((len(figures.get("candidates", ())) for figures in scored), default=0)  # that every batch has
    columns = [[figures["candidates"][j] for figures in scored] for j in range(m)]
    area = Estimate.of(areas, rows)
    raw = cut(area.interval())
    estimates: dict[str, Sequence[Estimate]] = {"auc": [area]} if areas else {}
    if columns:
        estimates["candidates"] = [Estimate.of(column, rows) for column in columns]
        oriented, coin = _best(estimates["candidates"]), 0.5 + _error(variances) * coin_of(len(columns))[0]
        net = net_of_candidates(estimates["candidates"], _error(variances), 1 - 0.05 / len(columns))
    else:
        estimate = Estimate.of([max(a, 1 - a) for a in areas], rows)
        oriented = cut(estimate.interval(), (0.5, 1.0))
        coin = 0.5 + (fmean(math.sqrt(2 / math.pi * variance) for variance in variances) if variances else math.nan)
        squares = [_net_square(a, variance) for a, variance in zip(areas, variances, strict=True)]
        estimates |= {"square": [Estimate.of(squares)], "oriented": [estimate]} if areas else {}
        net = net_of_square(Estimate.of(squares), estimate)
    surest_rows = [figures["surest_rows"] for figures in scored if not math.isnan(figures.get("surest", math.nan))]
    classes = {}
    if any("accuracy" in figures for figures in batches):
        with_area = [figures for figures in batches if not math.isnan(figures.get("macro_auc", math.nan))]
        of_classes = {figure: Estimate.of(defined[figure]) for figure in ("accuracy", "ami")}
        entropies, sizes = zip(*(figures["entropy"] for figures in batches if "entropy" in figures), strict=True)
        of_classes["ami"] = replace(of_classes["ami"], classes=(math.fsum(sizes), fmean(entropies)))
        of_classes["macro_auc"] = Estimate.of(defined["macro_auc"], [figures["macro_rows"] for figures in with_area])
        classes = {figure: cut(of_classes[figure].interval(), range_of(figure)) for figure in CLASS_FIGURES}
        estimates |= {figure: [of_classes[figure]] for figure in ("ami", "macro_auc")}
    many = bool(classes) and not any("auc" in figures for figures in batches)
    count = len(defined["accuracy"]) if many else len(areas)
    return Leak(
        *key,
        raw,
        two_sided(raw),
        oriented,
        count,
        len(batches) - count,
        Guesses(*map(sum, zip(*(figures["guesses"] for figures in batches if "guesses" in figures), strict=True))),
        classes,
        coin=coin,
        net=net,
        candidates=len(columns),
        surest=two_sided(cut(Estimate.of(defined["surest"], surest_rows).interval())),
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


def _error(variances: Sequence[float]) -> float:
    """The standard deviation of the mean."""
    return math.sqrt(math.fsum(variances)) / len(variances)


__all__ = ["CLASS_FIGURES", "Key", "Leak", "LeakTable", "Values", "checked_scores", "class_figures", "two_sided"]

Values: TypeAlias = Tensor | np.ndarray
"""Of torch, on any device, or of numpy."""
Several = TypeVar("Several", Tensor, np.ndarray)


@dataclass
class LeakTable:
    """Collects leak AUCs, and figures of K classes, batch by batch."""

    _batches: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)

    def add(
        self,
        key: Key,
        scores: Values,
        truth: Values,
        known: Values | None = None,
        canary: Values | None = None,
        candidates: Values | None = None,
        difference: Values | None = None,
    ) -> None:
        """key: (attack, message, party, layer, visible); scores (n,) or (n, 1): higher = more likely positive, or (n, K): a
        column for each class; truth (n,) classes 0 .. K - 1. known: (k,) places of rows whose label the attacker was told,
        which don't count. canary: (n,) bool, rows whose label is a coin: scores of two classes are taken for guesses about
        them, and they count for nothing else. candidates: (n, m) scores along m directions between which, and between whose
        ends, the attacker can't decide; for two classes.

        Of (n, 2) scores the difference gives the leak AUC; difference: (n,), or any with its order, where it is given.
        Raises UserError as `checked_scores` does. Arrays are taken for checked.
        """
        checked: list[Any] = [
            v if isinstance(v, np.ndarray) else checked_scores(v, len(truth), attack=key[0], layer=key[3])
            for v in (scores, np.empty((len(truth), 0)) if candidates is None else candidates)
        ]
        columns = array_of(checked[1]).reshape(len(truth), -1)
        scalar = difference if difference is not None or checked[0].ndim == 1 else between(checked[0])
        values, classes = array_of(checked[0]), array_of(truth)
        several, two = values.ndim == 2, None if scalar is None else array_of(scalar)
        two = two if several else values
        figures: dict[str, Any] = {}
        counts = np.ones(len(classes), np.bool_)
        if known is not None and len(known):
            counts[array_of(known)] = False
        if canary is not None and bool((is_canary := array_of(canary))[counts].any()):
            if two is not None:
                figures["guesses"] = astuple(guess(two[counts], classes[counts] != 0, is_canary[counts]))
            counts &= ~is_canary
        if not counts.all():
            values, classes, columns = values[counts], classes[counts], columns[counts]
            two = None if two is None else two[counts]
        if several:
            figures |= class_figures(values, classes)
            figures["macro_rows"] = one_against_the_rest(np.bincount(classes))
            figures["entropy"] = float(entr(np.bincount(classes) / max(1, len(classes))).sum()), len(classes)
        if two is not None:
            is_positive = classes != 0
            positives = int(is_positive.sum())
            figures |= {"auc": auc(two, is_positive), "positives": positives, "negatives": len(classes) - positives}
            order, ends = two.argsort(kind="stable"), max(1, round(len(two) / 20))
            at_ends = np.concatenate([order[:ends], order[-ends:]])
            figures["surest"] = auc(two[at_ends], is_positive[at_ends])
            figures["surest_rows"] = int(is_positive[at_ends].sum()), int((~is_positive[at_ends]).sum())
            if columns.shape[1]:
                figures["candidates"] = [auc(column, is_positive) for column in columns.T]
        self._batches.setdefault(key, []).append(figures)

    @property
    def attacks(self) -> set[str]:
        """Those of which there is anything."""
        return {key[0] for key in self._batches}

    def leave_out(self, key: Key) -> None:
        """A batch in which that attack could not be asked."""
        self._batches.setdefault(key, []).append({})

    def leaks(self) -> list[Leak]:
        """One entry a key, in the order they first came."""
        return [leak_of(key, batches) for key, batches in self._batches.items()]


def between(scores: Several) -> Several | None:
    """(n,) by how much class 1 scores above class 0; None for more than two classes. scores: (n, K)."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else None


def checked_scores(scores: Tensor, rows: int, classes: int | None = None, *, attack: str, layer: str) -> Tensor:
    """(n,) or (n, K) floating-point scores. Raises UserError for scores that are not one finite number a row, or one a row
    and class: a broken attack must not pass for a harmless one.

    scores: (n,), (n, 1) or (n, K). rows: n. classes: K; None allows any number of columns.
    """
    wanted = f"({rows},), or ({rows}, {classes or 'K'}) with a column for each class"
    if not isinstance(scores, torch.Tensor):
        problem = f"its scores on {layer} must be a tensor of shape {wanted}, got {type(scores).__name__}"
        raise UserError(problem, key="attack", value=attack)
    scores = scores.detach().as_subclass(torch.Tensor)  # a subclass could read what it is compared with
    shape = tuple(scores.shape)
    if shape == (rows, 1):
        scores = scores[:, 0]
    elif shape != (rows,) and not (len(shape) == 2 and shape[0] == rows and classes in (shape[1], None) and shape[1] > 1):
        raise UserError(f"its scores on {layer} must have the shape {wanted}, got {shape}", key="attack", value=attack)
    wrong = int((~scores.isfinite()).sum())
    if wrong:
        problem = f"its scores on {layer} must be finite numbers, and {wrong} of {scores.numel()} are not"
        raise UserError(problem, key="attack", value=attack)
    return scores if scores.is_floating_point() else scores.double()


def one_against_the_rest(counts: np.ndarray) -> tuple[float, float]:
    """Positives and negatives of one AUC with the mean variance of those of each class against the rest, which that of their
    mean doesn't exceed. counts: rows a class; what has none, or all, has no AUC. nan for none.
    """
    n = float(counts.sum())
    pairs = [count * (n - count) for count in counts.tolist() if 0 < count < n]
    product = len(pairs) / math.fsum(1 / pair for pair in pairs) if pairs else math.nan
    smaller = n / 2 - math.sqrt(max(0.0, n**2 / 4 - product))
    return smaller, n - smaller


def class_figures(scores: Values, truth: Values) -> dict[str, float]:
    """accuracy: the share of rows whose highest score is that of their class. ami: the adjusted mutual information of the
    answer and the classes, 0 for a coin and 1 for an answer that is the classes under any names. macro_auc: the mean, over
    the classes that have rows here and don't fill them all, of the AUC of a class's scores against the rest; nan for none.

        AMI = (I(answer; y) - E I) / ((H(answer) + H(y)) / 2 - E I),   E I: of random answers with as many rows a class

    scores: (n, K); truth: (n,) classes 0 .. K - 1.

    Source: Vinh, Epps and Bailey, "Information Theoretic Measures for Clusterings Comparison", 2010.
    """
    values, classes = array_of(scores), array_of(truth)
    if not len(classes):
        return dict.fromkeys(CLASS_FIGURES, math.nan)
    from sklearn.metrics import adjusted_mutual_info_score  # takes a second to import, which most runs needn't wait

    answer = values.argmax(axis=1)
    areas = [auc(column, classes == k) for k, column in enumerate(values.T)]
    defined = [area for area in areas if not math.isnan(area)]
    return {
        "accuracy": float((answer == classes).mean()),
        "ami": float(adjusted_mutual_info_score(classes, answer)),
        "macro_auc": math.fsum(defined) / len(defined) if defined else math.nan,
    }


_CONFIDENCE = 0.95
NO_MESSAGE = "none"


@dataclass(frozen=True)
class LeakReading:
    """What an attack reads: the figure's name and value, and its interval; `readings`, with how many others it was compared.

    figure: `AUC`, for two classes; for more, `AMI` or `macro AUC`, whichever is stronger.
    """

    attack: str
    message: str
    party: str
    layer: str
    figure: str
    value: float
    low: float
    high: float
    readings: int


def worst(leaks: Iterable[Leak], confidence: float = _CONFIDENCE) -> LeakReading | None:
    """The strongest of the leaks, with an interval for what the strongest of them truly reads; None if there are none.

    Of two classes, a leak reads max(two_sided, net), of more the stronger of AMI and macro AUC; they are compared by
    `strength`. With K readings in all (two a leak; of m candidates 1 + m), each has an `Estimate.interval` at the
    confidence 1 - (1 - c) / K. By Bonferroni all hold at once with a probability of c where each has its own, and then

        max_k low_k <= max_k truth_k <= max_k high_k,

    whichever of them was picked. A reading with a single batch has no interval: its high end counts as 1.
    """
    leaks = [leak for leak in leaks if leak.batches]
    count = sum(map(number_of_readings, leaks))
    readings = [reading(leak, 1 - (1 - confidence) / count, count) for leak in leaks]
    if not readings:
        return None
    first = max(readings, key=lambda one: strength(one.figure, one.value))
    lows = [strength(one.figure, one.low) for one in readings if not math.isnan(one.low)]
    highs = [1.0 if math.isnan(one.high) else strength(one.figure, one.high) for one in readings]
    low, high = (max(lows), max(highs)) if lows else (math.nan, math.nan)
    if first.figure != "AMI":
        low, high = (1 + low) / 2, (1 + high) / 2
    return replace(first, low=low, high=high)


def above(
    leaks: Sequence[Leak], ceilings: Sequence[float], confidence: float = _CONFIDENCE
) -> list[tuple[LeakReading, float]]:
    """The readings whose simultaneous interval lies above their ceiling, and the ceiling; the strongest first.

    ceilings: of the leak AUC, one for each leak; nan where it has none. With probability `confidence` none is listed
    wrongly.
    """
    pairs = [(leak, height) for leak, height in zip(leaks, ceilings, strict=True) if leak.batches and not leak.of_classes]
    count = sum(number_of_readings(leak) for leak, _ in pairs)
    listed = [(reading(leak, 1 - (1 - confidence) / count, count), height) for leak, height in pairs]
    return sorted(((one, height) for one, height in listed if one.low > height), key=lambda pair: -pair[0].value)


def at_levels(leaks: Iterable[Leak], levels: Mapping[str, str], *wanted: str) -> list[Leak]:
    """Those that count in a verdict on these levels: an attacker sees the layer, and reads a message. levels: attack ->
    level.
    """
    return [leak for leak in leaks if leak.visible and leak.message != NO_MESSAGE and levels[leak.attack] in wanted]


def number_of_readings(leak: Leak) -> int:
    """Two figures, for several candidates one each beside `two_sided`."""
    return 2 if leak.of_classes else 1 + max(1, leak.candidates)


def reading(leak: Leak, confidence: float = _CONFIDENCE, readings: int = 1) -> LeakReading:
    """What one leak reads, with the interval of this confidence over its batches."""
    figures = _of_classes(leak, confidence) if leak.of_classes else {"AUC": _of_auc(leak, confidence)}
    name, it = max(figures.items(), key=lambda item: strength(item[0], item[1].mean))
    return LeakReading(leak.attack, leak.message, leak.party, leak.layer, name, it.mean, it.low, it.high, readings)


def _of_auc(leak: Leak, confidence: float) -> Interval:
    """max(two_sided, net); the low ends of both are low ends of the larger truth."""
    if "auc" not in leak.estimates:  # no batch has rows of both classes
        return UNDEFINED
    folded = two_sided(cut(leak.estimates["auc"][0].interval(confidence)))
    if leak.candidates:  # its mean needs the variances of the batches, its ends don't
        ends = net_of_candidates(leak.estimates["candidates"], 0.0, confidence)
        net = Interval(leak.net.mean, min(ends.low, leak.net.mean), ends.high)
    else:
        net = net_of_square(leak.estimates["square"][0], leak.estimates["oriented"][0], confidence)
    pairs = ([getattr(one, end) for one in (folded, net)] for end in ("mean", "low", "high"))
    return Interval(*(max((v for v in pair if not math.isnan(v)), default=math.nan) for pair in pairs))


def _of_classes(leak: Leak, confidence: float) -> dict[str, Interval]:
    """AMI, and macro AUC folded at 1/2: the names of clusters are arbitrary."""
    ami, macro_auc = (leak.estimates[name][0].interval(confidence) for name in ("ami", "macro_auc"))
    return {"AMI": cut(ami, range_of("ami")), "macro AUC": two_sided(cut(macro_auc))}


def strength(figure: str, value: float) -> float:
    """0 for a coin and 1 for the labels: 2 a - 1 of an AUC, AMI as it is. nan, of a figure that is undefined, is weakest."""
    if math.isnan(value):
        return -1.0
    return value if figure == "AMI" else 2 * value - 1
