"""What becomes of the runs of a sweep: told while it goes on, and as a table at its end. Reads the runs' folders only."""

import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tqdm import tqdm

from vflbench.results.folder import error_in
from vflbench.results.read import read_summary

_POLL_SECONDS = 0.2
_LAST_FILES = ("summary.json", "error.txt")
"""One of them is written when a run is over, whatever process it ran in."""


class Status(StrEnum):
    """done: by this sweep. skipped: finished before, by whatever command. busy: at work in another process."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    BUSY = "busy"


@dataclass(frozen=True)
class Outcome:
    """What a run came to. reason: of a failure, in a paragraph. test_auc: nan where there is none."""

    status: Status
    test_auc: float = math.nan
    reason: str = ""


@dataclass
class Job:
    """One run of a sweep. number: its place in it. elsewhere: another process is at work on it.

    before: how the files that end a run stood when the sweep came to it.
    """

    overrides: tuple[str, ...]
    folder: Path
    number: int
    outcome: Outcome | None = None
    elsewhere: bool = False
    before: tuple = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.state()

    def state(self) -> tuple:
        """Changes whenever a run is over."""
        return tuple(_stamp(self.folder / name) for name in _LAST_FILES)

    def found(self) -> Outcome | None:
        """The outcome that the folder tells of, if it is of this sweep."""
        now = self.state()
        if now == self.before or now == (None, None):
            return None
        try:
            outcome = outcome_in(self.folder)
            return finished_elsewhere(outcome) if self.elsewhere else outcome
        except (OSError, ValueError):  # begun anew between two looks
            return None


def outcome_in(folder: Path) -> Outcome | None:
    """done or failed, as a run's folder says; None if its run is not over. Raises OSError or ValueError if unreadable."""
    reason = error_in(folder)
    if reason is not None:
        return Outcome(Status.FAILED, reason=reason)
    if not (folder / "summary.json").exists():
        return None
    return outcome_of(read_summary(folder))


def finished_elsewhere(outcome: Outcome | None) -> Outcome | None:
    """The same, as no work of this sweep."""
    return Outcome(Status.SKIPPED, outcome.test_auc) if outcome and outcome.status is Status.DONE else outcome


def outcome_of(summary: dict) -> Outcome:
    """What a summary.json stands for: a run that came to its end and yet may count as failed."""
    test_auc = summary.get("test_auc")
    test_auc = math.nan if test_auc is None else test_auc
    failed = summary.get("failed")
    return Outcome(Status.FAILED, test_auc, failed) if failed else Outcome(Status.DONE, test_auc)


class Sweep:
    """All runs of one command. A bar with the time left where stderr is a terminal; a line a run in any case."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._lock = threading.Lock()
        self._bar: tqdm | None = None

    def add(self, jobs: Sequence[Job]) -> None:
        """More runs: a sweeper that searches knows the next ones only when the last are over."""
        self.jobs += jobs
        if self._bar is None:  # smoothing=0: the time left is that of the mean run, not of the last
            self._bar = tqdm(total=len(self.jobs), desc="sweep", unit="run", disable=None, smoothing=0, dynamic_ncols=True)
        self._bar.total = len(self.jobs)
        self._bar.refresh()

    def tell(self, job: Job, outcome: Outcome) -> None:
        """A run is over: note it, and say so once."""
        with self._lock:
            if job.outcome is not None:  # told of already, from its folder; the run itself knows whose work it was
                job.outcome = outcome
                return
            job.outcome = outcome
            place = sum(job.outcome is not None for job in self.jobs)
            if outcome.status is Status.SKIPPED and self._bar is not None and not self._bar.disable:
                self._bar.initial += 1  # it took no time, so it says nothing on the time left
            line = self._line(job, outcome, f"{place}/{len(self.jobs)}")
            tqdm.write(line, file=sys.stderr if outcome.status is Status.FAILED else sys.stdout)
            sys.stdout.flush()
            if self._bar is not None:
                self._bar.update()

    def _line(self, job: Job, outcome: Outcome, place: str) -> str:
        auc = "undefined" if math.isnan(outcome.test_auc) else f"{outcome.test_auc:.4f}"
        if outcome.status is Status.SKIPPED:
            return f"finished before, so not computed again (overwrite=true would): {job.folder}, test AUC {auc}"
        if outcome.status is Status.FAILED:
            return f"failed: {' '.join(self.own(job))}: {outcome.reason}"
        return f"done ({place}): {job.folder}, test AUC {auc}"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile runs are told of as they end, in whatever process: their folders are looked at again and again."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_POLL_SECONDS):
                self.look()
                if self._bar is not None:
                    self._bar.refresh()  # the time that passed

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look()

    def look(self) -> None:
        for job in self.jobs:
            outcome = job.found() if job.outcome is None else None
            if outcome is not None:
                self.tell(job, outcome)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def own(self, job: Job) -> list[str]:
        """The overrides of a run that not all runs share."""
        shared = set.intersection(*(set(other.overrides) for other in self.jobs))
        return [word for word in job.overrides if word not in shared] or list(job.overrides)

    def counts(self) -> Counter[Status | None]:
        return Counter(job.outcome and job.outcome.status for job in self.jobs)

    @property
    def failed(self) -> list[Job]:
        return [job for job in self.jobs if job.outcome is not None and job.outcome.status is Status.FAILED]

    def table(self) -> str:
        """How many are done, skipped and failed; folder and reason of each failed one."""
        counts = self.counts()
        lines = ["", f"{len(self.jobs)} runs", f"  done     {counts[Status.DONE]:>5}"]
        lines.append(f"  skipped  {counts[Status.SKIPPED]:>5}  (there already)")
        lines.append(f"  failed   {counts[Status.FAILED]:>5}")
        if counts[None]:
            lines.append(f"  to do    {counts[None]:>5}")
        for job in self.failed:
            reason = job.outcome.reason if job.outcome is not None else ""
            lines += ["", f"failed: {' '.join(self.own(job))}", f"  {reason}", f"  {job.folder}"]
        return "\n".join(lines)

    def told_when_stopped(self) -> str:
        """For one who stops a sweep half way."""
        counts = self.counts()
        finished = counts[Status.DONE] + counts[Status.SKIPPED]
        failed = f", {counts[Status.FAILED]} failed" if counts[Status.FAILED] else ""
        return (
            f"sweep stopped: of {len(self.jobs)} runs {finished} are finished{failed}; the same command goes on with the "
            "others, from what was saved of those that were begun"
        )


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
