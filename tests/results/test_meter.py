"""How far a run has come, on stderr: the time left follows from the batches so far, and decides no number."""

import io
import re
import sys
import threading

import pytest

from vflbench.results import recorder
from vflbench.results.recorder import Meter


class Stream(io.StringIO):
    """No terminal. gone: whether nobody reads it any more."""

    gone = False

    def write(self, text):
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


class Never(threading.Event):
    """So that the thread prints nothing."""

    def wait(self, timeout=None):
        return True


def train(meter):
    with meter.running():
        meter.epoch(0, 3, batches=30, seconds={})
        for _ in range(3):
            meter.bar.update()
            with meter.phase("audit", "attacking a batch"):
                pass
        meter.epoch(1, 3, batches=20, seconds={})
        with meter.phase("train", "training"):
            assert (meter.bar.n, meter.bar.total, meter.bar.desc) == (3, 23, "epoch 2/3: training")
        with meter.phase("test_prediction", "measuring the model"):
            meter.bar.refresh()


@pytest.mark.parametrize("gone", [False, True], ids=["read", "gone"])
def test_lines_go_to_stderr_where_there_is_no_terminal(monkeypatch, gone):
    stream = Stream()
    stream.gone = gone
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(recorder, "Event", Never)
    monkeypatch.setattr(recorder, "SECONDS", {True: 0.0, False: 0.0})
    train(Meter())
    if not gone:
        first, last = stream.getvalue().splitlines()
        assert first == "reading the data, 00:00 so far, about ? of training left"
        assert re.fullmatch(r"epoch 2/3: measuring the model since 0.*, 0.* so far, about 0.* of training left", last)


def test_seconds_are_those_of_the_phase_alone_but_an_audit_has_those_of_its_attacks(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(recorder, "perf_counter", lambda: 10.0 * next(clock))
    cpu = iter([0, 1, 3, 7, 15, 31, 63, 127])
    monkeypatch.setattr(recorder, "process_time", lambda: float(next(cpu)))
    meter = Meter()
    meter.seconds["audit/norm"] = [100.0, 50.0]  # of the epoch until it was stopped
    with meter.phase("train", "training"):
        with meter.phase("audit", "attacking a batch"), meter.phase("audit/norm", "attack=norm"):
            pass
        with meter.phase("audit", "attacking at its end"):
            pass
    assert meter.seconds == {"audit/norm": [110.0, 54.0], "audit": [40.0, 14.0 + 32.0], "train": [30.0, 127.0 - 46.0]}


def test_a_sweep_shows_nothing_of_a_run(capsys):
    meter = Meter()
    with meter.running(shown=False):
        meter.epoch(0, 1, batches=1, seconds={})
        meter.bar.update()
    assert capsys.readouterr().err == ""
