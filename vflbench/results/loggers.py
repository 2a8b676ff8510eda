"""Loggers: adapters that pass a run's measurements on to other tools, MLflow and TensorBoard among them."""

import importlib.util
import math
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock

from vflbench.errors import UserError, pip_install
from vflbench.options import options
from vflbench.results.folder import EVENTS, flat
from vflbench.results.schema import Manifest, MetricRow, Summary

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


def tag(row: MetricRow) -> str:
    """`leak_auc/train/norm/gradient/a/f1`: metric, split, attack, message, party and layer, as far as they apply.

    Other characters than letters, digits and _-. become _, as MLflow requires.
    """
    parts = (row.metric, row.split, row.attack, row.message, row.party, row.layer)
    return "/".join(re.sub(r"[^\w.-]", "_", part) for part in map(str, parts) if part)


class _Scalars(Logger):
    """A tool that takes numbers, each of a tag and a step, which is an epoch.

    PACKAGE: that it needs. last: the epoch of the last number, at which those of the summary stand.
    """

    PACKAGE: ClassVar[str]

    def __post_init__(self) -> None:
        if importlib.util.find_spec(self.PACKAGE) is None:
            problem = f"it needs the package {self.PACKAGE}: {pip_install(self.PACKAGE)}"
            raise UserError(problem, key=f"logger={self.PACKAGE}")
        self.last = 0

    def add(self, values: Sequence[tuple[str, float, int]]) -> None:
        """Log (tag, value, epoch)."""
        raise NotImplementedError

    def write(self, rows: Sequence[MetricRow]) -> None:
        values = [(tag(row), row.value, row.epoch) for row in rows if math.isfinite(row.value)]
        self.last = max([self.last, *(epoch for *_, epoch in values)])
        self.add(values)

    def finish(self, summary: Summary) -> None:
        numbers = {key: v for key, v in summary.written().items() if isinstance(v, int | float) and not isinstance(v, bool)}
        self.add([(f"summary/{key}", float(v), self.last) for key, v in numbers.items() if math.isfinite(v)])


@options
class Mlflow(_Scalars):
    """Parameters, metrics per epoch and the numbers of the summary in an MLflow tracking store.

    uri: the store: `sqlite:///FILE` (needs sqlalchemy and alembic), a folder, or `http://...` of a server; auto:
    mlflow.db beside the runs' folders. experiment: the MLflow experiment that holds the runs. A run that continues replaces
    what was logged of its folder before, which MLflow keeps as deleted. A step is an epoch.

    Source: https://mlflow.org/docs/latest/ml/tracking
    """

    PACKAGE = "mlflow"

    uri: str = "auto"
    experiment: str = "vflbench"

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Manifest, rows: Sequence[MetricRow]) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 refuses a folder without this
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        folder = folder.resolve()
        uri = f"sqlite:///{folder.parent / 'mlflow.db'}" if self.uri == "auto" else self.uri
        tags = {"folder_id": _short(folder), "folder": str(folder)}
        tags |= {"vflbench": str(manifest.vflbench), "git_commit": str(manifest.git_commit)}
        # Runs that begin together must not each create the store or its experiment.
        with FileLock(Path(tempfile.gettempdir()) / f"vflbench-mlflow-{_short(uri)}.lock", timeout=120):
            self._client = MlflowClient(tracking_uri=uri)
            known = self._client.get_experiment_by_name(self.experiment)
            experiment = self._client.create_experiment(self.experiment) if known is None else known.experiment_id
            for earlier in self._client.search_runs([experiment], f"tags.folder_id = '{_short(folder)}'"):
                self._client.delete_run(earlier.info.run_id)
            self._run = self._client.create_run(experiment, tags=tags, run_name=folder.name).info.run_id
        named = [(re.sub(r"\b_target_$", "class", name), str(value)[:_LONGEST]) for name, value in flat(config)]
        self._client.log_batch(self._run, params=[Param(*one) for one in named])
        self.write(rows)

    def add(self, values: Sequence[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, step) for name, value, step in values])

    def finish(self, summary: Summary) -> None:
        super().finish(summary)
        if summary.failed:
            self._client.set_tag(self._run, "failed", summary.failed[:_LONGEST])
        self._client.set_terminated(self._run, "FAILED" if summary.failed else "FINISHED")

    def stop(self) -> None:
        self._client.set_terminated(self._run, "KILLED")


def _short(name: object) -> str:
    """16 hexadecimal digits for a name that MLflow's filters, or file systems, may not accept as it is."""
    return sha256(str(name).encode()).hexdigest()[:16]


@options
class Tensorboard(_Scalars):
    """Scalars per epoch as TensorBoard event files, in the folder `tensorboard` of each run.

    `tensorboard --logdir outputs` shows all runs. A step is an epoch. TensorBoard stores values as float32 and no intervals,
    which are in metrics.csv.

    Source: https://www.tensorflow.org/tensorboard
    """

    PACKAGE = "tensorboard"

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Manifest, rows: Sequence[MetricRow]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        events = folder / EVENTS
        for file in events.glob("events.out.tfevents.*"):  # an earlier run's; what else lies there isn't ours
            file.unlink()
        self._writer = EventFileWriter(str(events))
        self.write(rows)

    def add(self, values: Sequence[tuple[str, float, int]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary as Scalars

        for name, value, step in values:
            scalars = Scalars(value=[Scalars.Value(tag=name, simple_value=value)])
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=scalars))
        self._writer.flush()

    def finish(self, summary: Summary) -> None:
        super().finish(summary)
        self._writer.close()

    def stop(self) -> None:
        self._writer.close()
