"""What a logger is: someone else's tool that is told what a run measures."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vflbench.results.read import read_metrics


class Measured(Protocol):
    """One row of metrics.csv, being written or read back; value is nan where there is no such number."""

    epoch: int
    split: str
    party: str
    layer: str
    message: str
    attack: str
    metric: str
    value: float


class Logger:
    """Told of a run from its beginning to its end. metrics.csv is written whether there are loggers or not.

    A run that is killed and goes on begins again here: `begin` forgets what was logged of this folder before, and is handed
    all rows that metrics.csv still holds. So no step is ever logged twice, and none that was cut off remains.
    """

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Mapping[str, Any], rows: Sequence[Measured]) -> None:
        """folder: the run's. config: its options, resolved. rows: measured before; none if the run is new."""
        raise NotImplementedError

    def write(self, rows: Sequence[Measured]) -> None:
        """More was measured."""
        raise NotImplementedError

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run came to its end. summary: what summary.json holds; `failed` in it is a reason, or None."""
        raise NotImplementedError

    def stop(self) -> None:
        """The run was stopped or failed before its end. Only called between `begin` and `finish`."""


class Loggers:
    """Those chosen, by name. One that fails is left out of the rest of the run, and the run goes on."""

    def __init__(self, loggers: Mapping[str, Logger], config: Mapping[str, Any]):
        self.failed: dict[str, str] = {}
        self._loggers, self._config = dict(loggers), config
        self._working: dict[str, Logger] = {}

    def begin(self, folder: Path, manifest: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._say, self._working = say, dict(self._loggers)
        if self._working:
            rows = read_metrics(folder)
            self._each(lambda logger: logger.begin(folder, self._config, manifest, rows))

    def write(self, rows: Sequence[Measured]) -> None:
        self._each(lambda logger: logger.write(rows))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._each(lambda logger: logger.finish(summary))
        self._working = {}

    def stop(self) -> None:
        """Nothing is to be told any more; after `finish` this changes nothing."""
        self._each(lambda logger: logger.stop())
        self._working = {}

    def _each(self, call: Callable[[Logger], None]) -> None:
        for name, logger in list(self._working.items()):
            try:
                call(logger)
            except Exception as error:  # whatever someone else's tool does
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self.failed[name] = reason
                del self._working[name]
                self._say(f"logger={name} failed, and is left out of the rest of this run, which goes on: {reason}")


def tag(row: Measured) -> str:
    """`leak_auc/train/norm/gradient/a/f1`: metric, split, attack, message, party and layer, as far as they apply.

    What is neither a letter, a digit nor one of _-. becomes _, as MLflow wants it.
    """
    parts = (row.metric, row.split, row.attack, row.message, row.party, row.layer)
    return "/".join(re.sub(r"[^\w.-]", "_", part) for part in map(str, parts) if part)


def defined(rows: Sequence[Measured]) -> list[Measured]:
    """Rows whose value is a number."""
    return [row for row in rows if row.value is not None and math.isfinite(row.value)]


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The plain numbers of a summary."""
    numbers = {key: v for key, v in summary.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}
