"""Each file of a run's folder is written whole, in an order that never leaves half a result, and read back as it was.

How far a run has come is shown on stderr: the time left follows from the batches so far, and decides no number.
"""

import errno
import io
import json
import math
import os
import re
import sys
from dataclasses import astuple

import pytest

from vflbench.errors import UserError
from vflbench.results import recorder as recording
from vflbench.results.recorder import Meter, Recorder
from vflbench.results.schema import HEADER, LeakRecord, MetricRow, Summary
from vflbench.results.table import read_metrics

LOSS = [MetricRow(0, "train", metric="loss", value=1.0)]


def test_summary_comes_last_and_is_strict_json_and_the_loss_log_is_written_whole_where_there_are_lines(tmp_path):
    recorder = Recorder(tmp_path, "", {"seed": 0})
    recorder.begin(device="cpu")
    assert json.loads((tmp_path / "manifest.json").read_text())["end"] is None
    recorder.write_losses([])
    assert not (tmp_path / "summary.json").exists()
    assert not (tmp_path / "loss.log").exists()
    for lines in (["epoch 0"], ["epoch 0", "epoch 1"]):
        recorder.write_losses(iter(lines))
        assert (tmp_path / "loss.log").read_text().splitlines() == lines
    recorder.finish(Summary(test_auc=math.nan, leaks=[LeakRecord(coin=math.inf)], train_auc=0.1 + 0.2))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["end"] >= manifest["start"]
    assert manifest["device"] == "cpu"
    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary == {"test_auc": None, "leaks": [{"coin": None}], "train_auc": 0.1 + 0.2}


def test_a_new_run_deletes_what_an_earlier_one_left_and_nothing_else(tmp_path):
    first = Recorder(tmp_path, "first: 1\n", {}, quiet=True)
    first.begin()
    first.write(LOSS)
    first.log("a line")
    first.finish(Summary())
    for name in ("checkpoint.pt", "table.txt", "loss.log", "mine.txt"):
        (tmp_path / name).write_text("")
    second = Recorder(tmp_path, "second: 2\n", {}, overwrite=True)
    second.begin()
    assert {file.name for file in tmp_path.iterdir()} == {"config.yaml", "manifest.json", "metrics.csv", "mine.txt"}
    assert (tmp_path / "config.yaml").read_text() == "second: 2\n"
    assert (tmp_path / "metrics.csv").read_text() == HEADER


def test_resuming_cuts_metrics_back_and_keeps_the_first_start(tmp_path, capsys):
    first = Recorder(tmp_path, "", {"vflbench": "1", "versions": {"torch": "2"}})
    first.begin(device="cpu")
    first.write(LOSS)
    length, start = first.length, json.loads((tmp_path / "manifest.json").read_text())["start"]
    first.write(LOSS)
    for place in ("epoch 1", "epoch 1, step 7"):
        again = Recorder(tmp_path, "", {"vflbench": "1", "versions": {"torch": "3"}})
        again.go_on(length, place, device="cpu")
        assert again.length == length
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["start"] == start
    assert [resumed["place"] for resumed in manifest["resumed"]] == ["epoch 1", "epoch 1, step 7"]
    assert manifest["resumed"][0]["changed"] == ["torch 2 then, 3 now"]
    assert "going on before epoch 1, step 7" in (tmp_path / "train.log").read_text()
    assert "torch 2 then, 3 now" in capsys.readouterr().out


def test_an_honest_run_of_another_version_is_not_the_one_beside_this_run(tmp_path):
    """overwrite=true after an edit, stopped before its honest run: the former honest run is still there."""
    old, new = ({"identity": {"vflbench": "1", "code": code, "plugins": []}} for code in ("a", "b"))
    honest = Recorder(tmp_path, "seed: 0", old).sibling("honest", adversary={})
    honest.begin()
    honest.finish(Summary(test_auc=0.5))
    assert Recorder(tmp_path, "seed: 0", old).sibling("honest").earlier_summary() == Summary(test_auc=0.5)
    beside = Recorder(tmp_path, "seed: 0", new).sibling("honest")
    assert beside.earlier_summary() is None
    assert not beside.is_of_same_origin


def test_a_fault_in_the_table_is_shown_and_the_results_are_kept(tmp_path, capsys):
    def faulty(_summary, _manifest):
        raise KeyError("layer")

    recorder = Recorder(tmp_path, "", {}, quiet=True)
    recorder.begin()
    recorder.finish(Summary(test_auc=0.5), faulty)
    assert "table.txt could not be written (KeyError: there is no 'layer')" in capsys.readouterr().out
    assert json.loads((tmp_path / "summary.json").read_text()) == {"test_auc": 0.5}


