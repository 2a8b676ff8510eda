"""Runs side by side: a line for each value of chosen options, mean and 95 % interval over seeds, and over nothing else."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import UNIT, OverRuns, over_runs
from vflbench.report.groups import Group, group_runs, settings_name
from vflbench.results import quantity
from vflbench.results.provenance import digest
from vflbench.results.runs import Run, read_runs

__all__ = ["QUANTITIES", "Line", "along", "attacks_of", "leak_of", "lines", "option_value", "read_runs"]

QUANTITIES = ("reading", "raw", "two_sided", "oriented", "distance")
"""Of a leak AUC a: what it counts as, max(two_sided, net); a; max(a, 1 - a); the mean over batches of max(a, 1 - a);
|a - 0.5|.
"""
_TWO_SIDED = (0.5, 1.0)
_RANGES = {"reading": _TWO_SIDED, "raw": UNIT, "two_sided": _TWO_SIDED, "oriented": _TWO_SIDED, "distance": (0.0, 0.5)}


@dataclass(frozen=True)
class Line:
    """Runs that differ in nothing but their seed. options: the values of the chosen options.

    defense: its name, and what else distinguishes these runs from those of other lines: other options, the code that made
    them, their data, in words.
    """

    defense: str
    options: tuple[Any, ...]
    runs: tuple[Run, ...]

    def over_seeds(self, name: str, attack: str | None = None, layer: str | None = None) -> OverRuns:
        """Over its runs: a number of summary.json or, with an attack, one of QUANTITIES of its leak AUC."""
        values = [run.summary[name] if attack is None else leak_of(run, attack, layer)[name] for run in self.runs]
        limits = range_of(name) if attack is None else _RANGES[name]
        return over_runs((value for value in values if value is not None), limits)


def leak_of(run: Run, attack: str, layer: str | None = None) -> dict[str, float]:
    """QUANTITIES -> leak AUC at a layer (None: the cut), of the party with the largest; nan if there is none.

    A layer that no attacker sees counts only if it is named. An attack that reads no message has a single leak AUC.
    """
    leaks = [
        leak
        for leak in quantity.leaks(run)
        if leak["attack"] == attack and leak["raw"]["mean"] is not None
        if leak["visible"] or layer is not None
        if quantity.counts(leak, run, layer)
    ]
    if not leaks:
        return dict.fromkeys(QUANTITIES, math.nan)
    worst = max(leaks, key=lambda leak: (leak["visible"], quantity.leak_value(leak, "leak_auc")))
    values = {"reading": quantity.leak_value(worst, "leak_auc")}
    values |= {name: worst[name]["mean"] for name in ("raw", "two_sided", "oriented")}
    return values | {"distance": abs(values["raw"] - 0.5)}


def lines(runs: Sequence[Run], by: Sequence[str]) -> list[Line]:
    """A line for each group of runs that differ in nothing but their seed; undefended ones first, then by value.

    by: keys of options that are told by value. What else distinguishes the groups is in the line's name.
    """
    made = [Line(_name_without(g, by), tuple(option_value(g.runs[0], key) for key in by), g.runs) for g in group_runs(runs)]
    times = Counter((line.defense, str(line.options)) for line in made)
    made = [
        line
        if times[line.defense, str(line.options)] == 1
        else replace(line, defense=f"{line.defense}, options {digest({**line.runs[0].config, 'seed': None})}")
        for line in made
    ]
    return sorted(made, key=lambda line: (line.defense != "none", line.defense, [_rank(value) for value in line.options]))


def _name_without(group: Group, keys: Sequence[str]) -> str:
    """The group's name without the options of these keys. Of a group of options only what was chosen is left out."""
    told = {name for key in keys for name in (key, f"{key}._target_")}
    name = settings_name(group, {key: value for key, value in group.options.items() if key not in told})
    name = name.removeprefix(group.defense).removeprefix(", ") if "defense" in keys else name
    return ", ".join(filter(None, [name, group.made_by]))


def option_value(run: Run, key: str) -> Any:
    """The value of a dotted key: a number, a text or None; of a group of options the name of what was chosen."""
    named = {"dataset": run.dataset, "defense": run.defense, "adversary": run.adversary}
    if key in named:
        return named[key]
    value = run.option(key)
    if key == "attack":
        return "+".join(value or {}) or "none"
    if isinstance(value, Mapping):
        parts = str(value.get("_target_") or "").split(".")
        return parts[-2] if len(parts) > 1 else json.dumps(value, sort_keys=True, default=str)
    return json.dumps(value, default=str) if isinstance(value, list) else value


def attacks_of(runs: Sequence[Run]) -> list[str]:
    """Attacks that read a layer that an attacker sees, in any of the runs."""
    return list(dict.fromkeys(leak["attack"] for run in runs for leak in run.summary["leaks"] if leak["visible"]))


def along(table: Sequence[Line], position: int = 0) -> Iterator[tuple[float, Line]]:
    """(value, line) for the lines whose option at that position is a number, in rising order."""
    numbered = [(line.options[position], line) for line in table if isinstance(line.options[position], float | int)]
    yield from sorted(numbered, key=lambda pair: pair[0])


def _rank(value: Any) -> tuple[bool, float, str]:
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return (True, float(value), "") if is_number else (False, 0.0, str(value))
