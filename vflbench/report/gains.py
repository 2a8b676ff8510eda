"""How much of the features every attack rebuilds under every defense, beyond what can be guessed without messages.

    gain = 1 - mse / min over guesses of mse,    guesses: means, rows of the class, a regression on own columns, ...

1 for rows that are rebuilt exactly, 0 for no more than guessing. Of an attack that ranks rows by a column, the same share of
what AUC the attacker without messages leaves to 1.
"""

import math
from collections.abc import Mapping
from typing import Any

from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.groups import Group
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.runs import Run, mappings
from vflbench.results.table_formats import Table

_NEED_THE_TRUTH = ("nearest_row", "true")  # no guesses, although they stand beside them
_RANKED = "attribute_auc"  # of an attack that ranks rows by a column
_RANGE = (-math.inf, 1.0)
_WHOLE = "all"


def gain_table(section: Section) -> Table:
    """A line a setting, a column an attack."""
    attacks = attacks_of(section)
    rows = []
    for group in section.groups if attacks else ():
        values = [gain_of(group, attack) for attack in attacks]
        if not all(math.isnan(value.mean) for value in values):
            rows.append([group.name, len(group.runs), group.interval(section.utility, section.layer), *values])
    columns = ("setting", "runs", quantity.title(section.utility), *attacks)
    note = (
        "The best guess without messages leaves an error. The value is the share of this error that the attack removes: 1 "
        "rebuilds exactly, 0 or less is no better than guessing. For an attack that ranks rows by a column, it is the share "
        "of the distance to AUC 1 that the attacker without messages leaves. Mean (95 % t-interval over seeds)."
    )
    return Table(f"{section.slug}_gains", "Rebuilt beyond the best guess", columns, rows, note)


def attacks_of(section: Section) -> list[str]:
    """Those with a gain in any run, in the order in which they were chosen."""
    found = [str(entry["attack"]) for run in section.runs for entry in mappings(run.summary.get("reconstructions"))]
    chosen = [name for run in section.runs for name in run.config.get("attack") or {}]
    names = [name for name in dict.fromkeys([*chosen, *found]) if name in found]
    return [name for name in names if any(not math.isnan(gain(run, name)) for run in section.runs)]


def gain_of(group: Group, attack: str) -> OverRuns:
    return over_runs((gain(run, attack) for run in group.runs), _RANGE)


def gain(run: Run, attack: str) -> float:
    """nan where the attack rebuilt nothing, or no guess stands beside it."""
    entries = [e for e in mappings(run.summary.get("reconstructions")) if e["attack"] == attack]
    answers = [e for e in entries if e["message"] != quantity.NO_MESSAGE]
    beside = [e for e in entries if e["message"] == quantity.NO_MESSAGE and e["layer"] not in _NEED_THE_TRUTH]
    read = _largest([_figure(e, _RANKED) for e in answers])
    if not math.isnan(read):
        known = _largest([_figure(e, _RANKED) for e in beside])
        return (read - known) / (1 - known) if known < 1 else math.nan
    error = _mean(answers)
    guesses = [_mean([e for e in beside if e["layer"] == name]) for name in dict.fromkeys(e["layer"] for e in beside)]
    least = min((value for value in guesses if not math.isnan(value)), default=math.nan)
    return 1 - error / least if least > 0 else math.nan


def _mean(entries: list[Mapping[str, Any]]) -> float:
    """The mean squared error of whole rows, else the mean over the parties."""
    whole = [e for e in entries if str(e["party"]).split(" by ")[0] == _WHOLE] or entries
    values = [value for e in whole if not math.isnan(value := _figure(e, "mse"))]
    return math.fsum(values) / len(values) if values else math.nan


def _figure(entry: Mapping[str, Any], name: str) -> float:
    return quantity.mean_of((entry.get("figures") or {}).get(name))


def _largest(values: list[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)
