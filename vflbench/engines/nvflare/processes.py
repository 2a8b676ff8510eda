"""Processes that belong to a run: found by a mark in their environment, and ended with it, whatever happens."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import psutil

MARK = "VFLBENCH_RUN"
"""An environment variable that all processes of a run inherit, through whatever starts them."""

_LOOK_SECONDS = 0.5


def marked(mark: str) -> list[psutil.Process]:
    """The processes of the run with this mark, other than this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # another user's, or it has ended
    return found


def kill_marked(mark: str, seconds: float = 5.0) -> None:
    """Kill them, also those that are stopped, until none is left."""
    deadline = time.monotonic() + seconds
    while (processes := marked(mark)) and time.monotonic() < deadline:
        for process in processes:
            _kill(process)
        psutil.wait_procs(processes, timeout=1.0)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def named(pid: int) -> list[float]:
    """A process, so that another that gets its number later isn't taken for it: [pid, time of its start]."""
    return [pid, psutil.Process(pid).create_time()]


def is_alive(process: Sequence[float]) -> bool:
    """process: as from `named`."""
    try:
        found = psutil.Process(int(process[0]))
        return abs(found.create_time() - process[1]) < 1.0 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def when_ended(processes: Iterable[Sequence[float]], then: Callable[[Sequence[float]], object]) -> None:
    """Call `then`, once, with the first of these processes that has ended. Looks twice a second, in a thread of its own."""
    watched = list(processes)

    def watch() -> None:
        while True:
            for process in watched:
                if not is_alive(process):
                    then(process)
                    return
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=watch, name="vflbench_watch", daemon=True).start()


def end_with(parents: Iterable[Sequence[float]]) -> None:
    """Kill this process, and all of its run, when one of these has ended."""

    def end(_: Sequence[float]) -> None:
        mark = os.environ.get(MARK)
        if mark:
            kill_marked(mark)
        os.kill(os.getpid(), signal.SIGKILL)

    when_ended(parents, end)


def alone(main: Callable[[Path], None]) -> NoReturn:
    """All that this process is for: main, with the file that the command line names. It ends without waiting for threads,
    which FLARE leaves behind.
    """
    code = 1
    try:
        main(Path(sys.argv[1]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
