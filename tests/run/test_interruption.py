import os
import signal

import pytest
from support.audited import scripted
from support.builders import run_in

from vflbench import Gradients, Scores
from vflbench.data.synthetic import Synthetic
from vflbench.run.interruption import Interrupted, Interruption
from vflbench.run.settings import Audit, Settings


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_noted_and_the_run_ends_where_it_chooses(number, code):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        interruption.end("nothing was asked")
        os.kill(os.getpid(), number)
        assert interruption.asked == number
        with pytest.raises(Interrupted, match="saved") as stopped:
            interruption.end("saved")
    assert stopped.value.exit_code == code
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert signal.getsignal(number) == before


def test_the_second_signal_stops_at_once():
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="at once"):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_a_recording_whose_run_was_stopped_after_the_last_batch_of_an_epoch_has_its_end(tmp_path):
    def run(name, *, stops=False):
        def batch(view):
            if stops and (view.epoch, view.step) == (0, 8):  # the last one of the epoch
                os.kill(os.getpid(), signal.SIGTERM)
            return Scores(view.ids, view[Gradients].layers["f2"].norm(dim=1))

        settings = Settings(epochs=2, batch_size=50, record="messages", audit=Audit(batches=3))
        attacks = {"last": scripted(Gradients, batch=batch)}
        run_in(tmp_path / name, dataset=Synthetic(rows=500, vocabulary=100), attacks=attacks, settings=settings)

    with pytest.raises(Interrupted):
        run("stopped", stops=True)
    run("stopped")
    run("whole")
    stopped, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / run / "recording").rglob("*") if path.is_file()}
        for run in ("stopped", "whole")
    )
    assert sorted(stopped) == sorted(whole)
    assert [name for name in whole if stopped[name] != whole[name]] == []
