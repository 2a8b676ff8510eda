"""What has to be set before torch is loaded, and before anything is read from the working folder."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What says to the libraries of a process how many threads they may take."""

_READ_WHEN_IMPORTED = {".numba_config.yaml": "numba"}
"""Files that packages take their settings from if the working folder has them: classes to import, programs to run."""


def prepare_environment() -> None:
    """At the start of a command: idle threads sleep, and workers of a sweep can tell who set OMP_NUM_THREADS.

    A launcher of sweeps sets OMP_NUM_THREADS for its workers. VFLBENCH_THREADS=auto says that the user has not set it, so
    that in a worker it limits the number of threads and does not determine it (vflbench/run/settings.py).
    """
    wait_passively()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look through all packages for some
    os.environ["VFLBENCH_THREADS"] = "given" if "OMP_NUM_THREADS" in os.environ else "auto"
    leave_working_folder()


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user chose otherwise.

    By default they spin, which takes the cores from other processes. libgomp reads the variable when torch loads it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cores() -> int:
    """The cores that this process may use: a container or a batch system may lend it less than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_working_folder() -> None:
    """Take no module and no settings from the working folder, in this process and in those that it starts.

    Relative entries of PYTHONPATH, and empty ones, as in PYTHONPATH=:/a, are the working folder; absolute ones stay.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # `python -m` of workers would put it first
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    kept = [entry for entry in entries if os.path.isabs(entry)]
    if kept != entries:
        checkout = str(Path(__file__).resolve().parents[2])
        dropped = {os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)} - set(kept)
        if checkout in dropped:  # vflbench itself comes from there: it stays, as the last
            kept.append(checkout)
        sys.path[:] = [place for place in sys.path if place not in dropped] + [p for p in kept[-1:] if p in dropped]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    for file, package in _READ_WHEN_IMPORTED.items():
        if os.path.lexists(file) and package not in sys.modules:
            with _elsewhere(), suppress(ImportError):
                importlib.import_module(package)
    if "numba" in sys.modules:  # which looks for its file again whenever it compiles
        setattr(sys.modules["numba.core.config"], "_config_fname", "")  # noqa: B010


@contextmanager
def _elsewhere() -> Iterator[None]:
    """While entered, the working folder is that of this module."""
    here = os.open(os.curdir, os.O_RDONLY)
    try:
        os.chdir(Path(__file__).parent)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
