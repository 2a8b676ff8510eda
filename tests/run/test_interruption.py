import os
import signal
import threading

import pytest

from vflbench.run.interruption import Interrupted, Interruption


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


def test_in_another_thread_nothing_is_changed():
    handlers = []

    def enter():
        with Interruption():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
