import os
import signal

import pytest
from support.builders import run_in

from vflbench.attacks.base import Attack, Scores
from vflbench.data.synthetic import Synthetic
from vflbench.messages.facts import Gradients
from vflbench.messages.threat import Threat
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


class LastStep(Attack):
    """Asks the run to stop at the last batch of the first epoch, once."""

    threat = Threat(knows={Gradients})
    stops = False

    def batch(self, view):
        if LastStep.stops and (view.epoch, view.step) == (0, 8):
            LastStep.stops = False
            os.kill(os.getpid(), signal.SIGTERM)
        return Scores(view.ids, view[Gradients].layers["f2"].norm(dim=1))


@pytest.mark.slow
def test_a_recording_whose_run_was_stopped_after_the_last_batch_of_an_epoch_has_its_end(tmp_path):
    def parts():
        settings = Settings(epochs=2, batch_size=50, record="messages", audit=Audit(batches=3))
        return {"dataset": Synthetic(rows=500, vocabulary=100), "attacks": {"last": LastStep()}, "settings": settings}

    LastStep.stops = True
    with pytest.raises(Interrupted):
        run_in(tmp_path / "stopped", **parts())
    run_in(tmp_path / "stopped", **parts())
    run_in(tmp_path / "whole", **parts())
    folders = [tmp_path / run / "recording" for run in ("stopped", "whole")]
    names = [sorted(path.name for path in folder.rglob("*") if path.is_file()) for folder in folders]
    assert names[0] == names[1]
    for name in names[1]:
        stopped, whole = (next(folder.rglob(name)).read_bytes() for folder in folders)
        assert stopped == whole, name
