"""The published values of a section's experiment beside the values here."""

import math
from typing import Any

from vflbench.numerics.interval import Interval, mean_interval
from vflbench.results.report import quantity
from vflbench.results.report.groups import Group, bounded
from vflbench.results.report.reproductions import PublishedExperiment, Value
from vflbench.results.report.sections import Section
from vflbench.results.report.table_formats import Table

NOT_HERE = "not available here"


def published_table(section: Section, experiment: PublishedExperiment) -> Table:
    """Published value, value here, and the difference; no rows if the experiment lists no values."""
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
    published = NOT_HERE if value.number is None else float(value.number)
    here, runs = _here(value, section)
    difference: Interval | None = None
    if value.number is not None and not math.isnan(here.mean):
        difference = Interval(here.mean - value.number, here.low - value.number, here.high - value.number)
    return [published, here if runs else "not measured here", runs, difference]


def _here(value: Value, section: Section) -> tuple[Interval, int]:
    if value.quantity is None:
        return mean_interval([]), 0
    groups = [g for g in section.groups if all(_has(g, key, wanted) for key, wanted in value.options.items())]
    runs = [run for g in groups for run in g.runs] if len(groups) == 1 else []
    numbers = [quantity.value(run, value.quantity, section.layer) for run in runs]
    numbers = [number for number in numbers if not math.isnan(number)]
    return bounded(value.quantity, mean_interval(numbers)), len(numbers)


def _has(group: Group, key: str, wanted: Any) -> bool:
    """Whether its option has this value; `defense` and `attack` are compared by the chosen names."""
    value = group.runs[0].option(key)
    if key in ("defense", "attack"):
        return ("+".join(value or {}) or "none") == wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return float(value) == float(wanted)
    return bool(value == wanted)


def scale_of(section: Section) -> str:
    """The data of a section in words: rows, epochs, batches, seeds."""
    data = [run.manifest.get("data") or {} for run in section.runs]
    rows = sorted({int(d["train_rows"]) for d in data if isinstance(d.get("train_rows"), int)})
    parts = [section.title.rpartition(" on ")[2]]
    parts += [f"{_span(rows)} training rows"] if rows else []
    epochs = sorted({int(e) for run in section.runs if isinstance(e := run.summary.get("epochs"), int)})
    parts += [_counted(epochs, "epoch")] if epochs else []
    batches = sorted({b for run in section.runs if isinstance(b := run.manifest.get("batch_size"), int)})
    parts += [f"batches of {_span(batches)}"] if batches else []
    seeds = {str(seed) for g in section.groups for seed in g.seeds}
    return ", ".join([*parts, _counted([len(seeds)], "seed")])


def _counted(values: list[int], noun: str) -> str:
    return f"{_span(values)} {noun}{'' if values == [1] else 's'}"


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
