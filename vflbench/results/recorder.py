"""Writes one run's folder; nothing else in a run touches files."""

import csv
import io
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import InitVar, astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, process_time
from typing import IO, Any

import numpy
import yaml
from tqdm import tqdm

from vflbench.errors import UserError
from vflbench.files import in_a_line, open_to_write, remove_temporaries, written_whole
from vflbench.results import folder as files
from vflbench.results.loggers import Logger
from vflbench.results.schema import FORMAT, HEADER, Manifest, MetricRow, Summary
from vflbench.results.terminal import wrapped

SECONDS = {True: 1.0, False: 10.0}
"""Between looks at how far a run has come: on a terminal, and where there is none."""
_LINE = "{desc}, {elapsed} so far, about {remaining} of "


class Meter:
    """How far a run has come, on stderr: a bar on a terminal, elsewhere lines.

    Nothing that a run computes depends on it: the clock decides when a line is printed, and never a number.

    bar: of the batches that were trained on, or read. seconds: of phases, `train`, and of attacks, `audit/norm`: those of
    the clock and the CPU seconds of this process. A phase is without those within it, but for its attacks.
    """

    def __init__(self) -> None:
        self.bar, self._epoch, self._doing, self._start = tqdm(disable=True), "", ("", ""), perf_counter()
        self.seconds: dict[str, list[float]] = {}

    def epoch(self, number: int, epochs: int, *, batches: int, seconds: dict[str, list[float]]) -> None:
        """An epoch, counted from 0, begins or goes on. batches: that are still to come, of all epochs. seconds: to which
        those of this epoch are added.
        """
        self._epoch, self.seconds, self.bar.total = f"epoch {number + 1}/{epochs}: ", seconds, self.bar.n + batches

    @contextmanager
    def phase(self, name: str, what: str) -> Iterator[None]:
        """While entered, `what` is shown as the work in hand, and seconds are added up under the name."""
        outer, wall, cpu = self._doing, perf_counter(), process_time()
        since = "" if name == "train" else f" since {tqdm.format_interval(wall - self._start)}"
        self._doing = name, f"{self._epoch}{what}{since}"
        self.bar.set_description_str(self._doing[1], refresh=False)
        try:
            yield
        finally:
            took = perf_counter() - wall, process_time() - cpu
            for key, sign in ((name, 1), (outer[0], -1)):
                if key and not name.startswith(f"{key}/"):
                    self.seconds[key] = [a + sign * b for a, b in zip(self.seconds.get(key, (0.0, 0.0)), took, strict=True)]
            self._doing = outer
            self.bar.set_description_str(outer[1], refresh=False)

    @contextmanager
    def running(self, *, shown: bool = True, of: str = "training") -> Iterator[None]:
        """While entered, it is shown, if `shown`: `epoch 12/30: training, 12:10 so far, about 27:03 of training left`.

        A thread does so, as one attack may take long. of: what the batches are part of.
        """
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        form = "{percentage:3.0f}%|{bar}| " * is_terminal + f"{_LINE}{of} left"
        how: dict[str, Any] = {"file": sys.stderr if is_terminal else _Lines(), "disable": not shown, "leave": False}
        how |= {"mininterval": math.inf, "delay": SECONDS[is_terminal], "bar_format": form, "dynamic_ncols": is_terminal}
        over, self._start = Event(), perf_counter()
        thread = Thread(target=self._look, args=(over, SECONDS[is_terminal]), daemon=True)
        with tqdm(desc="reading the data", **how) as self.bar:
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()
                self.bar.clear()

    def _look(self, over: Event, seconds: float) -> None:
        while not over.wait(seconds):
            self.bar.refresh()


