from importlib.util import find_spec

import pytest

from vflbench.results.loggers import Mlflow
from vflbench.results.recorder import Recorder
from vflbench.results.schema import MetricRow, Summary

pytestmark = pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is an extra")


def recorder(folder, uri):
    made = Recorder(folder, "", {"vflbench": "1"}, quiet=True)
    made.loggers, made.options = {"mlflow": Mlflow(uri=uri)}, {"seed": 3, "model": {"_target_": "x.Y", "width": 16}}
    return made


def loss(epoch, value):
    return [MetricRow(epoch, "train", metric="loss", value=value)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("store", ["folder", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_what_was_logged_is_read_back_and_a_resumed_run_logs_no_step_twice(tmp_path, store):
    if store == "sqlite":
        pytest.importorskip("sqlalchemy", reason="the sqlite store needs sqlalchemy and alembic")
        pytest.importorskip("alembic", reason="the sqlite store needs sqlalchemy and alembic")
    uri = f"file:{tmp_path / 'store'}" if store == "folder" else "auto"
    killed = recorder(tmp_path / "it's a run", uri)
    killed.begin()
    killed.write(loss(0, 0.5))
    length = killed.length
    killed.write(loss(1, 0.875))
    other = recorder(tmp_path / "another", uri)
    other.begin()
    other.stop()
    again = recorder(tmp_path / "it's a run", uri)
    again.go_on(length, "epoch 1")
    again.write(loss(1, 0.25))
    again.finish(Summary(test_auc=0.75, failed=None))
    assert "loggers_failed" not in again.manifest.written()

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri if store == "folder" else f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vflbench")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {name: run.info.status for name, run in runs.items()} == {"it's a run": "FINISHED", "another": "KILLED"}
    run = runs["it's a run"]
    history = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss/train")]
    assert sorted(history) == [(0, 0.5), (1, 0.25)]
    assert run.data.metrics["summary/test_auc"] == 0.75
    assert run.data.params == {"seed": "3", "model.class": "x.Y", "model.width": "16"}
    assert run.data.tags["vflbench"] == "1"
