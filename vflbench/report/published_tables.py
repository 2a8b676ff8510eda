"""The tables of docs/experiments/published.md as Markdown."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.groups import Group
from vflbench.report.published import NOT_MEASURED, Compared, scale_of
from vflbench.report.sections import Section
from vflbench.results.table_formats import markdown_text, text_of

_RANGE = ("end of the range", "up to")
"""Words of values that bound others."""
_PIPE = re.compile(r"(?<!\\)\|")  # that isn't escaped already


def values_table(compared: Sequence[Compared]) -> str:
    """Published, here with its interval over runs, the difference, and the data here."""
    rows = [
        [
            _what(one),
            published_text(one),
            one.here if one.here.runs else NOT_MEASURED,
            one.here.runs or None,
            one.difference,
            markdown_text(one.where) or None,
        ]
        for one in compared
    ]
    return table(("what", "published", "here (95 % over runs)", "runs", "here - published", "here on"), rows)


def _what(one: Compared) -> str:
    """With the published data, where they are others than here."""
    data = one.value.data
    return one.value.what if one.where.startswith(data.lower()) else f"{one.value.what} [{data}]"


def published_text(one: Compared) -> str:
    """The number as printed, with its unit."""
    if one.value.number is None:
        return str(one.published)
    return f"{one.value.number}{f' {one.value.unit}' if one.value.unit else ''}"


def summary_sentence(compared: Sequence[Compared]) -> str:
    """How many published values lie in our intervals, and how far ours are from them. Ends of ranges are no such values."""
    compared = [one for one in compared if not any(word in one.value.what for word in _RANGE)]
    differences = [one.difference.mean for one in compared if one.difference is not None]
    if not differences:
        return ""
    covered = [one.covered for one in compared if one.covered is not None]
    low, high = min(differences), max(differences)
    many = f"{len(differences)} published values are" if len(differences) > 1 else "One published value is"
    inside = f"{sum(covered)} of {len(covered)} lie in our interval" if covered else "too few runs for an interval"
    return f"{many} compared: {inside}; ours - published is {low:+.3f} to {high:+.3f}."


def settings_table(section: Section, layer: str | None = None) -> str:
    """Test AUC and every attack's two-sided leak AUC at the cut by setting."""
    attacks = section.attacks()
    rows = [
        [markdown_text(g.name), len(g.runs), g.interval("test_auc"), *(leak_at(g, a, layer) for a in attacks)]
        for g in section.groups
    ]
    columns = ("setting", "runs", "test AUC", *(f"leak, {markdown_text(attack)}" for attack in attacks))
    return f"{table(columns, rows)}\n\nHere on {markdown_text(scale_of(section))}."


def leak_at(group: Group, attack: str, layer: str | None) -> Any:
    return group.interval(f"leak_two_sided:{attack}", layer)


def spectral_at(group: Group, layer: str) -> Any:
    interval = group.interval("leak_two_sided:spectral", layer)
    return interval if not math.isnan(interval.mean) else None


def plain(value: Any) -> str:
    """JSON values as words."""
    if isinstance(value, Mapping):
        words = [f"{key} {plain(inner)}" for key, inner in value.items() if key != "approximate" and inner is not None]
        return ("about " if value.get("approximate") else "") + ", ".join(words)
    if isinstance(value, list):
        return ", ".join(f"({plain(inner)})" if isinstance(inner, list) else plain(inner) for inner in value)
    return str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *([text_of(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return _PIPE.sub(r"\\|", text).replace("\n", " ")
