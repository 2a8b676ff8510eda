"""What the worst attack of a run reads at a level, and over the seeds of a setting: one interval for table and sentence."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.numerics.interval import Interval
from vflbench.results import quantity
from vflbench.results.runs import Run


def level_reading(run: Run, level: str) -> Mapping[str, Any] | None:
    """The worst attack of a run at a level; of older runs, which record no verdict, without an interval."""
    verdict = run.summary.get("verdict")
    if isinstance(verdict, Mapping):
        return (verdict.get("levels") or {}).get(level)
    leaks = [
        (quantity.leak_value(leak, "leak_auc"), leak)
        for leak in quantity.leaks(run)
        if leak.get("visible") and not quantity.is_reference(leak, run) and quantity.level(leak, run) == level
    ]
    leaks = [(value, leak) for value, leak in leaks if not math.isnan(value)]
    value, worst = max(leaks, key=lambda pair: pair[0], default=(math.nan, None))
    return None if worst is None else {**worst, "figure": "AUC", "value": value, "low": None, "high": None}


def leaves_the_worst(run: Run, level: str) -> bool:
    """Whether the worst attack of a level reads messages that the defense leaves as they are."""
    return bool((_verdict(run).get("on_changed") or {}).get(level))


def reading_of_changed(run: Run, level: str) -> Mapping[str, Any] | None:
    """The worst attack of a level on messages that the defense changes: the worst of all where that reads such messages.

    None where no attack of the level read such messages, and of older runs, which record no verdict.
    """
    verdict = _verdict(run)
    worst = (verdict.get("levels") or {}).get(level)
    if leaves_the_worst(run, level) or not worst:
        return (verdict.get("on_changed") or {}).get(level)
    return worst if worst.get("message") in (verdict.get("changed") or ()) else None


def over_seeds(readings: Sequence[Mapping[str, Any] | None]) -> Interval | None:
    """The mean, from the lowest low end to the highest high end; no interval if any run has none. None without a reading."""
    given = [one for one in readings if one]
    if not given:
        return None
    mean = math.fsum(quantity.number(one["value"]) for one in given) / len(given)
    lows, highs = ([quantity.number(one.get(end)) for one in given] for end in ("low", "high"))
    if any(map(math.isnan, (*lows, *highs))):
        return Interval(mean, math.nan, math.nan)
    return Interval(mean, min(lows), max(highs))


def _verdict(run: Run) -> Mapping[str, Any]:
    verdict = run.summary.get("verdict")
    return verdict if isinstance(verdict, Mapping) else {}
