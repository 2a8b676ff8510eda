"""A warm process beside a sweep: it has loaded what every run needs, and computes each run in a fork of itself.

Where forking isn't safe it is a worker instead, and computes one run after the other in itself. It ends with the sweep, and
every run in a fork ends with it, however that ends.

A fork has only the thread that forked. So this process starts no thread: it imports, and multiplies nothing. An OpenMP
runtime or a pool of threads that had been at work here would hang in the fork.
"""

import importlib
import os
import pickle  # nosec  (between the sweep and its own processes, over a socket that no other has)
import select
import signal
import sys
import threading
from atexit import _clear as forget_exits
from atexit import _run_exitfuncs as run_exits
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from vflbench.cli.environment import leave_working_folder, wait_passively
from vflbench.cli.fork_safety import die_with, unsafe

WARM = ("vflbench.cli.train", "vflbench.cli.build", "vflbench.cli.mistakes", "vflbench.cli.record")
"""What every run imports: a run's manifest lists the modules of ours that were loaded, so that no others are loaded here."""

OTHERS = ("torch", "numpy", "scipy", "sklearn", "numba")
"""Packages of others that are loaded here once a run has needed them: importing them begins no thread that a fork misses."""

FORK, WORKER = "fork", "worker"


def main() -> None:
    """The command line names the socket to the sweep, and what to be."""
    connection, lifeline, kind = Connection(int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep says when to stop
    wait_passively()
    leave_working_folder()
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # lines of runs stay whole
    if kind == WORKER:
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        work(connection)
    else:
        _Server(connection).serve()


def work(connection: Connection) -> None:
    """One run after the other, in this process."""
    from vflbench.cli.fork_jobs import perform

    connection.send(("ready", -1, ""))
    with suppress(EOFError):
        while True:
            _, number, payload = connection.recv()
            connection.send(("ended", number, 0, perform(payload)))


def _end_with(lifeline: int) -> None:
    """Kill this process when the sweep has ended, which alone holds the other end of this pipe."""
    with suppress(OSError):
        os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


class _Server:
    """A loop that starts, stops and reaps runs."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.jobs: dict[Any, tuple[int, Connection, list[bytes]]] = {}
        self.loaded: set[str] = set()
        self.problem = ""
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.waker, False)

    def serve(self) -> None:
        """Until the sweep closes the socket, or ends."""
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        for module in WARM:
            importlib.import_module(module)
        from vflbench.run.provenance import code_hash

        code_hash()  # of the modules that were loaded now
        self.problem = unsafe()
        self._send("ready", -1, self.problem)
        while True:
            sources: list[Any] = [self.connection, self.wake, *self._answers()]
            ready, _, _ = select.select(sources, [], [])
            if self.wake in ready:
                with suppress(BlockingIOError):
                    os.read(self.wake, 4096)
            self._collect(ready)
            if self.connection in ready:
                try:
                    what, *details = self.connection.recv()
                except (EOFError, ConnectionResetError):
                    self._kill_all()
                    return
                self._start(*details) if what == "job" else self._signal(*details)

    def _answers(self) -> list[Connection]:
        return [answer for _, answer, _ in self.jobs.values() if not answer.closed]

    def _start(self, number: int, payload: bytes) -> None:
        if self.problem:
            self._send("unsafe", number, self.problem)
            return
        answer, ours = get_context("fork").Pipe(duplex=False)
        process = get_context("fork").Process(target=self._job, args=(ours, answer, payload, os.getpid()))
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            process.start()
        except OSError as error:  # no more processes, or no memory for one
            answer.close()
            self._send("refused", number, error.strerror or str(error))
        else:
            self.jobs[process] = number, answer, []
        finally:
            ours.close()

    def _signal(self, number: int) -> None:
        """Send it to every run, and to what it has started."""
        for process in self.jobs:
            _signal_group(process.pid, number)

    def _collect(self, ready: Sequence[Any]) -> None:
        """Take what runs have answered, and say which have ended."""
        for process, (number, answer, parts) in list(self.jobs.items()):
            ended = process.exitcode is not None  # before the last look at what it answered
            if answer in ready or ended:
                _take(answer, parts)
            if not ended:
                continue
            del self.jobs[process]
            if process.exitcode != 0:
                _signal_group(process.pid, signal.SIGKILL)  # what it has started
            answer.close()
            payload, modules = pickle.loads(parts[0]) if parts else (b"", [])  # nosec  (of a run of ours)
            self._send("ended", number, process.exitcode, payload)
            process.close()
            self._load(modules)

    def _load(self, modules: Sequence[str]) -> None:
        """Import what a run has needed of others, for the runs after it."""
        new = [name for name in modules if name not in self.loaded and name not in sys.modules]
        for name in new:
            self.loaded.add(name)
            with suppress(Exception):
                importlib.import_module(name)
        if new:
            self.problem = unsafe()

    def _kill_all(self) -> None:
        for process in self.jobs:
            _signal_group(process.pid, signal.SIGKILL)

    def _job(self, answer: Connection, others: Connection, payload: bytes, parent: int) -> None:
        """In the fork: compute and answer. First, what the process has of its parent's and must not share is left."""
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for connection in (self.connection, others, *self._answers()):
            connection.close()
        os.close(self.wake)
        os.close(self.waker)
        die_with(parent)
        forget_exits()
        before = set(sys.modules)
        from vflbench.cli.fork_jobs import perform, renew_random_state

        renew_random_state()
        try:
            result = perform(payload)
        except KeyboardInterrupt as stopped:  # it has saved what it had
            sys.exit(getattr(stopped, "exit_code", 130))
        loaded = [name for name in set(sys.modules) - before if name.partition(".")[0] in OTHERS]
        sys.stdout.flush()
        answer.send_bytes(pickle.dumps((result, sorted(loaded))))
        run_exits()

    def _send(self, *what: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(what)


def _take(answer: Connection, parts: list[bytes]) -> None:
    """The one message of a run, once it is there."""
    with suppress(EOFError, OSError):
        if not answer.closed and answer.poll():
            parts.append(answer.recv_bytes())


def _signal_group(process: int, number: int) -> None:
    """Send it to a run and to what it has started; before it has made its group, to it alone."""
    with suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(process, number)
        except ProcessLookupError:
            os.kill(process, number)


def _note(_number: int, _frame: FrameType | None) -> None:
    """So that the signal wakes `select`."""


if __name__ == "__main__":
    main()
