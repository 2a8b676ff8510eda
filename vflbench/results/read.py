"""Reads the files of one run's folder, which others may have written: see `vflbench.results.untrusted`.

Each raises FileNotFoundError where there is no such file, and Unreadable for one that can't be read.
"""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vflbench.results.files import CONFIG, ERROR, MANIFEST, METRICS, SUMMARY
from vflbench.results.plain_values import read_json, read_yaml
from vflbench.results.rows import Row, read_rows
from vflbench.results.untrusted import MEGA, Unreadable, read_bytes, read_head, shown

MOST_ERROR = 64_000
"""Bytes of error.txt, of which no more is read."""
_Check = Callable[[Mapping[str, Any]], None]
MOST_METRICS, MOST_ON_PAGE = 1000 * MEGA, 32 * MEGA
"""Bytes of a metrics.csv, and of one whose curves a report draws: some 450,000 rows."""


def read_metrics(folder: Path, most: int = MOST_METRICS) -> list[Row]:
    """All rows of metrics.csv, in the order in which they were written."""
    path = folder / METRICS
    content = read_bytes(path, most)
    try:
        return read_rows(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline=""))
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        what = f"it has no column {error}" if isinstance(error, KeyError) else error
        raise Unreadable(path, what, kind="torn") from error


def read_summary(folder: Path) -> dict[str, Any]:
    from vflbench.results.schema import check_summary  # late: what names a run's files only waits for no schema

    return _checked(folder / SUMMARY, read_json, check_summary)


def read_manifest(folder: Path) -> dict[str, Any]:
    from vflbench.results.schema import check_manifest

    return _checked(folder / MANIFEST, read_json, check_manifest)


def read_config(folder: Path) -> dict[str, Any]:
    from vflbench.results.schema import check_config

    return _checked(folder / CONFIG, read_yaml, check_config)


def read_error(folder: Path) -> str | None:
    """The first paragraph of error.txt, which is for the user; a traceback follows it. None if there is no such file."""
    try:
        text = read_head(folder / ERROR, MOST_ERROR).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(folder / ERROR, error.strerror) from error
    return shown(text.split("\n\n")[0].strip(), 600) or "no message"


def _checked(path: Path, read: Callable[[Path], dict[str, Any]], check: _Check) -> dict[str, Any]:
    content = read(path)
    try:
        check(content)
    except ValueError as error:
        raise Unreadable(path, error) from None
    return content
