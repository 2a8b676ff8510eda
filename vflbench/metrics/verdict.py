"""The worst attack at each level of knowledge, with an interval that allows for having picked it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vflbench.metrics.leak import Leak, net_of_candidates, net_of_square, two_sided
from vflbench.numerics.interval import Interval, cut

CONFIDENCE = 0.95
NO_MESSAGE = "none"


@dataclass(frozen=True)
class Reading:
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


def worst(leaks: Iterable[Leak], confidence: float = CONFIDENCE) -> Reading | None:
    """The strongest of the leaks, with an interval for what the strongest of them truly reads; None if there are none.

    Of two classes, a leak reads max(two_sided, net), of more the stronger of AMI and macro AUC; they are compared by
    `strength`. With K readings in all (two a leak; of m candidates 1 + m), each has a t-interval at the confidence
    1 - (1 - c) / K. By Bonferroni all hold at once with a probability of at least c, and then

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
    ends = {"low": from_strength(first.figure, low), "high": from_strength(first.figure, high)}
    return Reading(**{**vars(first), **ends})


def above(leaks: Sequence[Leak], ceilings: Sequence[float], confidence: float = CONFIDENCE) -> list[tuple[Reading, float]]:
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


def reading(leak: Leak, confidence: float = CONFIDENCE, readings: int = 1) -> Reading:
    """What one leak reads, with the t-interval of this confidence over its batches."""
    place = (leak.attack, leak.message, leak.party, leak.layer)
    figures = _of_classes(leak, confidence) if leak.of_classes else {"AUC": _of_auc(leak, confidence)}
    name, interval = max(figures.items(), key=lambda item: strength(item[0], item[1].mean))
    return Reading(*place, name, interval.mean, interval.low, interval.high, readings)


def _of_auc(leak: Leak, confidence: float) -> Interval:
    """max(two_sided, net); the low ends of both are low ends of the larger truth."""
    if "auc" not in leak.estimates:
        folded, net = leak.two_sided, leak.net
    else:
        folded = two_sided(cut(leak.estimates["auc"][0].interval(confidence)))
        if leak.candidates:  # its mean needs the variances of the batches, its ends don't
            ends = net_of_candidates(leak.estimates["candidates"], 0.0, confidence)
            net = Interval(leak.net.mean, min(ends.low, leak.net.mean), ends.high)
        else:
            net = net_of_square(leak.estimates["square"][0], leak.estimates["oriented"][0], confidence)
    ends_of = [_largest((getattr(folded, end), getattr(net, end))) for end in ("mean", "low", "high")]
    return Interval(*ends_of)


def _of_classes(leak: Leak, confidence: float) -> dict[str, Interval]:
    """AMI, and macro AUC folded at 1/2: the names of clusters are arbitrary."""
    if "ami" not in leak.estimates:
        return {"AMI": leak.classes["ami"], "macro AUC": two_sided(leak.classes["macro_auc"])}
    ami, macro_auc = (leak.estimates[name][0].interval(confidence) for name in ("ami", "macro_auc"))
    return {
        "AMI": Interval(ami.mean, ami.low, min(ami.high, 1.0)),
        "macro AUC": two_sided(cut(macro_auc)),
    }


def strength(figure: str, value: float) -> float:
    """0 for a coin and 1 for the labels: 2 a - 1 of an AUC, AMI as it is. nan, of a figure that is undefined, is weakest."""
    if math.isnan(value):
        return -1.0
    return value if figure == "AMI" else 2 * value - 1


def from_strength(figure: str, value: float) -> float:
    """The figure of that strength."""
    return value if figure == "AMI" else (1 + value) / 2


def _largest(values: Iterable[float]) -> float:
    return max((v for v in values if not math.isnan(v)), default=math.nan)
