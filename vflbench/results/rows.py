"""A row of metrics.csv: the one type for a measurement, from the run that writes it to the report that reads it."""

import csv
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from typing import IO, Any, TextIO


@dataclass(frozen=True)
class Row:
    """One measurement. A column that does not apply is empty: "", nan or, for `visible`, None.

    epoch: from 0. split: train | test, or a phase of the run. party, layer: where it was measured. message: what was read,
    embedding | gradient | ...; none for an attack that reads no message. metric: what `value` is. ci_low, ci_high: its 95 %
    interval. visible: whether an attacker sees this layer.
    """

    epoch: int
    split: str
    party: str = ""
    layer: str = ""
    message: str = ""
    attack: str = ""
    metric: str = ""
    value: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    visible: bool | None = None


def readings(rows: Iterable[Row]) -> list[Row]:
    """What leaks count as: each row of `leak_auc_two_sided`, or that of `leak_auc_net` where this is larger."""
    rows = list(rows)
    net = {replace(row, metric="", value=0, ci_low=0, ci_high=0): row for row in rows if row.metric == "leak_auc_net"}
    made = []
    for row in rows:
        if row.metric == "leak_auc_two_sided":
            other = net.get(replace(row, metric="", value=0, ci_low=0, ci_high=0))
            made.append(other if other is not None and other.value > row.value else row)
    return made


COLUMNS = tuple(field.name for field in fields(Row))
HEADER = ",".join(COLUMNS) + "\n"
"""The first line of metrics.csv."""
_MOST_EPOCHS = 1_000_000


def write_rows(file: IO[str], rows: Iterable[Row]) -> None:
    """Append lines to a metrics.csv that was opened with newline=""."""
    csv.writer(file, lineterminator="\n").writerows([_cell(value) for value in astuple(row)] for row in rows)


def read_rows(file: TextIO) -> list[Row]:
    """All rows in the order of the file, which was opened with newline="". Raises ValueError or KeyError."""
    return [_row(line) for line in csv.DictReader(file)]


def _cell(value: Any) -> Any:
    if value is None or value != value:  # nan: there is no such number
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _row(line: dict[str, str]) -> Row:
    epoch = int(line["epoch"])
    if not 0 <= epoch <= _MOST_EPOCHS:
        raise ValueError("an epoch in it is no number from 0 to a million")
    return Row(
        epoch=epoch,
        split=line["split"],
        party=line["party"],
        layer=line["layer"],
        message=line["message"],
        attack=line["attack"],
        metric=line["metric"],
        value=_number(line["value"]),
        ci_low=_number(line["ci_low"]),
        ci_high=_number(line["ci_high"]),
        visible={"true": True, "false": False}.get(line["visible"]),
    )


def _number(cell: str) -> float:
    return float(cell) if cell else math.nan
