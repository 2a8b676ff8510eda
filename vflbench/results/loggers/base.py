"""What a logger is: an adapter that passes a run's measurements on to another tool."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.results.read import read_metrics
from vflbench.results.rows import Row


class Logger:
    """Receives a run's measurements from its beginning to its end. metrics.csv is written with or without loggers.

    A run that was killed and continues calls `begin` again: it deletes what was logged of this folder before, and receives
    all rows that metrics.csv still holds. So no step is logged twice, and no step that was cut off remains.
    """

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """folder: the run's. config: its options, resolved. rows: measured before; none if the run is new."""
        raise NotImplementedError

    def write(self, rows: Sequence[Row]) -> None:
        """Log new measurements."""
        raise NotImplementedError

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run is complete. summary: the content of summary.json; `failed` in it is a reason, or None."""
        raise NotImplementedError

    def stop(self) -> None:
        """The run was stopped or failed before its end. Called only between `begin` and `finish`."""


class Loggers:
    """The chosen loggers, by name. One that raises is left out of the rest of the run, and the run continues."""

    def __init__(self, loggers: Mapping[str, Logger], config: Mapping[str, Any]):
        self.failed: dict[str, str] = {}
        self._loggers, self._config = dict(loggers), config
        self._working: dict[str, Logger] = {}

    def begin(self, folder: Path, manifest: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._say, self._working = say, dict(self._loggers)
        if self._working:
            rows = read_metrics(folder)
            self._each(lambda logger: logger.begin(folder, self._config, manifest, rows))

    def write(self, rows: Sequence[Row]) -> None:
        self._each(lambda logger: logger.write(rows))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._each(lambda logger: logger.finish(summary))
        self._working = {}

    def stop(self) -> None:
        """No more measurements will come. After `finish` this changes nothing."""
        self._each(lambda logger: logger.stop())
        self._working = {}

    def _each(self, call: Callable[[Logger], None]) -> None:
        for name, logger in list(self._working.items()):
            try:
                call(logger)
            except Exception as error:  # a tool of others may raise anything
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self.failed[name] = reason
                del self._working[name]
                self._say(f"logger={name} failed, and is left out of the rest of this run, which goes on: {reason}")


def tag(row: Row) -> str:
    """`leak_auc/train/norm/gradient/a/f1`: metric, split, attack, message, party and layer, as far as they apply.

    Other characters than letters, digits and _-. become _, as MLflow requires.
    """
    parts = (row.metric, row.split, row.attack, row.message, row.party, row.layer)
    return "/".join(re.sub(r"[^\w.-]", "_", part) for part in map(str, parts) if part)


def defined(rows: Sequence[Row]) -> list[Row]:
    """Rows whose value is a finite number."""
    return [row for row in rows if row.value is not None and math.isfinite(row.value)]


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers at the top level of a summary."""
    numbers = {key: v for key, v in summary.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}
