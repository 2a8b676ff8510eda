"""What the workers of a sweep share, and what is said of those that are lost: of all launchers alike."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher

from vflbench.cli.environment import THREADS
from vflbench.cli.hydra_internals import joblib_options, starts_all_at_once
from vflbench.errors import UserError
from vflbench.run.interruption import Interrupted


class NoClusterError(UserError):
    """No run of the sweep can begin."""


class LostRunError(UserError):
    """A run whose worker or machine was lost more often than it is begun again."""


def failed(error: Exception) -> JobReturn:
    """What a launcher returns of a run that has failed."""
    returned = JobReturn(status=JobStatus.FAILED)
    returned.return_value = error
    return returned


def distinct_words(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """For each job the overrides that not all have, which name it."""
    common = set.intersection(*(set(words) for words in job_overrides)) if len(job_overrides) > 1 else set()
    return [" ".join(word for word in words if word not in common) for words in job_overrides]


@contextmanager
def shared_cores(launcher: Launcher, runs: int, cores: int) -> Iterator[None]:
    """Processes at work at once share the cores: no more workers than runs, and at most cores / workers threads each.

    joblib sets its workers' threads by itself, from n_jobs. submitit's local jobs inherit the environment. Other launchers,
    and variables that the user set, are left alone.
    """
    options = joblib_options(launcher)
    if options is not None:
        wanted = int(options["n_jobs"])
        workers = wanted if wanted > 0 else max(1, cores + 1 + wanted)
        options["n_jobs"] = min(workers, runs)
        try:
            yield
        finally:
            options["n_jobs"] = wanted
        return
    added = [name for name in THREADS if name not in os.environ] if starts_all_at_once(launcher) else []
    os.environ.update(dict.fromkeys(added, str(max(1, cores // runs))))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends a sweep as Ctrl-C does. A run that trains in this process handles both itself."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Interrupted("the runs that were at work go on from what they saved last", 128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
