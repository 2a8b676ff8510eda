"""What a run prints: the time left follows from the work done and decides no number; lines keep together what belongs so."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflbench.cli.main import fail
from vflbench.results.terminal import WIDTH, Meter, Work, duration, path_text, wrapped


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def trained(epochs=3, batches=10, audited=(0, 5), *, done=1, batch=1.0, audit=4.0, end=10.0):
    """A meter after so many of the epochs."""
    clock = Clock()
    meter = Meter(shown=False, clock=clock)
    for number in range(done):
        left = epochs - number
        meter.epoch(number, epochs, batches=left * batches, audits=left * len(audited))
        for step in range(batches):
            clock.now += batch
            with meter.audit(counts=step in audited):
                clock.now += audit if step in audited else 0.0
        with meter.audit_at_the_end():
            clock.now += end
        meter.ended()
    return meter


def test_the_time_left_is_that_of_the_work_to_come_at_the_mean_of_the_work_done():
    meter = trained()
    assert meter.seconds_left == 2 * (10 * 1 + 2 * 4 + 10)
    assert meter.is_complete
    assert meter.share == pytest.approx(1 / 3)
    assert meter.line() == "33 % done, epoch 1/3: attacking at its end, 28 s so far, about 56 s left"
    assert meter.audit_seconds == 2 * 4 + 10
    assert trained(done=3).seconds_left == 0
    assert trained(done=3).share == 1


def test_the_line_fits_a_terminal_whatever_the_numbers():
    meter = Meter(shown=False, clock=(clock := Clock()))
    meter.epoch(998, 1000, batches=2, audits=2)
    for _ in range(1):
        with meter.audit(counts=True):
            clock.now += 300_000
        with meter.audit_at_the_end():
            clock.now += 300_000
        meter.ended()
        assert "attacking at its end, about" in meter.line()
        assert len(meter.line()) <= 80


def test_before_every_kind_of_work_was_done_no_share_is_claimed():
    meter = Meter(shown=False, clock=(clock := Clock()))
    assert meter.line() == "reading the data, 0 s so far"
    meter.epoch(0, 30, batches=300, audits=0)
    assert meter.line() == "epoch 1/30: training, 0 s so far"
    clock.now += 1
    with meter.audit(counts=False):
        pass
    assert meter.line() == "epoch 1/30: training, 1 s so far, more than 5 min left"


def test_an_epoch_that_was_resumed_counts_what_it_has_left():
    meter = Meter(shown=False, clock=(clock := Clock()))
    meter.epoch(4, 5, batches=2, audits=1)
    clock.now += 3
    with meter.audit(counts=True):
        clock.now += 5
    assert meter.batches.left == 1
    assert meter.audits.left == 0
    with meter.audit_at_the_end():
        clock.now += 7
    meter.ended()
    assert meter.seconds_left == 3


def test_work_that_is_never_to_come_costs_nothing_and_more_than_was_expected_is_no_debt():
    assert Work().to_come == 0
    work = Work(left=1)
    for _ in range(3):
        work.add(2.0)
    assert work.to_come == 0


def test_lines_go_to_stderr_where_there_is_no_terminal_while_one_piece_of_work_goes_on(monkeypatch):
    class Written(io.StringIO):
        def write(self, text):
            lines.append(text)
            if text.strip():
                written.set()
            return len(text)

    import threading

    lines, written = [], threading.Event()
    monkeypatch.setattr("vflbench.results.terminal.SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", Written())
    with Meter().running():
        assert written.wait(60)
    assert lines[0].startswith("reading the data, ")
    assert not [thread for thread in threading.enumerate() if thread.name == "repeated look"]


def test_a_reader_that_is_gone_stops_no_run(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            tried.set()
            raise BrokenPipeError

    import threading

    tried = threading.Event()
    monkeypatch.setattr("vflbench.results.terminal.SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", Closed())
    with Meter().running():
        assert tried.wait(60)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.2, "1 s"), (99, "99 s"), (100, "2 min"), (3600, "60 min"), (12_000, "3 h 20 min")]
)
def test_a_duration_is_rounded_up(seconds, text):
    assert duration(seconds) == text


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20)))
def test_no_line_is_longer_than_the_width_and_no_word_is_lost(words):
    text = " ".join(words)
    lines = wrapped(text, "    ")
    assert all(len(line) <= WIDTH for line in lines)
    assert " ".join(lines).split() == text.split()


def test_a_number_stays_with_its_percent_sign_and_a_long_path_stays_whole():
    lines = wrapped(f"{'x' * 76} 55 % of it /{'long' * 40}/name")
    assert lines[0] == "x" * 76
    assert lines[1].startswith("55 % of it")
    assert f"/{'long' * 40}/name" in lines


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_messages_are_wrapped_at_a_terminal_and_lines_to_search_elsewhere(capsys, monkeypatch):
    place = f"dataset.path=/{'long' * 30}/name"
    text = f"{place}: there is no such file, and this goes on until the line is full and goes on {'and on ' * 9}".strip()
    with pytest.raises(SystemExit):
        fail(text)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setattr("sys.stderr", Terminal())
    with pytest.raises(SystemExit):
        fail(text)
    lines = sys.stderr.getvalue().splitlines()
    assert lines[0] == f"{place}:"  # whole, to copy
    assert all(len(line) <= 80 for line in lines[1:])
    assert " ".join(lines) == text


def test_what_a_terminal_would_obey_is_escaped():
    assert wrapped("a\033[2Jb\rc") == ["a\\x1b[2Jb\\rc"]


def test_a_path_is_as_it_is_typed_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_text(tmp_path / "outputs" / "run") == "outputs/run"
    assert path_text(tmp_path / "my runs") == "'my runs'"
    assert path_text(tmp_path.parent) == str(tmp_path.parent)
    assert path_text(Path("outputs")) == "outputs"
