"""What the interval of a leak allows to say, and thresholds for CI: kept, exceeded, or not to be judged."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from vflbench.errors import UserError, nearest
from vflbench.results.schema import LEVELS, MetricRow, Reading, ThreatRecord, level_of

COIN = {"AUC": 0.5, "macro AUC": 0.5, "AMI": 0.0}
"""Figure of a verdict -> what a coin reads."""
WORTH_FINDING = 0.6
"""The leak AUC that must be told from a coin before it is said that none was seen; as an AMI, 0.2."""
GATE_FLAG = "--fail-above"
_WORST = "leak_auc_worst"
KEYS = {
    "leak_auc_worst": "the larger of two-sided and net: of the last epoch, the number in the first line",
    "leak_auc_two_sided": "max(a, 1 - a) of the mean leak AUC",
    "leak_auc": "the mean leak AUC as it is: far below 0.5 it passes, and that is said",
    "leak_auc_oriented": "the mean over batches of max(a, 1 - a), above 0.5 for a coin too",
    "leak_auc_net": "what is left of that without what a coin reaches",
    "leak_accuracy": "share of right classes",
    "leak_ami": "adjusted mutual information of answers and classes",
    "leak_macro_auc": "max(a, 1 - a) of the mean AUC of one class against the rest",
}
"""What a threshold can be set on."""
_UNKNOWN_COIN = ("leak_auc_oriented", "leak_accuracy")
"""Keys of which it isn't known what a coin reads."""


class Judgement(StrEnum):
    """leak: surely above a coin. none: no leak worth finding. unknown: too little was read to say either."""

    LEAK = "leak"
    NONE = "none"
    UNKNOWN = "unknown"


def leak_strength(figure: str, value: float | None) -> float:
    """0 for a coin, 1 for the labels: 2 a - 1 of an AUC, AMI as it is; nan where it is undefined."""
    return math.nan if value is None else value if figure == "AMI" else 2 * value - 1


def judged(figure: str, low: float | None, high: float | None, most: float = 0.0) -> Judgement:
    """By the interval of a reading: LEAK above a coin; NONE if it holds a coin and ends below a leak worth finding.

    most: of this figure, a leak that is tolerated, if that is more than WORTH_FINDING.
    """
    least, bar = leak_strength(figure, low), max(leak_strength(figure, most), leak_strength("AUC", WORTH_FINDING))
    if leak_strength(figure, high) >= least > 0:  # not of a missing end
        return Judgement.LEAK
    return Judgement.NONE if least <= 0 and leak_strength(figure, high) < bar else Judgement.UNKNOWN


@dataclass(frozen=True)
class Gate:
    """`leak_auc_two_sided=0.6`: the figure, and the largest value that passes."""

    key: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Raises UserError for a figure that there isn't, or a threshold that is no number from 0 to 1."""
        key, _, value = text.partition("=")
        if key not in KEYS or not value:
            near = "" if key in KEYS else nearest(key, KEYS)
            problem = f"it must be KEY=VALUE{near or '; the keys are ' + ', '.join(KEYS)}"
            raise UserError(problem, key=GATE_FLAG, value=text, see="vflbench audit --help")
        with suppress(ValueError):
            if 0 <= float(value) <= 1:
                return cls(key, float(value))
        raise UserError("the threshold must be a number from 0 to 1", key=f"{GATE_FLAG} {key}", value=value)


@dataclass(frozen=True)
class Outcome:
    """What a gate came to.

    row: the largest value, of any attack, layer that an attacker sees, and epoch, and where it was, with a 95 % interval,
    nan without one. of_all: whether that is the interval of the worst of all readings, whichever it is, or of this value
    alone. undefined: attacks without any value. crossing: party -> layers that cross. other_side: 1 - a of the least
    one-sided leak AUC a.
    """

    gate: Gate
    row: MetricRow
    of_all: bool
    last_epoch: int
    undefined: tuple[str, ...]
    crossing: Mapping[str, Sequence[str]]
    other_side: float

    @property
    def passed(self) -> bool | None:
        """False above the threshold: the value decides. Below it, None where a coin can't be told from a leak above the
        threshold: there is no interval, or it holds both.
        """
        key, row = self.gate.key, self.row
        if row.value > self.gate.threshold:
            return False
        judgement = judged("AMI" if key == "leak_ami" else "AUC", row.ci_low, row.ci_high, self.gate.threshold)
        is_known = judgement is not Judgement.UNKNOWN or (key in _UNKNOWN_COIN and not math.isnan(row.ci_low))
        return True if is_known else None


