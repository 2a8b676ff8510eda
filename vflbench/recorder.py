"""Writes one run's folder; nothing else in a run touches files."""

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vflbench.errors import UserError


@dataclass(frozen=True)
class Row:
    """One line of metrics.csv. Empty where a column does not apply."""

    epoch: int
    split: str
    party: str = ""
    layer: str = ""
    message: str = ""
    attack: str = ""
    metric: str = ""
    value: float = math.nan
    ci_low: float | None = None
    ci_high: float | None = None
    visible: bool | None = None


COLUMNS = tuple(field.name for field in fields(Row))


class Recorder:
    """A folder that holds config.yaml, manifest.json, metrics.csv, train.log and, at the very end, summary.json.

    quiet: print only what a user must not miss. Nothing is written before `begin`, so that a run which could not start
    leaves the folder to the next. Raises UserError if the folder already holds a run: nothing is overwritten.
    """

    def __init__(self, folder: Path, config: str, manifest: Mapping[str, Any], *, quiet: bool = False):
        self.folder = folder
        self.quiet = quiet
        self._config = config
        self._manifest = {**manifest, "start": _now(), "end": None}
        if (folder / "metrics.csv").exists():
            raise self._taken()

    def begin(self, **facts: Any) -> None:
        """Claim the folder, and write what is known before training."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "metrics.csv").open("x", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(COLUMNS)
        except FileExistsError:
            raise self._taken() from None
        except OSError as error:
            problem = f"results can't be written there: {error.strerror}"
            raise UserError(problem, key="hydra.run.dir", value=self.folder) from error
        self._write("config.yaml", self._config)
        self.note(**facts)

    def _taken(self) -> UserError:
        problem = "this folder already holds a run, which stays as it is; name another"
        return UserError(problem, key="hydra.run.dir", value=self.folder)

    def note(self, **facts: Any) -> None:
        """Add facts to manifest.json."""
        self._manifest.update(facts)
        self._write_json("manifest.json", self._manifest)

    def log(self, line: str) -> None:
        """A line of train.log."""
        with (self.folder / "train.log").open("a") as file:
            file.write(line + "\n")

    def say(self, line: str, *, always: bool = False) -> None:
        """A line of train.log that a person at the terminal sees as well; `always`, also without a terminal."""
        self.log(line)
        if always or not self.quiet:
            tqdm.write(line)

    def write(self, rows: Iterable[Row]) -> None:
        """Append to metrics.csv; on disk when this returns."""
        with (self.folder / "metrics.csv").open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([_cell(v) for v in astuple(row)] for row in rows)
            file.flush()
            os.fsync(file.fileno())

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run is complete, pictures and all: close the manifest, then write summary.json."""
        self.note(end=_now())
        self._write_json("summary.json", summary)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n")

    def _write(self, name: str, text: str) -> None:
        """All of it or nothing, also through a crash."""
        temporary = self.folder / f".{name}.tmp"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / name)


def _cell(value: Any) -> Any:
    if value is None or value != value:  # None or nan: there is no such number
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _without_nan(value: Any) -> Any:
    """JSON has no nan: null stands for it."""
    if isinstance(value, Mapping):
        return {key: _without_nan(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
