"""How far a run has come, on stderr: the time left follows from the batches so far, and decides no number."""

import io
import sys

import pytest

from vflbench.results import recorder
from vflbench.results.recorder import Meter


class Stream(io.StringIO):
    """gone: whether nobody reads it any more. terminal: what it says that it is."""

    def __init__(self, *, gone=False, terminal=False):
        super().__init__()
        self.gone, self.terminal = gone, terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        if self.gone:
            raise BrokenPipeError
        return super().write(text)


def train(meter):
    with meter.running():
        meter.epoch(0, 3, batches=30)
        for _ in range(3):
            meter.bar.update()
            with meter.audit("attacking a batch"):
                pass
        meter.epoch(1, 3, batches=20)
        assert (meter.bar.n, meter.bar.total, meter.bar.desc) == (3, 23, "epoch 2/3: training")
        meter.does("measuring the model")
        meter.bar.refresh()


@pytest.mark.parametrize("gone", [False, True], ids=["read", "gone"])
def test_lines_go_to_stderr_where_there_is_no_terminal(monkeypatch, gone):
    stream = Stream(gone=gone)
    monkeypatch.setattr(recorder, "SECONDS", {True: 0.0, False: 0.0})
    monkeypatch.setattr(sys, "stderr", stream)
    train(Meter())
    if not gone:
        first, *lines = stream.getvalue().splitlines()
        assert first == "reading the data, 00:00 so far, about ? of training left"
        assert lines[-1].startswith("epoch 2/3: measuring the model, 00:00 so far, about 00:0")


def test_a_terminal_has_a_bar_that_is_cleared_at_the_end(monkeypatch):
    stream = Stream(terminal=True)
    monkeypatch.setattr(recorder, "SECONDS", {True: 0.0, False: 0.0})
    monkeypatch.setattr(sys, "stderr", stream)
    train(Meter())
    assert "epoch 2/3: measuring the model, " in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_a_sweep_shows_nothing_of_a_run(monkeypatch):
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    meter = Meter()
    with meter.running(shown=False):
        meter.epoch(0, 1, batches=1)
        meter.bar.update()
    assert stream.getvalue() == ""
