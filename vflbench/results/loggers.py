"""Loggers: adapters that pass a run's measurements on to other tools, MLflow and TensorBoard among them."""

import importlib.util
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from vflbench.errors import UserError
from vflbench.options import options
from vflbench.places import pip_install
from vflbench.results.folder import EVENTS, flat, read_metrics
from vflbench.results.schema import Manifest, MetricRow, Summary

_METRICS = 500  # a request; MLflow accepts 1000
_PARAMETERS = 100  # a request; MLflow accepts no more
_LONGEST = 500  # characters of a parameter that every store accepts


class Logger:
    """Receives a run's measurements from its beginning to its end. metrics.csv is written with or without loggers.

    A run that was killed and continues calls `begin` again: it deletes what was logged of this folder before, and receives
    all rows that metrics.csv still holds. So no step is logged twice, and no step that was cut off remains.
    """

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Manifest, rows: Sequence[MetricRow]) -> None:
        """folder: the run's. config: its options, resolved. rows: measured before; none if the run is new."""
        raise NotImplementedError

    def write(self, rows: Sequence[MetricRow]) -> None:
        """Log new measurements."""
        raise NotImplementedError

    def finish(self, summary: Summary) -> None:
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

    def begin(self, folder: Path, manifest: Manifest, say: Callable[[str], None]) -> None:
        self._say, self._working = say, dict(self._loggers)
        if self._working:
            rows = read_metrics(folder)
            self._each(lambda logger: logger.begin(folder, self._config, manifest, rows))

    def write(self, rows: Sequence[MetricRow]) -> None:
        self._each(lambda logger: logger.write(rows))

    def finish(self, summary: Summary) -> None:
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


def tag(row: MetricRow) -> str:
    """`leak_auc/train/norm/gradient/a/f1`: metric, split, attack, message, party and layer, as far as they apply.

    Other characters than letters, digits and _-. become _, as MLflow requires.
    """
    parts = (row.metric, row.split, row.attack, row.message, row.party, row.layer)
    return "/".join(re.sub(r"[^\w.-]", "_", part) for part in map(str, parts) if part)


def defined(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """Rows whose value is a finite number."""
    return [row for row in rows if row.value is not None and math.isfinite(row.value)]


def figures(summary: Summary) -> dict[str, float]:
    """The finite numbers at the top level of a summary."""
    numbers = {key: v for key, v in summary.written().items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}


@options
class Mlflow(Logger):
    """Parameters, metrics per epoch and the numbers of the summary in an MLflow tracking store.

    uri: the store: `sqlite:///FILE` (needs sqlalchemy and alembic), a folder, or `http://...` of a server; auto:
    mlflow.db beside the runs' folders. experiment: the MLflow experiment that holds the runs. A run that continues replaces
    what was logged of its folder before, which MLflow keeps as deleted. A step is an epoch.

    Source: https://mlflow.org/docs/latest/ml/tracking
    """

    uri: str = "auto"
    experiment: str = "vflbench"

    def __post_init__(self) -> None:
        if importlib.util.find_spec("mlflow") is None:
            raise UserError(f"it needs the package mlflow: {pip_install('mlflow')}", key="logger=mlflow")

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Manifest, rows: Sequence[MetricRow]) -> None:
        folder = folder.resolve()
        uri = f"sqlite:///{folder.parent / 'mlflow.db'}" if self.uri == "auto" else self.uri
        with _one_at_a_time(uri):
            self._client, experiment = self._open(uri)
            for earlier in self._client.search_runs([experiment], f"tags.folder_id = '{_short(folder)}'"):
                self._client.delete_run(earlier.info.run_id)
            origin = {"folder": folder, "vflbench": manifest.vflbench, "git_commit": manifest.git_commit}
            tags = {"folder_id": _short(folder)} | {name: str(value) for name, value in origin.items()}
            self._run = self._client.create_run(experiment, tags=tags, run_name=folder.name).info.run_id
        self._log_options(config)
        self._last = 0
        self.write(rows)

    def write(self, rows: Sequence[MetricRow]) -> None:
        now = int(time.time() * 1000)
        rows = defined(rows)
        self._last = max([self._last, *(row.epoch for row in rows)])
        self._log([(tag(row), row.value, now, row.epoch) for row in rows])

    def finish(self, summary: Summary) -> None:
        now = int(time.time() * 1000)
        self._log([(f"summary/{name}", value, now, self._last) for name, value in figures(summary).items()])
        failed = summary.failed
        if failed:
            self._client.set_tag(self._run, "failed", str(failed)[:_LONGEST])
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")

    def stop(self) -> None:
        self._client.set_terminated(self._run, "KILLED")

    def _open(self, uri: str) -> tuple[Any, str]:
        """A client and the experiment's id."""
        if "://" not in uri or uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 refuses a folder without this
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        existing = client.get_experiment_by_name(self.experiment)
        return client, existing.experiment_id if existing is not None else client.create_experiment(self.experiment)

    def _log_options(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        parameters = [Param(re.sub(r"\b_target_$", "class", name), str(value)[:_LONGEST]) for name, value in flat(config)]
        for start in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(self._run, params=parameters[start : start + _PARAMETERS])

    def _log(self, values: Sequence[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(values), _METRICS):
            self._client.log_batch(self._run, metrics=[Metric(*value) for value in values[start : start + _METRICS]])


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Keep runs that begin together from each creating the store or its experiment."""
    with FileLock(Path(tempfile.gettempdir()) / f"vflbench-mlflow-{_short(uri)}.lock", timeout=120):
        yield


def _short(name: object) -> str:
    """16 hexadecimal digits for a name that MLflow's filters, or file systems, may not accept as it is."""
    return sha256(str(name).encode()).hexdigest()[:16]


@options
class Tensorboard(Logger):
    """Scalars per epoch as TensorBoard event files, in the folder `tensorboard` of each run.

    `tensorboard --logdir outputs` shows all runs. A step is an epoch. TensorBoard stores values as float32 and no intervals,
    which are in metrics.csv.

    Source: https://www.tensorflow.org/tensorboard
    """

    def __post_init__(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError(f"it needs the package tensorboard: {pip_install('tensorboard')}", key="logger=tensorboard")

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Manifest, rows: Sequence[MetricRow]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        events = folder / EVENTS
        for file in events.glob("events.out.tfevents.*"):  # an earlier run's; what else lies there isn't ours
            file.unlink()
        self._writer = EventFileWriter(str(events))
        self._last = 0
        self.write(rows)

    def write(self, rows: Sequence[MetricRow]) -> None:
        for row in defined(rows):
            self._add(tag(row), row.value, row.epoch)
            self._last = max(self._last, row.epoch)
        self._writer.flush()

    def finish(self, summary: Summary) -> None:
        for name, value in figures(summary).items():
            self._add(f"summary/{name}", value, self._last)
        self._writer.close()

    def stop(self) -> None:
        self._writer.close()

    def _add(self, name: str, value: float, step: int) -> None:
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.compat.proto.event_pb2 import Event

        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=name, simple_value=value)])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
