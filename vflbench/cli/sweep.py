"""The state of a sweep's runs: reported while it goes on, and as a table at its end. Reads the runs' folders only."""

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
from typing import Any

from tqdm import tqdm

from vflbench.results.files import ERROR, SUMMARY, is_finished
from vflbench.results.folder import error_in
from vflbench.results.read import read_summary

_POLL_SECONDS = 0.2
Stamp = tuple[int, int] | None
"""A file's time and inode; None where there is no file."""


class Status(StrEnum):
    """done: by this sweep. skipped: finished before, by any command. busy: another process is at work on it."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    BUSY = "busy"


@dataclass(frozen=True)
class JobOutcome:
    """How a run ended. reason: of a failure, in one paragraph. test_auc: nan where there is none.

    folder: where the results are, if not where the sweep planned them: of a worker that found plug-ins or data edited.
    """

    status: Status
    test_auc: float = math.nan
    reason: str = ""
    folder: str = ""


@dataclass
class Job:
    """One run of a sweep. number: its place in the sweep. elsewhere: another process is at work on it.

    before: the state of its folder when the sweep began.
    """

    overrides: tuple[str, ...]
    folder: Path
    number: int
    outcome: JobOutcome | None = None
    elsewhere: bool = False
    before: tuple[Stamp, Stamp] = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.state()

    def state(self) -> tuple[Stamp, Stamp]:
        """The stamps of summary.json and error.txt: one of the files is written when a run ends, in whatever process."""
        return _stamp(self.folder / SUMMARY), _stamp(self.folder / ERROR)

    def outcome_on_disk(self) -> JobOutcome | None:
        """The outcome in the folder, if the run ended during this sweep."""
        now = self.state()
        if now == self.before or now == (None, None):
            return None
        try:
            outcome = outcome_in(self.folder)
            return finished_elsewhere(outcome) if self.elsewhere else outcome
        except (OSError, ValueError):  # another attempt began between two looks
            return None


def outcome_in(folder: Path) -> JobOutcome | None:
    """Done or failed, as a run's folder says; None if the run has not ended. Raises OSError or ValueError if unreadable."""
    reason = error_in(folder)
    if reason is not None:
        return JobOutcome(Status.FAILED, reason=reason)
    if not is_finished(folder):
        return None
    return outcome_of(read_summary(folder))


def finished_elsewhere(outcome: JobOutcome | None) -> JobOutcome | None:
    """The same outcome, counted as another process's work."""
    return JobOutcome(Status.SKIPPED, outcome.test_auc) if outcome and outcome.status is Status.DONE else outcome


def outcome_of(summary: dict[str, Any]) -> JobOutcome:
    """The outcome in a summary.json: a run that reached its end may still count as failed."""
    test_auc = summary.get("test_auc")
    test_auc = math.nan if test_auc is None else test_auc
    failed = summary.get("failed")
    return JobOutcome(Status.FAILED, test_auc, failed) if failed else JobOutcome(Status.DONE, test_auc)


class Sweep:
    """All runs of one command: prints a line for each, and shows a bar with the time left if stderr is a terminal."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._bar: tqdm[Any] | None = None

    def add(self, jobs: Sequence[Job]) -> None:
        """Add runs. A sweeper that searches chooses the next runs only when the last ones have ended."""
        self.jobs += jobs
        if self._bar is None:  # smoothing=0: the time left follows from the mean run, not from the last
            self._bar = tqdm(total=len(self.jobs), desc="sweep", unit="run", disable=None, smoothing=0, dynamic_ncols=True)
        self._bar.total = len(self.jobs)
        self._bar.refresh()

    def report(self, job: Job, outcome: JobOutcome) -> None:
        """Record that a run ended, and print it once."""
        with self._lock:
            if job.outcome is not None:  # printed already, from its folder; only the run itself knows whose work it was
                job.outcome = outcome
                return
            job.outcome = outcome
            place = sum(job.outcome is not None for job in self.jobs)
            if outcome.status is Status.SKIPPED and self._bar is not None and not self._bar.disable:
                self._bar.initial += 1  # it took no time, so it does not count for the time left
            line = self._line(job, outcome, f"{place}/{len(self.jobs)}")
            tqdm.write(line, file=sys.stderr if outcome.status is Status.FAILED else sys.stdout)
            sys.stdout.flush()
            if self._bar is not None:
                self._bar.update()

    def _line(self, job: Job, outcome: JobOutcome, place: str) -> str:
        folder = outcome.folder or str(job.folder)
        auc = "undefined" if math.isnan(outcome.test_auc) else f"{outcome.test_auc:.4f}"
        if outcome.status is Status.SKIPPED:
            return f"finished before, so not computed again (overwrite=true would): {folder}, test AUC {auc}"
        if outcome.status is Status.FAILED:
            return f"failed: {' '.join(self.distinct_overrides(job))}: {outcome.reason}"
        edited = "" if folder == str(job.folder) else " (plug-ins, data or code were edited while this sweep ran)"
        return f"done ({place}): {folder}, test AUC {auc}{edited}"

    def say_once(self, line: str) -> None:
        """Print a line, unless it was printed before."""
        if line not in self._said:
            self._said.add(line)
            tqdm.write(line)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While entered, report runs as they end, in whatever process: look at their folders repeatedly."""
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
        """Report the runs that have ended since the last look."""
        for job in self.jobs:
            outcome = job.outcome_on_disk() if job.outcome is None else None
            if outcome is not None:
                self.report(job, outcome)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def distinct_overrides(self, job: Job) -> list[str]:
        """The overrides of a run that are not common to all runs."""
        shared = set.intersection(*(set(other.overrides) for other in self.jobs))
        return [word for word in job.overrides if word not in shared] or list(job.overrides)

    def counts(self) -> Counter[Status | None]:
        return Counter(None if job.outcome is None else job.outcome.status for job in self.jobs)

    @property
    def failed(self) -> list[Job]:
        return [job for job in self.jobs if job.outcome is not None and job.outcome.status is Status.FAILED]

    def table(self) -> str:
        """How many runs are done, skipped and failed; the folder of each failed one, and why it failed."""
        counts = self.counts()
        lines = ["", f"{len(self.jobs)} runs", f"  done     {counts[Status.DONE]:>5}"]
        lines.append(f"  skipped  {counts[Status.SKIPPED]:>5}  (there already)")
        lines.append(f"  failed   {counts[Status.FAILED]:>5}")
        if counts[None]:
            lines.append(f"  to do    {counts[None]:>5}")
        for job in self.failed:
            reason = job.outcome.reason if job.outcome is not None else ""
            lines += ["", f"failed: {' '.join(self.distinct_overrides(job))}", f"  {reason}", f"  {job.folder}"]
        return "\n".join(lines)

    def stop_message(self) -> str:
        """What to print when the user stops a sweep."""
        counts = self.counts()
        finished = counts[Status.DONE] + counts[Status.SKIPPED]
        failed = f", {counts[Status.FAILED]} failed" if counts[Status.FAILED] else ""
        return (
            f"sweep stopped: of {len(self.jobs)} runs {finished} are finished{failed}; the same command goes on with the "
            "others, and resumes those that had begun"
        )


def _stamp(file: Path) -> Stamp:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
