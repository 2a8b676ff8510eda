"""Rows of metrics.csv: how they are written, and what counts as a leak."""

import csv
from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import IO, Any

from vflbench.results.schema import COLUMNS, HEADER, MetricRow

__all__ = ["COLUMNS", "HEADER", "Row", "readings", "write_rows"]

Row = MetricRow


def readings(rows: Iterable[MetricRow]) -> list[MetricRow]:
    """What leaks count as: each row of `leak_auc_two_sided`, or that of `leak_auc_net` where this is larger."""
    rows = list(rows)
    net = {replace(row, metric="", value=0, ci_low=0, ci_high=0): row for row in rows if row.metric == "leak_auc_net"}
    made = []
    for row in rows:
        if row.metric == "leak_auc_two_sided":
            other = net.get(replace(row, metric="", value=0, ci_low=0, ci_high=0))
            made.append(other if other is not None and other.value > row.value else row)
    return made


def write_rows(file: IO[str], rows: Iterable[MetricRow]) -> None:
    """Append lines to a metrics.csv that was opened with newline=""."""
    csv.writer(file, lineterminator="\n").writerows([_cell(value) for value in astuple(row)] for row in rows)


def _cell(value: Any) -> Any:
    if value is None or value != value:  # nan: there is no such number
        return ""
    return str(value).lower() if isinstance(value, bool) else value
