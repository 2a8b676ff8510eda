"""What the strongest attack of each level of knowledge reads, by kind of message."""

import math
from collections.abc import Iterable
from typing import Any

from vflbench.numerics.interval import over_runs
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.levels import LEVELS, OWN_COLUMNS, PROBE
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table

MESSAGES = ("gradient", "embedding")
_LEVELS = dict(zip(LEVELS[:2], ("no labels", "known labels"), strict=True))
_RANGE = (0.5, 1.0)
_Named = tuple[str, float]
"""Attack, and what it reads."""


def strongest_table(section: Section) -> Table:
    """A line a setting, of sections with attacks on both kinds of message and at both levels."""
    slug = f"{section.slug}_strongest"
    found = {(quantity.level(leak, run), leak.get("message")) for run in section.runs for leak in quantity.leaks(run)}
    if not all((level, message) in found for level in _LEVELS for message in MESSAGES):
        return Table(slug, "", (), [])
    rows = []
    for group in section.groups:
        cells: list[Any] = [group.name, len(group.runs), group.interval("test_auc"), group.interval("train_auc")]
        for level in _LEVELS:
            for message in MESSAGES:
                cells += _of_group([_read(run, level, message) for run in group.runs])
        cells += [over_runs((_probe(run, message) for run in group.runs), _RANGE) for message in MESSAGES]
        rows.append([*cells, over_runs(map(_own_columns, group.runs), _RANGE)])
    columns = ["setting", "runs", "test AUC", "train AUC"]
    columns += [
        name for words in _LEVELS.values() for m in MESSAGES for name in (f"{m}s, {words}", f"strongest on {m}s, {words}")
    ]
    columns += [*(f"probe on {message}s" for message in MESSAGES), "own columns"]
    note = (
        "At the visible layer where the attack reads most: max(a, 1 - a) of its mean leak AUC or, if larger, what it "
        "reaches if it knows in each batch which end is positive, less what a coin reaches. Mean (95 % t-interval over "
        "seeds) of the attack with the largest mean. The probe and own columns are references."
    )
    return Table(slug, "The strongest attack on each kind of message", tuple(columns), rows, note)


def _of_group(read: Iterable[dict[str, float]]) -> list[Any]:
    """Interval and name of the attack with the largest mean over the runs."""
    values: dict[str, list[float]] = {}
    for of_run in read:
        for attack, value in of_run.items():
            values.setdefault(attack, []).append(value)
    means = {attack: over_runs(of, _RANGE) for attack, of in values.items()}
    best = max(means, key=lambda attack: means[attack].mean, default=None)
    return [means[best], best] if best is not None else [None, None]


def _read(run: Run, level: str, message: str) -> dict[str, float]:
    """Attack -> its largest reading at a visible layer."""
    worst: dict[str, float] = {}
    for leak in quantity.leaks(run):
        if leak.get("visible") and leak.get("message") == message and quantity.level(leak, run) == level:
            value = quantity.leak_value(leak, "leak_auc")
            if not math.isnan(value):
                name = str(leak["attack"])
                worst[name] = max(worst.get(name, 0.0), value)
    return worst


def _probe(run: Run, message: str) -> float:
    return _largest(run, lambda leak: (leak["attack"], leak["layer"]) == (PROBE, f"{message}s"))


def _own_columns(run: Run) -> float:
    """The strongest of the attacks with labels where it reads the party's own columns."""
    return _largest(run, lambda leak: str(leak["attack"]).endswith(OWN_COLUMNS))


def _largest(run: Run, counts: Any) -> float:
    values = [quantity.leak_value(leak, "leak_auc") for leak in quantity.leaks(run) if counts(leak)]
    return max((value for value in values if not math.isnan(value)), default=math.nan)