def test_a_full_disk_or_a_folder_that_cannot_be_made_is_one_line_of_the_users(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="hydra.run.dir"):
        Recorder(tmp_path / "file" / "run", "", {}).begin()
    recorder = Recorder(tmp_path, "", {}, quiet=True)
    recorder.begin()

    def full(_file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="results can't be written there: No space left on device") as refused:
        recorder.write(LOSS)
    assert str(tmp_path) in str(refused.value)


def test_the_bytes_of_metrics_csv_are_as_documented_and_read_back_as_they_were_written(tmp_path):
    rows = [
        MetricRow(0, "train", metric="loss", value=0.1 + 0.2),
        MetricRow(1, "test", metric="auc", value=math.nan),
        MetricRow(1, "train", "a", "f5", "gradient", "norm", "leak_auc", 0.9, 0.8, 1.0, True),
        MetricRow(1, "train", "my, bank", "h1", "embedding", "", "bytes_sent", 12, visible=False),
        MetricRow(2, "test", "NA", 'é "x"', "-1", "nan", "m", math.inf, -0.0, 5e-324),
    ]
    recorder = Recorder(tmp_path, "", {}, quiet=True)
    recorder.begin()
    recorder.write(rows)
    assert (tmp_path / "metrics.csv").read_text("utf8") == (
        "epoch,split,party,layer,message,attack,metric,value,ci_low,ci_high,visible\n"
        "0,train,,,,,loss,0.30000000000000004,,,\n"
        "1,test,,,,,auc,,,,\n"
        "1,train,a,f5,gradient,norm,leak_auc,0.9,0.8,1.0,true\n"
        '1,train,"my, bank",h1,embedding,,bytes_sent,12,,,false\n'
        '2,test,NA,"é ""x""",-1,nan,m,inf,-0.0,5e-324,\n'
    )
    read, sent = ([[None if v != v else v for v in astuple(row)] for row in of] for of in (read_metrics(tmp_path), rows))
    assert read == sent  # nan is no nan


class Stream(io.StringIO):
    """No terminal. gone: whether nobody reads it any more."""

    gone = False

    def write(self, text):
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize(("gone", "shown"), [(False, True), (True, True), (False, False)])
def test_lines_go_to_stderr_where_there_is_no_terminal_and_none_of_a_run_of_a_sweep(monkeypatch, gone, shown):
    stream, meter = Stream(), Meter()
    stream.gone = gone
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(recording, "SECONDS", {True: 0.0, False: 0.0})
    monkeypatch.setattr(Meter, "_look", lambda *_: None)  # the thread prints nothing
    with meter.running(shown=shown):
        meter.epoch(0, 3, batches=30, seconds={})
        for _ in range(3):
            meter.bar.update()
            with meter.phase("audit", "attacking a batch"):
                pass
        meter.epoch(1, 3, batches=20, seconds={})
        with meter.phase("train", "training"):
            assert not shown or (meter.bar.n, meter.bar.total, meter.bar.desc) == (3, 23, "epoch 2/3: training")
        with meter.phase("test_prediction", "measuring the model"):
            meter.bar.refresh()
    first = "reading the data, 00:00 so far, about . of training left\n"
    last = "epoch 2/3: measuring the model since 0.*, 0.* so far, about 0.* of training left\n"
    assert re.fullmatch((first + last) * (shown and not gone), stream.getvalue())


def test_seconds_are_those_of_the_phase_alone_but_an_audit_has_those_of_its_attacks(monkeypatch):
    clock, cpu = iter(range(100)), iter([0, 1, 3, 7, 15, 31, 63, 127])
    monkeypatch.setattr(recording, "perf_counter", lambda: 10.0 * next(clock))
    monkeypatch.setattr(recording, "process_time", lambda: float(next(cpu)))
    meter = Meter()
    meter.seconds["audit/norm"] = [100.0, 50.0]  # of the epoch until it was stopped
    with meter.phase("train", "training"):
        with meter.phase("audit", "attacking a batch"), meter.phase("audit/norm", "attack=norm"):
            pass
        with meter.phase("audit", "attacking at its end"):
            pass
    assert meter.seconds == {"audit/norm": [110.0, 54.0], "audit": [40.0, 14.0 + 32.0], "train": [30.0, 127.0 - 46.0]}
