"""Runs side by side: one line per defense and value of chosen options, mean and 95 % interval over seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import UNIT, OverRuns, interval_text, over_runs
from vflbench.results.origins import labels, of_one_code, origin
from vflbench.results.report import quantity
from vflbench.results.runs import Run, read_runs

__all__ = ["QUANTITIES", "Line", "along", "attacks_of", "leak_of", "lines", "markdown", "read_runs"]

QUANTITIES = ("reading", "raw", "two_sided", "oriented", "distance")
"""Of a leak AUC a: what it counts as, max(two_sided, net); a; max(a, 1 - a); the mean over batches of max(a, 1 - a);
|a - 0.5|.
"""
_TWO_SIDED = (0.5, 1.0)
_RANGES = {"reading": _TWO_SIDED, "raw": UNIT, "two_sided": _TWO_SIDED, "oriented": _TWO_SIDED, "distance": (0.0, 0.5)}


@dataclass(frozen=True)
class Line:
    """Runs with the same defenses and the same values of the chosen options; their seeds differ.

    defense: its name; where runs of several versions of the code, of plug-ins or of data are given, also of which.
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
    """A line for each defense and combination of values of the options `by`; undefended runs first, then by value."""
    groups: dict[tuple[str, tuple[Any, ...]], list[Run]] = {}
    for run, defense in zip(runs, _defenses(runs), strict=True):
        groups.setdefault((defense, tuple(_named(run.option(key)) for key in by)), []).append(run)
    ordered = sorted(groups, key=lambda key: (key[0] != "none", key[0], [_rank(value) for value in key[1]]))
    return [Line(*key, tuple(groups[key])) for key in ordered]


def _defenses(runs: Sequence[Run]) -> list[str]:
    """The defense of each run and, where not all were made by the same code from the same data, by which and from what."""
    parts = of_one_code(runs)
    by_code = {id(run): number for number, part in enumerate(parts) for run in part}
    names = [f"code {by_code[id(run)] + 1}" if len(parts) > 1 else "" for run in runs]
    origins = labels([origin(run) for run in runs]) if runs else []
    return [", ".join(filter(None, [run.defense, *made])) for run, *made in zip(runs, origins, names, strict=True)]


def _named(value: Any) -> Any:
    """The name of a choice, as cnn, for its options."""
    target = value.get("_target_") if isinstance(value, Mapping) else None
    return str(value) if isinstance(value, Mapping) and target is None else str(target).split(".")[-2] if target else value


def attacks_of(runs: Sequence[Run]) -> list[str]:
    """Attacks that read a layer that an attacker sees, in any of the runs."""
    return list(dict.fromkeys(leak["attack"] for run in runs for leak in run.summary["leaks"] if leak["visible"]))


def markdown(table: Sequence[Line], by: Sequence[str], attacks: Sequence[str], layer: str | None = None) -> str:
    """A Markdown table: mean (low - high) over the runs of each line; fewer than three runs have no interval."""
    names = {"reading": "", "raw": ", one-sided", "two_sided": ", two-sided", "oriented": ", oriented"}
    names["distance"] = ", \\|AUC - 0.5\\|"
    columns = [(attack, name) for attack in attacks for name in QUANTITIES]
    header = ["defense", *by, "runs", "test AUC", *(f"{attack}{names[name]}" for attack, name in columns)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line in table:
        cells = [line.defense, *("" if v is None else str(v) for v in line.options), str(len(line.runs))]
        cells.append(interval_text(line.over_seeds("test_auc")))
        cells += [interval_text(line.over_seeds(name, attack, layer)) for attack, name in columns]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def along(table: Sequence[Line], position: int = 0) -> Iterator[tuple[float, Line]]:
    """(value, line) for the lines whose option at that position is a number, in rising order."""
    numbered = [(line.options[position], line) for line in table if isinstance(line.options[position], float | int)]
    yield from sorted(numbered, key=lambda pair: pair[0])


def _rank(value: Any) -> tuple[bool, float, str]:
    return (True, value, "") if isinstance(value, float | int) else (False, 0.0, str(value))
