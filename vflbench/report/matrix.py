"""What every attack reads under every defense, attacks grouped by what they know."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.groups import Group
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.levels import LEVELS, PROBE, REFERENCE, base_name
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table

EXPERIMENT = "matrix"
OWN = "own columns"
MOST_ROWS, LEAST_ROWS, LEAST_ATTACKS = 80, 3, 5
_TWO_SIDED = (0.5, 1.0)
Key = tuple[str, str]
"""Level of knowledge, and attack."""


def is_matrix(section: Section) -> bool:
    """Whether it is the experiment, or has enough settings and attacks for a picture of them all."""
    if section.experiment == EXPERIMENT:
        return True
    attacks = [key for key in columns_of(section.runs) if key[0] != REFERENCE]
    return LEAST_ROWS <= len(section.groups) <= MOST_ROWS and len(attacks) >= LEAST_ATTACKS


def matrix_table(section: Section) -> Table:
    """A line a setting: undefended ones first, then from what leaves most to what leaves least without labels."""
    slug = f"{section.slug}_matrix"
    keys = columns_of(section.runs) if section.experiment == EXPERIMENT else []
    if not keys:
        return Table(slug, "", (), [])
    levels = [level for level in LEVELS if any(key[0] == level for key in keys)]
    rows = []
    for group in ordered(section):
        read = readings_of(group, keys)
        cells: list[Any] = [group.name, len(group.runs), group.interval(section.utility, section.layer), ceiling(group.runs)]
        for level in levels:
            attack, value = strongest(read, level)
            cells += [value, attack]
        rows.append([*cells, *(read[key] for key in keys)])
    columns = ["setting", "runs", quantity.title(section.utility), "ceiling"]
    for level in levels:
        columns += [f"strongest, {level}", f"which, {level}"]
    columns += [f"{attack}, {level}" for level, attack in keys]
    note = (
        "Two-sided leak AUC at the visible layer where it is largest, mean (95 % t-interval over seeds); 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict; refuted: what "
        "it assumes did not hold. References are no attacks: the best of the probes, and the strongest attack on the "
        "party's own columns."
    )
    return Table(slug, "Every attack against every defense", tuple(columns), rows, note)


def ordered(section: Section) -> list[Group]:
    keys = columns_of(section.runs)

    def rank(group: Group) -> tuple[Any, ...]:
        read = readings_of(group, keys)
        return not group.undefended, *(-_rank(strongest(read, level)[1].mean) for level in LEVELS), group.name

    return sorted(section.groups, key=rank)


def columns_of(runs: Sequence[Run]) -> list[Key]:
    """All columns by level, in the order in which the runs chose their attacks."""
    found = {key for run in runs for key in readings(run)}
    chosen = {name: place for run in runs for place, name in enumerate(run.config.get("attack") or {})}
    order = [*LEVELS, REFERENCE]
    return sorted(found, key=lambda k: (order.index(k[0]) if k[0] in order else 9, chosen.get(k[1], 999), k[1] != PROBE, k))


def readings(run: Run) -> dict[Key, float]:
    """Two-sided leak AUC at the worst visible layer."""
    if "matrix" not in run.computed:
        worst: dict[Key, float] = {}
        for leak in quantity.leaks(run):
            if quantity.counts(leak, run, "all"):
                key = _key_of(leak, run)
                worst[key] = max(worst.get(key, math.nan), quantity.leak_value(leak, "leak_two_sided"), key=_rank)
        run.computed["matrix"] = worst
    read: dict[Key, float] = run.computed["matrix"]
    return read


def readings_of(group: Group, keys: Sequence[Key]) -> dict[Key, OverRuns]:
    return {key: over_runs((readings(run).get(key, math.nan) for run in group.runs), _TWO_SIDED) for key in keys}


def strongest(read: Mapping[Key, OverRuns], level: str) -> tuple[str | None, OverRuns]:
    """The attack of a level with the largest mean; None and nan without one."""
    known = {attack: value for (of, attack), value in read.items() if of == level and not math.isnan(value.mean)}
    attack = max(known, key=lambda name: known[name].mean, default=None)
    return attack, known[attack] if attack else over_runs([])


def ceiling(runs: Sequence[Run]) -> float | str | None:
    """The lowest leak AUC promised of all messages; `refuted` if what the promises assume did not hold."""
    promises = [promise for run in runs for promise in (run.summary.get("guarantees") or {}).values() if promise]
    stands = [quantity.number(p.get("leak_auc_all_messages")) for p in promises if p.get("assumption_holds") is not False]
    stands = [value for value in stands if not math.isnan(value)]
    return min(stands) if stands else "refuted" if promises else None


def _key_of(leak: Mapping[str, Any], run: Run) -> Key:
    name = base_name(str(leak["attack"]))
    if not quantity.is_reference(leak, run):
        return quantity.level(leak, run), name
    return REFERENCE, PROBE if name == PROBE else OWN


def _rank(value: float) -> float:
    return -1.0 if math.isnan(value) else value
