"""The processes of a sweep that compute its runs, seen from the sweep: begun, given work, stopped and ended."""

import os
import signal
import socket
import subprocess  # nosec  (our own module, no shell)
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from vflbench.cli.fork_server import FORK

_CODE = "import sys; sys.path[:] = {path!r}; from vflbench.cli.fork_server import main; main()"
_END_SECONDS = 10.0


class Process:
    """One process: a warm one that forks (`fork_server.FORK`), or a worker (`WORKER`).

    ready: it has said that it can begin. retired: it gets no more work. at_work: the numbers of its jobs.
    """

    def __init__(self, kind: str, environment: Mapping[str, str]):
        ours, theirs = socket.socketpair()
        lifeline, kept = os.pipe()
        self._lifeline: int | None = kept
        with theirs:
            handed = (theirs.fileno(), lifeline)
            try:
                self._process = subprocess.Popen(  # nosec B603
                    [sys.executable, "-c", _CODE.format(path=sys.path), *map(str, handed), kind],
                    env={**os.environ, **environment},
                    pass_fds=handed,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # the terminal's signals reach the sweep alone, which passes them on
                )
            finally:
                os.close(lifeline)
        self.connection = Connection(ours.detach())
        self.kind, self.ready, self.retired = kind, False, False
        self.at_work: set[int] = set()

    def begin(self, number: int, payload: bytes) -> None:
        """Give it a job."""
        self.at_work.add(number)
        self._send("job", number, payload)

    def receive(self) -> tuple[Any, ...] | None:
        """What it says; None when it has ended."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def signal(self, number: int) -> None:
        """Send it to the jobs that are at work."""
        if self.kind == FORK:
            self._send("signal", number)
        elif self.at_work:
            self._process.send_signal(number)

    @property
    def code(self) -> int:
        """Once it has ended: its exit code, or minus the signal that ended it."""
        return int(self._process.returncode)

    def close(self, *, at_once: bool = False) -> None:
        """End it. at_once: with what it has at work; otherwise it has nothing."""
        if at_once:
            self._process.kill()
        self.connection.close()  # which it takes as the end of the sweep
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _send(self, *what: Any) -> None:
        with suppress(OSError):  # it has ended, which `receive` says
            self.connection.send(what)


def name_of(code: int) -> str:
    """How a process has ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
