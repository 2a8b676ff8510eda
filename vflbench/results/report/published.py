"""What a section's experiment came to elsewhere, beside what it came to here."""

import math
from typing import Any

from vflbench.numerics.interval import Interval, mean_interval
from vflbench.results.report import quantity
from vflbench.results.report.groups import Group, bounded
from vflbench.results.report.reproductions import PublishedExperiment, Value
from vflbench.results.report.sections import Section
from vflbench.results.report.tables import Table

NOT_HERE = "not available here"


def published_table(section: Section, experiment: PublishedExperiment) -> Table:
    """Theirs, ours, ours minus theirs; no rows where the experiment lists no values."""
    rows = [[v.what, *_row(v, section), v.data or experiment.data] for v in experiment.values]
    columns = ("what", "published", "here", "runs", "here - published", "published for")
    note = " ".join(
        part
        for part in (
            f"Published on {experiment.data}, {experiment.scale}." if experiment.data else "",
            f"Here on {scale_of(section)}.",
            experiment.note,
        )
        if part
    )
    return Table(f"{section.slug}_published", "Beside the published values", columns, rows, note)


def _row(value: Value, section: Section) -> list[Any]:
    theirs = NOT_HERE if value.number is None else float(value.number)
    ours, runs = _ours(value, section)
    difference: Interval | None = None
    if value.number is not None and not math.isnan(ours.mean):
        difference = Interval(ours.mean - value.number, ours.low - value.number, ours.high - value.number)
    return [theirs, ours if runs else "not measured here", runs, difference]


def _ours(value: Value, section: Section) -> tuple[Interval, int]:
    if value.quantity is None:
        return mean_interval([]), 0
    groups = [g for g in section.groups if all(_is_so(g, key, wanted) for key, wanted in value.options.items())]
    runs = [run for g in groups for run in g.runs] if len(groups) == 1 else []
    numbers = [quantity.value(run, value.quantity, section.layer) for run in runs]
    numbers = [number for number in numbers if not math.isnan(number)]
    return bounded(value.quantity, mean_interval(numbers)), len(numbers)


def _is_so(group: Group, key: str, wanted: Any) -> bool:
    """`defense` and `attack` are compared by the names that were chosen."""
    found = group.runs[0].option(key)
    if key in ("defense", "attack"):
        return ("+".join(found or {}) or "none") == wanted
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return float(found) == float(wanted)
    return bool(found == wanted)


def scale_of(section: Section) -> str:
    """The data of a section in words: rows, epochs, batches, seeds."""
    data = [run.manifest.get("data") or {} for run in section.runs]
    rows = sorted({int(d["train_rows"]) for d in data if isinstance(d.get("train_rows"), int)})
    told = [section.title.rpartition(" on ")[2]]
    told += [f"{_span(rows)} training rows"] if rows else []
    epochs = sorted({int(e) for run in section.runs if isinstance(e := run.summary.get("epochs"), int)})
    told += [f"{_span(epochs)} epochs"] if epochs else []
    batches = sorted({b for run in section.runs if isinstance(b := run.manifest.get("batch_size"), int)})
    told += [f"batches of {_span(batches)}"] if batches else []
    return ", ".join([*told, f"{len({s for g in section.groups for s in g.seeds})} seeds"])


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
