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

import numpy
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


_RESULTS = (
    *("checkpoint.pt", "summary.json", "metrics.csv", "reconstructions.npz"),
    *("auc_per_epoch.png", "leak_per_layer.png", "reconstructions.png"),
)
"""What an earlier run may have left, in the order in which it goes: nothing goes on from half of it."""

COLUMNS = tuple(field.name for field in fields(Row))


class Recorder:
    """A folder that holds config.yaml, manifest.json, metrics.csv, train.log and, at the very end, summary.json.

    quiet: print only what a user must not miss. Nothing is written before `begin` or `go_on`, so that a run which could not
    start leaves the folder as it was. overwrite: the log of an earlier run goes with its results. begun: something was
    written. bar: whether training shows one of its own; a sweep has one for all. loggers: a `Loggers`, told of
    everything after it is on disk; None: nobody else is told.
    """

    def __init__(
        self, folder: Path, config: str, manifest: Mapping[str, Any], *, quiet: bool = False, overwrite: bool = False
    ):
        self.folder = folder
        self.quiet = quiet
        self.overwrite = overwrite
        self.begun = False
        self.bar = True
        self.loggers: Any = None
        self._config = config
        self._manifest = {**manifest, "start": _now(), "end": None}

    @property
    def length(self) -> int:
        """Bytes of metrics.csv; 0 if there is none."""
        path = self.folder / "metrics.csv"
        return path.stat().st_size if path.exists() else 0

    def begin(self, **facts: Any) -> None:
        """Clear the folder of an earlier run's results, and write what is known before training.

        metrics.csv comes last: a folder without it holds no run.
        """
        self.begun = True
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            again = self.length > 0 and not self.overwrite
            for name in (*_RESULTS, *(("train.log",) if self.overwrite else ())):
                (self.folder / name).unlink(missing_ok=True)
            self._write("config.yaml", self._config)
            self.note(**facts)
            self._write("metrics.csv", ",".join(COLUMNS) + "\n")
            self._tell_loggers()
        except OSError as error:
            problem = f"results can't be written there: {error.strerror}"
            raise UserError(problem, key="hydra.run.dir", value=self.folder) from error
        if again:
            self.say("this run was begun before, but left nothing to go on from; it starts from the beginning", always=True)

    def go_on(self, length: int, place: str, **facts: Any) -> None:
        """Take up a run that was stopped before `place`: metrics.csv is cut back to the length it had then."""
        self.begun = True
        with (self.folder / "metrics.csv").open("r+b") as file:
            file.truncate(length)
            os.fsync(file.fileno())
        earlier = self._earlier_manifest()
        resumed = {"time": self._manifest["start"], "place": place}
        changed = [
            f"{name} {old} then, {new} now"
            for name, old, new in zip(*_versions(earlier), _versions(self._manifest)[1], strict=True)
            if old not in (None, new)
        ]
        self._manifest["start"] = earlier.get("start", self._manifest["start"])
        self._manifest["resumed"] = [*earlier.get("resumed", []), resumed | ({"changed": changed} if changed else {})]
        self._write("config.yaml", self._config)
        self.note(**facts)
        self._tell_loggers()
        self.say(f"going on before {place}", always=True)
        if changed:
            self.say(f"not what this run was begun with, so its numbers may differ: {'; '.join(changed)}", always=True)

    def _tell_loggers(self) -> None:
        if self.loggers is not None:
            self.loggers.begin(self.folder, self._manifest, lambda line: self.say(line, always=True))

    def _earlier_manifest(self) -> Mapping[str, Any]:
        try:
            earlier = json.loads((self.folder / "manifest.json").read_text())
        except (OSError, ValueError):
            return {}
        return earlier if isinstance(earlier, dict) else {}

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
        rows = list(rows)
        with (self.folder / "metrics.csv").open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([_cell(v) for v in astuple(row)] for row in rows)
            file.flush()
            os.fsync(file.fileno())
        if self.loggers is not None:
            self.loggers.write(rows)

    def progress_bar(self, what: str, rows: int) -> tqdm:
        """A bar of so many rows, where stderr is a terminal and `bar` is set."""
        silent = None if self.bar else True
        return tqdm(total=rows, desc=what, unit="row", unit_scale=True, disable=silent, leave=False)

    def keep(self, arrays: Mapping[str, Any]) -> None:
        """Examples of what attacks rebuilt, as reconstructions.npz, in place of those of the epoch before."""
        if arrays:
            temporary = self.folder / ".reconstructions.npz.tmp"
            with temporary.open("wb") as file:
                numpy.savez_compressed(file, **arrays)
            temporary.replace(self.folder / "reconstructions.npz")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run is complete, pictures and all: close the manifest, then write summary.json."""
        if self.loggers is not None:
            self.loggers.finish(summary)
            self.note(**({"loggers_failed": self.loggers.failed} if self.loggers.failed else {}))
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


def _versions(manifest: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names, and which of each a run is computed by; None where its manifest does not say."""
    versions = manifest.get("versions") or {}
    named = {"vflbench": manifest.get("vflbench"), "commit": manifest.get("git_commit"), "torch": versions.get("torch")}
    return tuple(named), tuple(named.values())


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
