"""How far a run has come, on stderr: the time left follows from the batches so far, and decides no number."""

import io
import re
import sys

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


@pytest.mark.parametrize(
    ("gone", "shown"), [(False, True), (True, True), (False, False)], ids=["read", "gone", "of a sweep"]
)
def test_lines_go_to_stderr_where_there_is_no_terminal_and_none_of_a_run_of_a_sweep(monkeypatch, gone, shown):
    stream, meter = Stream(), Meter()
    stream.gone = gone
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(recorder, "SECONDS", {True: 0.0, False: 0.0})
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
    lines = stream.getvalue().splitlines()
    if gone or not shown:
        assert lines == []
    else:
        assert lines[:-1] == ["reading the data, 00:00 so far, about ? of training left"]
        last = r"epoch 2/3: measuring the model since 0.*, 0.* so far, about 0.* of training left"
        assert re.fullmatch(last, lines[-1])


def test_seconds_are_those_of_the_phase_alone_but_an_audit_has_those_of_its_attacks(monkeypatch):
    clock, cpu = iter(range(100)), iter([0, 1, 3, 7, 15, 31, 63, 127])
    monkeypatch.setattr(recorder, "perf_counter", lambda: 10.0 * next(clock))
    monkeypatch.setattr(recorder, "process_time", lambda: float(next(cpu)))
    meter = Meter()
    meter.seconds["audit/norm"] = [100.0, 50.0]  # of the epoch until it was stopped
    with meter.phase("train", "training"):
        with meter.phase("audit", "attacking a batch"), meter.phase("audit/norm", "attack=norm"):
            pass
        with meter.phase("audit", "attacking at its end"):
            pass
    assert meter.seconds == {"audit/norm": [110.0, 54.0], "audit": [40.0, 14.0 + 32.0], "train": [30.0, 127.0 - 46.0]}
