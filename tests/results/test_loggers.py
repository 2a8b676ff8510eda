import json

from vflbench.results.loggers import Logger
from vflbench.results.recorder import Recorder
from vflbench.results.schema import MetricRow, Summary


class Memory(Logger):
    """A logger that keeps its calls. fails_at: the call that raises."""

    def __init__(self, fails_at=""):
        self.fails_at, self.calls = fails_at, []

    def _note(self, call, *what):
        if call == self.fails_at:
            raise ConnectionError("the server is away")
        self.calls.append((call, *what))

    def begin(self, folder, config, manifest, rows):
        self._note("begin", [row.value for row in rows])

    def write(self, rows):
        self._note("write", [row.value for row in rows])

    def finish(self, summary):
        self._note("finish", summary.written())

    def stop(self):
        self._note("stop")


def recorder_with(folder, **loggers):
    recorder = Recorder(folder, "", {}, quiet=True)
    recorder.loggers = loggers
    return recorder


def loss(epoch, value):
    return MetricRow(epoch, "train", metric="loss", value=value)


def test_a_logger_receives_all_rows_and_after_resuming_first_those_that_were_kept(tmp_path):
    first, second = Memory(), Memory()
    recorder = recorder_with(tmp_path, first=first)
    recorder.begin()
    recorder.write([loss(0, 0.5)])
    length = recorder.length
    recorder.write([loss(1, 0.75)])
    recorder.stop()
    recorder.stop()
    again = recorder_with(tmp_path, second=second)
    again.go_on(length, "epoch 1")
    again.write(row for row in [loss(1, 0.25)])
    again.finish(Summary(test_auc=1.0))
    again.stop()
    assert first.calls == [("begin", []), ("write", [0.5]), ("write", [0.75]), ("stop",)]
    assert second.calls == [("begin", [0.5]), ("write", [0.25]), ("finish", {"test_auc": 1.0})]


def test_a_logger_that_fails_is_left_out_and_loses_nothing_of_the_run(tmp_path, capsys):
    for fails_at, heard in (("begin", 0), ("write", 1), ("finish", 3)):
        bad, good = Memory(fails_at), Memory()
        recorder = recorder_with(tmp_path / fails_at, bad=bad, good=good)
        recorder.begin()
        recorder.write([loss(0, 0.5)])
        recorder.write([loss(1, 0.25)])
        recorder.finish(Summary(test_auc=1.0))
        assert len(bad.calls) == heard
        assert [call for call, *_ in good.calls] == ["begin", "write", "write", "finish"]
        assert (tmp_path / fails_at / "metrics.csv").read_text().count("loss") == 2
        manifest = json.loads((tmp_path / fails_at / "manifest.json").read_text())
        assert manifest["loggers_failed"] == {"bad": "ConnectionError: the server is away"}
        assert capsys.readouterr().out.count("logger=bad failed") == 1
