"""Environment variables that have to be set before torch is loaded."""

import os


def prepare_environment() -> None:
    """At the start of a command: idle threads sleep, and workers of a sweep can tell who set OMP_NUM_THREADS.

    A launcher of sweeps sets OMP_NUM_THREADS for its workers. VFLBENCH_THREADS=auto says that the user has not set it, so
    that in a worker it limits the number of threads and does not determine it (vflbench/run/machine.py).
    """
    wait_passively()
    os.environ["VFLBENCH_THREADS"] = "given" if "OMP_NUM_THREADS" in os.environ else "auto"


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user chose otherwise.

    By default they spin, which takes the cores from other processes. libgomp reads the variable when torch loads it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