class _Lines(io.StringIO):
    """Lines on stderr where there is no terminal."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # nobody reads it any more
            print(text.strip(), end="\n" * bool(text.strip()), file=sys.stderr, flush=True)
        return len(text)


@dataclass
class Recorder:
    """A folder with config.yaml, manifest.json, metrics.csv, train.log, loss.log and, of a complete run, summary.json.

    Nothing is written before `begin` or `go_on`: a run that can't start leaves the folder as it was.

    quiet: print only the lines that a user must not miss. overwrite: delete the log of an earlier run together with its
    results. begun: whether something was written. bar: whether training shows how far it has come; a sweep does so for all
    runs. whose: stands before what is printed of a run that belongs to another.
    loggers: by name, called after everything is on disk; one that raises is left out of the rest of the run, which goes on.
    options: resolved, for loggers. meter: how far it has come.
    """

    folder: Path
    config: str
    given: InitVar[Mapping[str, Any] | Manifest]
    quiet: bool = False
    overwrite: bool = False
    bar: bool = True
    whose: str = ""
    begun: bool = field(default=False, init=False)
    loggers: Mapping[str, Logger] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self, given: Mapping[str, Any] | Manifest) -> None:
        self._given = Manifest.model_validate(given)
        start = datetime.now(UTC).isoformat(timespec="seconds")
        self.manifest = self._given.model_copy(update={"format": FORMAT, "start": start, "end": None})
        self._logging: dict[str, Logger] = {}

    def sibling(self, name: str, **options: Any) -> "Recorder":
        """The recorder of a run that belongs to this one, in a folder of this folder, with other options."""
        config = yaml.safe_dump({**(yaml.safe_load(self.config) or {}), **options}, sort_keys=False)
        return Recorder(self.folder / name, config, self._given, True, self.overwrite, self.bar, f"{self.whose}{name} run: ")

    @property
    def is_of_same_origin(self) -> bool:
        """Whether what is in the folder was made by the same code, plug-ins and data, as far as its manifest says."""
        return files.recorded_manifest(self.folder).identity == self._given.identity

    def earlier_summary(self) -> Summary | None:
        """The summary of a run that was finished in this folder before; None if there is none, or with `overwrite`.

        None also if it is of another origin: as beside a run that was begun anew, and stopped before it came here.
        """
        there = files.is_finished(self.folder) and self.is_of_same_origin and not self.overwrite
        return files.read_summary(self.folder) if there else None

    @property
    def length(self) -> int:
        """Bytes of metrics.csv; 0 if there is none."""
        return (self.folder / files.METRICS).stat().st_size if files.is_begun(self.folder) else 0

    def ends_a_line(self, length: Any) -> bool:
        """Whether metrics.csv has so many bytes, or more, and a line ends there."""
        written = (self.folder / files.METRICS).read_bytes() if files.is_begun(self.folder) else b""
        return type(length) is int and length > 0 and written[length - 1 : length] == b"\n"

    def begin(self, **facts: Any) -> None:
        """Delete an earlier run's results and error.txt, and write what is known before training.

        metrics.csv comes last: a folder without it holds no run.
        """
        self.begun = True
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_temporaries(self.folder, {*files.RESULTS, *files.MARKS})
            again = self.length > 0 and not self.overwrite
            for name in (*files.RESULTS, files.ERROR, *((files.LOG,) if self.overwrite else ())):
                (self.folder / name).unlink(missing_ok=True)
            self._write(files.CONFIG, self.config)
            self.note(**facts)
            self._write(files.METRICS, HEADER)
            self._begin_logging()
        if again:
            self.say("this run was begun before, but left nothing to go on from; it starts from the beginning", always=True)

    def go_on(self, length: int, place: str, **facts: Any) -> None:
        """Continue a run that was stopped before `place`: metrics.csv is cut back to the length it had then."""
        self.begun = True
        remove_temporaries(self.folder, {*files.RESULTS, *files.MARKS})
        (self.folder / files.ERROR).unlink(missing_ok=True)
        with open_to_write(self.folder / files.METRICS, "r+b") as file:
            file.truncate(length)
            os.fsync(file.fileno())
        earlier, now = files.recorded_manifest(self.folder), self.manifest.versions
        changed = [
            f"{name} {old} then, {now.get(name)} now" for name, old in earlier.versions.items() if old != now.get(name)
        ]
        again = {"time": self.manifest.start or "", "place": place} | ({"changed": changed} if changed else {})
        self._write(files.CONFIG, self.config)
        self.note(**facts, start=earlier.start or self.manifest.start, resumed=[*earlier.resumed, again])
        self._begin_logging()
        self.say(f"going on before {place}", always=True)
        if changed:
            self.say(f"not what this run was begun with, so its numbers may differ: {'; '.join(changed)}", always=True)

    def note(self, **facts: Any) -> None:
        """Add facts to manifest.json."""
        for name, value in facts.items():
            setattr(self.manifest, name, value)
        self._write(files.MANIFEST, self.manifest.to_json())

    def log(self, line: str) -> None:
        """Add a line to train.log."""
        with self._writing(), open_to_write(self.folder / files.LOG, "a") as file:
            file.write(line + "\n")

    def say(self, line: str, *, always: bool = False) -> None:
        """Add a line to train.log and print it, unless `quiet` is set; `always`: print it in any case."""
        self.log(line)
        if always or not self.quiet:
            tqdm.write("\n".join(wrapped(f"{self.whose}{line}", "  ")))

    def write(self, rows: Iterable[MetricRow]) -> None:
        """Append to metrics.csv; on disk when this returns."""
        rows = list(rows)
        with self._writing(), open_to_write(self.folder / files.METRICS, "a", newline="") as file:
            write_metric_rows(file, rows)
            file.flush()
            os.fsync(file.fileno())
        self._log("write", rows)

    def write_losses(self, lines: Iterable[str]) -> None:
        """Write loss.log, of all epochs so far; nothing if there are no lines."""
        if text := "".join(f"{line}\n" for line in lines):
            self._write(files.LOSSES, text)

    def keep(self, arrays: Mapping[str, Any]) -> None:
        """Write examples of rebuilt data to reconstructions.npz, in place of those of the epoch before."""
        if arrays:
            with self._writing(), written_whole(self.folder / files.RECONSTRUCTIONS) as file:
                numpy.savez_compressed(file, **arrays)

    def finish(self, summary: Summary, table: Callable[[Summary, Manifest], str] | None = None) -> None:
        """Close the manifest, write table.txt, then summary.json: the run is complete. table: makes its text."""
        self._log("finish", summary)
        self._logging = {}
        self.note(end=datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            if table is not None:
                self._write(files.TABLE, table(summary.as_read(), self.manifest.as_read()))
        except Exception as error:  # no run is lost by its table
            reason = f"{type(error).__name__}: {in_a_line(error, 300)}"
            self.say(f"{files.TABLE} could not be written ({reason}); the results are complete", always=True)
        self._write(files.SUMMARY, summary.to_json())

    def stop(self) -> None:
        """Tell the loggers that no more will come. After `finish` this changes nothing."""
        self._log("stop")
        self._logging = {}

    def _begin_logging(self) -> None:
        self._logging = dict(self.loggers)
        if self._logging:
            from vflbench.results.table import read_metrics  # late: it loads pyarrow

            self._log("begin", self.folder, self.options, self.manifest, read_metrics(self.folder))

    def _log(self, method: str, *what: Any) -> None:
        for name, logger in list(self._logging.items()):
            try:
                getattr(logger, method)(*what)
            except Exception as error:  # a tool of others may raise anything
                del self._logging[name]
                reason = in_a_line(f"{type(error).__name__}: {error}", 300)
                self.note(loggers_failed={**(self.manifest.model_extra or {}).get("loggers_failed", {}), name: reason})
                self.say(
                    f"logger={name} failed, and is left out of the rest of this run, which goes on: {reason}", always=True
                )

    def _write(self, name: str, text: str) -> None:
        """Write the whole file or nothing, even if the machine crashes."""
        with self._writing(), written_whole(self.folder / name, "w") as file:
            file.write(text)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk, or a folder that can't be written, is the user's to mend: one line."""
        try:
            yield
        except OSError as error:
            problem = f"results can't be written there: {error.strerror or error}"
            raise UserError(problem, key="hydra.run.dir", value=self.folder) from error


def write_metric_rows(file: IO[str], rows: Iterable[MetricRow]) -> None:
    """Append lines to a metrics.csv that was opened with newline="": `true` or `false`, and nothing for nan."""
    table = csv.writer(file, lineterminator="\n")
    for row in rows:
        table.writerow([str(v).lower() if isinstance(v, bool) else v if v == v else "" for v in astuple(row)])
