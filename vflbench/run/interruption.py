"""Ctrl-C and SIGTERM: the current batch is finished and saved before the run stops."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run stopped because a signal asked it to. exit_code: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message, exit_code)  # as it is sent to another process
        self.message, self.exit_code = message, exit_code

    def __str__(self) -> str:
        return self.message


class Interruption:
    """While entered, the first SIGINT or SIGTERM is only noted in `asked`; the second one stops the run at once.

    Python delivers signals to the main thread only: in another thread, a run is not stopped.
    """

    asked: signal.Signals | None = None

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        code = 128 + number
        if self.asked is not None:
            raise Interrupted("stopped at once; the same command goes on from what was saved before", code)
        self.asked = signal.Signals(number)
        # after SIGTERM nobody waits at the terminal: the sweep that sends it has said so itself
        # os.write: a handler must not wait for a buffer's lock
        if number == signal.SIGINT and sys.stderr is not None and sys.stderr.isatty():
            os.write(2, b"\nstopping: the current batch is finished and saved first; Ctrl-C again stops at once\n")

    def end(self, message: str) -> None:
        """Stop here if a signal came. Raises Interrupted."""
        if self.asked is not None:
            raise Interrupted(message, 128 + self.asked)
