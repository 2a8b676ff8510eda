"""Tables of lists in summary.json that this version has no table of its own for."""

import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import over_runs
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.runs import mappings
from vflbench.results.table_formats import Table, slugged

_MOST_ROWS, _MOST_COLUMNS, _MOST_TABLES = 60, 100, 50
_KNOWN_LISTS = {"leaks", "figures", "reconstructions"}


def other_lists(section: Section) -> list[Table]:
    """Every other list of mappings in summary.json as a table over the settings."""
    keys = dict.fromkeys(
        key for run in section.runs for key, v in run.summary.items() if isinstance(v, list) and key not in _KNOWN_LISTS
    )
    made = []
    for key in list(keys)[:_MOST_TABLES]:
        cells: dict[tuple[str, ...], dict[str, list[float]]] = {}
        for g in section.groups:
            for run in g.runs:
                for entry in mappings(run.summary.get(key)):
                    flat = _flat(entry)
                    place = json.dumps({k: v for k, v in flat.items() if not isinstance(v, float)})
                    values = cells.setdefault((g.name, place), {})
                    for name, value in flat.items():
                        if isinstance(value, float) and not math.isnan(value):
                            values.setdefault(name, []).append(value)
        few = dict(islice(cells.items(), _MOST_ROWS))
        words = list(dict.fromkeys(word for _, place in few for word in json.loads(place)))[:_MOST_COLUMNS]
        names = list(dict.fromkeys(name for values in few.values() for name in values))[:_MOST_COLUMNS]
        rows = [
            [
                setting,
                *(json.loads(place).get(word) for word in words),
                *(over_runs(values.get(n, []), range_of(n)) for n in names),
            ]
            for (setting, place), values in few.items()
        ]
        columns = ("setting", *(text.replace("_", " ") for text in (*words, *names)))
        note = "Means over runs (95 % t-interval)." + (f" The first {_MOST_ROWS} lines." if len(cells) > _MOST_ROWS else "")
        made.append(Table(f"{section.slug}_{slugged(key)}", key.replace("_", " ").capitalize(), columns, rows, note))
    return made


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers as floats, an interval as its mean, the rest as text."""
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= {name: quantity.number(value["mean"])} if "mean" in value else _flat(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[name] = float(value)
        else:
            flat[name] = str(value)[:200]
    return flat