def judge(
    gate: Gate,
    rows: Sequence[MetricRow],
    threats: Mapping[str, ThreatRecord],
    crossing: Mapping[str, Sequence[str]],
    worst: Reading | None,
) -> Outcome:
    """Compare a result with a threshold.

    The largest value counts, of any attack but references, at any layer that an attacker sees, in any epoch: what a party
    has seen in an early epoch it keeps. Of equal ones it is that of the last epoch, at a layer that crosses, of an attack
    that knows less. rows: of metrics.csv. crossing: party -> layers that cross. worst: the worst reading of the verdict; its
    interval belongs to `leak_auc_worst` of the last epoch. Raises UserError where nothing has such a value.
    """
    counted = [row for row in rows if row.attack and row.visible and row.message != "none"]
    counted = [_folded(row) for row in counted if level_of(row.attack, threats) in LEVELS]
    of_key = leak_rows(counted) if gate.key == _WORST else [row for row in counted if row.metric == gate.key]
    defined = [row for row in of_key if not math.isnan(row.value)]
    if not defined:
        there = sorted({row.metric for row in counted if row.metric in KEYS and not math.isnan(row.value)})
        others = f"; there are {', '.join(there)}" if there else ": no attack on messages was scored"
        raise UserError(f"nothing here has such a value{others}", key=f"{GATE_FLAG} {gate.key}", value=gate.threshold)

    def rank(row: MetricRow) -> tuple[float, int, bool, int]:
        crosses = row.layer in crossing.get(row.party, ())
        return row.value, row.epoch, crosses, -LEVELS.index(level_of(row.attack, threats))

    row, last = max(defined, key=rank), max(row.epoch for row in rows)
    quoted = worst if worst and gate.key == _WORST and (worst.value, last) == (row.value, row.epoch) else None
    if quoted:
        low, high = (math.nan if end is None else end for end in (quoted.low, quoted.high))
        row = replace(row, party=quoted.party, layer=quoted.layer, message=quoted.message, attack=quoted.attack)
        row = replace(row, ci_low=low, ci_high=high)
    scored = {row.attack for row in defined}
    undefined = tuple(dict.fromkeys(row.attack for row in of_key if row.attack not in scored))
    other = max(1 - row.value for row in defined) if gate.key == "leak_auc" else math.nan
    return Outcome(gate, row, quoted is not None, last, undefined, crossing, other)


def _folded(row: MetricRow) -> MetricRow:
    """A macro AUC counts on either side of 0.5, as the names of classes are arbitrary."""
    if row.metric != "leak_macro_auc":
        return row
    ends = sorted((abs(row.ci_low - 0.5), abs(row.ci_high - 0.5)))
    low = 0.5 if row.ci_low <= 0.5 <= row.ci_high else 0.5 + ends[0]
    return replace(row, value=max(row.value, 1 - row.value), ci_low=low, ci_high=0.5 + ends[1])


def leak_rows(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """What leaks count as: each row of `leak_auc_two_sided`, or that of `leak_auc_net` where this is larger."""

    def place(row: MetricRow) -> MetricRow:
        return replace(row, metric="", value=0, ci_low=0, ci_high=0)

    net = {place(row): row for row in rows if row.metric == "leak_auc_net"}
    both = ((row, net.get(place(row), row)) for row in rows if row.metric == "leak_auc_two_sided")
    return [max(pair, key=lambda row: row.value) for pair in both]


def distinct_rounding(larger: float, smaller: float) -> tuple[str, str]:
    """Two numbers with as many digits as show that the first is larger: `0.9500` and `0.9496`, `1` and `1 - 8e-13`.

    Three digits where there is no difference. larger, smaller: in [0, 1], as an AUC and its ceiling.
    """
    for digits in range(3, 7):
        one, other = f"{larger:.{digits}f}", f"{smaller:.{digits}f}"
        if float(one) > float(other) or not larger > smaller:
            return one, other
    if smaller <= 0.9:
        return f"{larger:.12g}", f"{smaller:.12g}"
    return "1" if larger >= 1 else f"1 - {1 - larger:.2g}", f"1 - {1 - smaller:.2g}"
