"""Reads the files of one run's folder."""

import json
from pathlib import Path
from typing import Any

from vflbench.results.files import MANIFEST, METRICS, SUMMARY
from vflbench.results.rows import Row, read_rows


def read_metrics(folder: Path) -> list[Row]:
    """All rows of metrics.csv, in the order in which they were written."""
    with (folder / METRICS).open(newline="") as file:
        return read_rows(file)


def read_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / SUMMARY).read_text())


def read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text())
