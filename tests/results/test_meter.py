"""How far a run has come, on stderr: the time left follows from the batches so far, and decides no number."""

import io
import sys
import threading

import pytest

from vflbench.results import recorder
from vflbench.results.recorder import Meter


@pytest.fixture
def clock(monkeypatch):
    """A list with the time, in seconds."""
    now = [0.0]
    monkeypatch.setattr(recorder, "perf_counter", lambda: now[0])
    return now


def train(meter, clock, *, batches=10, audited=(0, 5), audit=4.0, end=10.0):
    for step in range(batches):
        clock[0] += 1
        meter.trained += 1
        with meter.audit("attacking a batch" if step in audited else "training"):
            clock[0] += audit if step in audited else 0.0
    with meter.audit("attacking at its end"):
        clock[0] += end


def test_the_time_left_is_that_of_the_batches_to_come_at_the_mean_of_those_so_far(clock):
    meter = Meter()
    clock[0] = 100.0
    assert meter.line() == "reading the data, 01:40 so far"
    meter.epoch(0, 3, batches=30)
    assert meter.line() == "epoch 1/3: training, 00:00 so far"
    train(meter, clock)
    assert meter.line() == "epoch 1/3: training, 00:28 so far, about 00:56 of training left"
    assert meter.audit_seconds == 2 * 4 + 10
    meter.epoch(1, 3, batches=20)
    assert meter.line() == "epoch 2/3: training, 00:28 so far, about 00:56 of training left"
    assert meter.audit_seconds == 0
    meter.doing = "measuring the model"
    assert meter.line().startswith("epoch 2/3: measuring the model, ")


def test_an_epoch_that_was_resumed_counts_what_it_has_left(clock):
    meter = Meter()
    meter.epoch(4, 5, batches=2)
    train(meter, clock, batches=1, audited=(), end=2.0)
    assert meter.line() == "epoch 5/5: training, 00:03 so far, about 00:03 of training left"


class Stream(io.StringIO):
    """Notes what is written. gone: whether nobody reads it any more. terminal: what it says that it is."""

    def __init__(self, *, gone=False, terminal=False):
        super().__init__()
        self.gone, self.terminal, self.tried = gone, terminal, threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        if text.strip():
            self.tried.set()
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize("gone", [False, True], ids=["read", "gone"])
def test_lines_go_to_stderr_where_there_is_no_terminal_while_one_piece_of_work_goes_on(monkeypatch, gone):
    stream = Stream(gone=gone)
    monkeypatch.setattr(recorder, "SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", stream)
    with Meter().running():
        assert stream.tried.wait(60)
    assert gone or stream.getvalue().startswith("reading the data, 00:00 so far\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "meter"]


@pytest.mark.slow
def test_a_terminal_has_a_bar_that_is_cleared_at_the_end(monkeypatch):
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    meter = Meter()
    with meter.running():
        meter.epoch(0, 3, batches=30)
        meter.trained += 3
        assert stream.tried.wait(60)
    assert " 10%|" in stream.getvalue()
    assert "epoch 1/3: training, " in stream.getvalue()
    assert stream.getvalue().endswith("\r")
