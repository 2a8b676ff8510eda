"""What a process must be so that it may be forked, and that a fork of it ends with it."""

import ctypes
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from vflbench.cli.environment import THREADS

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl.h
_FIRST_TO_GO = "500"  # of -1000 .. 1000: where memory runs out, a run is killed before the sweep


def die_with(parent: int) -> None:
    """Linux: this process is killed when its parent ends, in whatever way. Where memory runs out, it goes first."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")


def unsafe() -> str:
    """Why a fork of this process would not be safe; empty if it is.

    Threads of jemalloc and OpenBLAS stop and begin around a fork by themselves. No other thread may be there.
    """
    if threading.active_count() > 1:
        return f"a thread is at work in it: {', '.join(sorted(thread.name for thread in threading.enumerate()))}"
    try:
        names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
        maps = Path("/proc/self/maps").read_text()
    except OSError as error:
        return str(error)
    libraries = set(re.findall(r"\S*openblas\S*", maps))
    of_blas = len(libraries) * (_most_threads() - 1)
    of_others = sum("jemalloc" not in name for name in names) - 1
    if of_others > of_blas:
        return f"{of_others} threads are at work in it that Python has not begun"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA was begun in it"
    return ""


def _most_threads() -> int:
    given = [os.environ.get(name, "") for name in THREADS]
    return max([int(words) for words in given if words.isdigit()], default=os.cpu_count() or 1)
