"""Loggers receive every row once, whatever becomes of the run, and no logger costs it anything."""

import json
import math
from importlib.util import find_spec
from unittest.mock import create_autospec

import pytest

from vflbench.results.loggers import Logger, Mlflow, Tensorboard
from vflbench.results.recorder import Recorder
from vflbench.results.schema import MetricRow, Summary


def memory():
    """A logger that keeps its calls."""
    return create_autospec(Logger, instance=True)


def heard(logger):
    """Calls, with the values of the rows or the summary that came last in them."""
    calls = [(call, arguments[-1:]) for call, arguments, _ in logger.method_calls]
    return [
        (call, *(one.written() if isinstance(one, Summary) else [row.value for row in one] for one in last))
        for call, last in calls
    ]


def recorder_with(folder, **loggers):
    recorder = Recorder(folder, "", {"vflbench": "1"}, quiet=True)
    recorder.loggers, recorder.options = loggers, {"seed": 3, "model": {"_target_": "x.Y", "width": 16}}
    return recorder


def rows(epoch, value):
    undefined = MetricRow(epoch, "test", metric="auc", value=math.nan)
    leak = MetricRow(epoch, "train", "a", "f1", "gradient", "norm", "leak_auc", 1 - value)
    return [MetricRow(epoch, "train", metric="loss", value=value), leak, undefined]


def killed_and_resumed(folder, make):
    """A run that is stopped in its second epoch, and goes on from the first with another logger of the same kind."""
    first, second = make(), make()
    killed = recorder_with(folder, logger=first)
    killed.begin()
    killed.write(rows(0, 0.5))
    length = killed.length
    killed.write(rows(1, 0.875))
    killed.stop()
    killed.stop()
    again = recorder_with(folder, logger=second)
    again.go_on(length, "epoch 1")
    again.write(iter(rows(1, 0.25)))
    again.finish(Summary(test_auc=0.75, failed=None))
    again.stop()
    assert "loggers_failed" not in again.manifest.written()
    return first, second


def test_a_logger_receives_all_rows_and_after_resuming_first_those_that_were_kept(tmp_path):
    first, second = map(heard, killed_and_resumed(tmp_path, memory))
    assert str(first) == str(
        [("begin", []), ("write", [0.5, 0.5, math.nan]), ("write", [0.875, 0.125, math.nan]), ("stop",)]
    )
    end = ("finish", {"test_auc": 0.75, "failed": None})
    assert str(second) == str([("begin", [0.5, 0.5, math.nan]), ("write", [0.25, 0.75, math.nan]), end])


def test_a_logger_that_fails_is_left_out_and_loses_nothing_of_the_run(tmp_path, capsys):
    for fails_at, calls in (("begin", 1), ("write", 2), ("finish", 4)):
        bad, good = memory(), memory()
        getattr(bad, fails_at).side_effect = ConnectionError("the server is away")
        recorder = recorder_with(tmp_path / fails_at, bad=bad, good=good)
        recorder.begin()
        recorder.write(rows(0, 0.5))
        recorder.write(rows(1, 0.25))
        recorder.finish(Summary(test_auc=1.0))
        assert len(bad.method_calls) == calls
        assert [call for call, *_ in good.method_calls] == ["begin", "write", "write", "finish"]
        assert (tmp_path / fails_at / "metrics.csv").read_text().count("loss") == 2
        manifest = json.loads((tmp_path / fails_at / "manifest.json").read_text())
        assert manifest["loggers_failed"] == {"bad": "ConnectionError: the server is away"}
        assert capsys.readouterr().out.count("logger=bad failed") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is an extra")
def test_events_are_read_back_and_a_resumed_run_logs_no_step_twice(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed_and_resumed(tmp_path, Tensorboard)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]} == {
        "loss/train": [(0, 0.5), (1, 0.25)],
        "leak_auc/train/norm/gradient/a/f1": [(0, 0.5), (1, 0.75)],
        "summary/test_auc": [(1, 0.75)],
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is an extra")
@pytest.mark.parametrize("store", ["folder", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_what_a_store_got_is_read_back_and_a_resumed_run_logs_no_step_twice(tmp_path, store):
    for package in ("sqlalchemy", "alembic") if store == "sqlite" else ():
        pytest.importorskip(package, reason="the sqlite store needs sqlalchemy and alembic")
    uri = f"file:{tmp_path / 'store'}" if store == "folder" else "auto"
    other = recorder_with(tmp_path / "another", mlflow=Mlflow(uri=uri))
    other.begin()
    other.stop()
    killed_and_resumed(tmp_path / "it's a run", lambda: Mlflow(uri=uri))
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
