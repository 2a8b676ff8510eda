"""MLflow: logs a run to a tracking store, a local file by default."""

import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from vflbench.errors import UserError
from vflbench.options import options
from vflbench.places import pip_install
from vflbench.results.loggers.base import Logger, defined, figures, tag
from vflbench.results.rows import Row

_METRICS = 500  # a request; MLflow accepts 1000
_PARAMETERS = 100  # a request; MLflow accepts no more
_LONGEST = 500  # characters of a parameter that every store accepts


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

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Mapping[str, Any], rows: Sequence[Row]) -> None:
        folder = folder.resolve()
        uri = f"sqlite:///{folder.parent / 'mlflow.db'}" if self.uri == "auto" else self.uri
        with _one_at_a_time(uri):
            self._client, experiment = self._open(uri)
            for earlier in self._client.search_runs([experiment], f"tags.folder_id = '{_short(folder)}'"):
                self._client.delete_run(earlier.info.run_id)
            origin = {"folder": folder, "vflbench": manifest.get("vflbench"), "git_commit": manifest.get("git_commit")}
            tags = {"folder_id": _short(folder)} | {name: str(value) for name, value in origin.items()}
            self._run = self._client.create_run(experiment, tags=tags, run_name=folder.name).info.run_id
        self._log_options(config)
        self._last = 0
        self.write(rows)

    def write(self, rows: Sequence[Row]) -> None:
        now = int(time.time() * 1000)
        rows = defined(rows)
        self._last = max([self._last, *(row.epoch for row in rows)])
        self._log([(tag(row), row.value, now, row.epoch) for row in rows])

    def finish(self, summary: Mapping[str, Any]) -> None:
        now = int(time.time() * 1000)
        self._log([(f"summary/{name}", value, now, self._last) for name, value in figures(summary).items()])
        failed = summary.get("failed")
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

        parameters = [Param(name, str(value)[:_LONGEST]) for name, value in _leaves(config, "")]
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


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Every option as `dataset.rows` and its value; `_target_` becomes class."""
    for key, value in node.items():
        name = f"{prefix}{'class' if key == '_target_' else key}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value
