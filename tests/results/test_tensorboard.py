import math

import pytest

from vflbench.results.recorder import Recorder
from vflbench.results.schema import MetricRow, Summary

pytest.importorskip("tensorboard", reason="tensorboard is an extra")

from vflbench.results.loggers import Tensorboard


def recorder(folder):
    made = Recorder(folder, "", {}, quiet=True)
    made.loggers = {"tensorboard": Tensorboard()}
    return made


def rows(epoch, value):
    undefined = MetricRow(epoch, "test", metric="auc", value=math.nan)
    return [
        MetricRow(epoch, "train", metric="loss", value=value),
        MetricRow(epoch, "train", "a", "f1", "gradient", "norm", "leak_auc", 1 - value),
        undefined,
    ]


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_logged_is_read_back_and_a_resumed_run_logs_no_step_twice(tmp_path):
    killed = recorder(tmp_path)
    killed.begin()
    killed.write(rows(0, 0.5))
    length = killed.length
    killed.write(rows(1, 0.875))
    killed.stop()
    again = recorder(tmp_path)
    again.go_on(length, "epoch 1")
    again.write(rows(1, 0.25))
    again.finish(Summary(test_auc=0.75, failed=None))
    assert scalars(tmp_path) == {
        "loss/train": [(0, 0.5), (1, 0.25)],
        "leak_auc/train/norm/gradient/a/f1": [(0, 0.5), (1, 0.75)],
        "summary/test_auc": [(1, 0.75)],
    }
