"""Reads one run's folder back; needs nothing that trains."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One row of metrics.csv; nan where a number is missing. visible is None where it does not apply."""

    epoch: int
    split: str
    party: str
    layer: str
    message: str
    attack: str
    metric: str
    value: float
    ci_low: float
    ci_high: float
    visible: bool | None


def read_metrics(folder: Path) -> list[Measurement]:
    """All rows, in the order they were written."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [_measurement(row) for row in csv.DictReader(file)]


def read_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def _measurement(row: dict[str, str]) -> Measurement:
    numbers = {name: float(row[name]) if row[name] else math.nan for name in ("value", "ci_low", "ci_high")}
    texts = {name: row[name] for name in ("split", "party", "layer", "message", "attack", "metric")}
    return Measurement(
        epoch=int(row["epoch"]), **texts, **numbers, visible={"true": True, "false": False}.get(row["visible"])
    )
