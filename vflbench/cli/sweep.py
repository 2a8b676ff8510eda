"""The state of a sweep's runs: reported while it goes on, and as a table at its end. Reads the runs' folders only."""

import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from vflbench.cli.sweep_failures import failures_text
from vflbench.cli.sweep_meter import SweepMeter
from vflbench.report.words import line, number
from vflbench.results.files import ERROR, SUMMARY, is_finished
from vflbench.results.folder import error_in
from vflbench.results.read import read_summary
from vflbench.results.repeated import repeated
from vflbench.results.wrapping import for_stream, path_text, wrapped

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
    """How a run ended. reason: of a failure, in one paragraph. test_auc: nan where there is none. words: what it came to.

    folder: where the results are, if not where the sweep planned them: of a worker that found plug-ins or data edited.
    """

    status: Status
    test_auc: float = math.nan
    reason: str = ""
    folder: str = ""
    words: str = ""


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
    return replace(outcome, status=Status.SKIPPED) if outcome and outcome.status is Status.DONE else outcome


def outcome_of(summary: dict[str, Any]) -> JobOutcome:
    """The outcome in a summary.json: a run that reached its end may still count as failed."""
    test_auc = summary.get("test_auc")
    test_auc = math.nan if test_auc is None else test_auc
    failed = summary.get("failed")
    return JobOutcome(Status.FAILED if failed else Status.DONE, test_auc, failed or "", words=line(summary))


class Sweep:
    """All runs of one command: prints what each came to, and how far the sweep has come."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._meter = SweepMeter()

    def add(self, jobs: Sequence[Job]) -> None:
        """Add runs. A sweeper that searches chooses the next runs only when the last ones have ended."""
        self.jobs += jobs
        self._meter.expect(len(self.jobs))

    def report(self, job: Job, outcome: JobOutcome) -> None:
        """Record that a run ended, and print it once."""
        from tqdm import tqdm  # late: of a single run, nothing is shown here

        with self._lock:
            if job.outcome is not None:  # printed already, from its folder; only the run itself knows whose work it was
                job.outcome = outcome
                return
            job.outcome = outcome
            place = sum(job.outcome is not None for job in self.jobs)
            line = self._line(job, outcome, f"{place}/{len(self.jobs)}")
            if outcome.status is Status.FAILED:
                tqdm.write(for_stream(line, sys.stderr), file=sys.stderr)
            else:
                tqdm.write(line, file=sys.stdout)
            sys.stdout.flush()
            self._meter.ended(skipped=outcome.status is Status.SKIPPED)

    def _line(self, job: Job, outcome: JobOutcome, place: str) -> str:
        folder = outcome.folder or str(job.folder)
        if outcome.status is Status.FAILED:
            alike = next((other for other in self.failed if other is not job and _reason(other) == outcome.reason), None)
            why = f"for the same reason as {' '.join(self.distinct_overrides(alike))}" if alike else outcome.reason
            return f"failed: {' '.join(self.distinct_overrides(job))}: {why}"
        start = f"done ({place}): "
        if outcome.status is Status.SKIPPED:
            start = "finished before, so not computed again (overwrite=true would): "
        what = outcome.words or f"test AUC {number(outcome.test_auc)}"
        which = f"; {' '.join(self.distinct_overrides(job))}" if len(self.jobs) > 1 else ""
        edited = "" if folder == str(job.folder) else " (plug-ins, data or code were edited while this sweep ran)"
        return "\n".join([*wrapped(f"{start}{what}{which}", "  "), f"  {path_text(Path(folder))}{edited}"])

    def say_once(self, line: str) -> None:
        """Print a line, unless it was printed before."""
        from tqdm import tqdm

        if line not in self._said:
            self._said.add(line)
            tqdm.write(line)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While entered, report runs as they end, in whatever process: look at their folders repeatedly."""

        def look() -> None:
            self.look()
            self._meter.show()

        try:
            with repeated(look, _POLL_SECONDS):
                yield
        finally:
            self.look()

    def look(self) -> None:
        """Report the runs that have ended since the last look."""
        for job in self.jobs:
            outcome = job.outcome_on_disk() if job.outcome is None else None
            if outcome is not None:
                self.report(job, outcome)

    def close(self) -> None:
        self._meter.close()

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
        """How many runs are done, skipped and failed."""
        counts = self.counts()
        lines = ["", f"{len(self.jobs)} runs", f"  done     {counts[Status.DONE]:>5}"]
        lines.append(f"  skipped  {counts[Status.SKIPPED]:>5}  (there already)")
        lines.append(f"  failed   {counts[Status.FAILED]:>5}")
        if counts[None]:
            lines.append(f"  to do    {counts[None]:>5}")
        if counts[Status.DONE] + counts[Status.SKIPPED]:
            lines += ["", f"next: vflbench report {path_text(self._common_folder())} --open"]
        return "\n".join(lines)

    def failures(self) -> str:
        """Why runs failed, each reason once, and the folders of the runs that did."""
        return failures_text((" ".join(self.distinct_overrides(job)), _reason(job), job.folder) for job in self.failed)

    def _common_folder(self) -> Path:
        """The folder that all finished runs are in."""
        ended = [(job, job.outcome) for job in self.jobs if job.outcome is not None]
        return Path(os.path.commonpath([Path(outcome.folder or job.folder).parent for job, outcome in ended]))

    def stop_message(self) -> str:
        """What to print when the user stops a sweep."""
        counts = self.counts()
        finished = counts[Status.DONE] + counts[Status.SKIPPED]
        failed = f", {counts[Status.FAILED]} failed" if counts[Status.FAILED] else ""
        return (
            f"sweep stopped: of {len(self.jobs)} runs {finished} are finished{failed}; the same command goes on with the "
            "others, and resumes those that had begun"
        )


def _reason(job: Job) -> str:
    return "" if job.outcome is None else job.outcome.reason


def _stamp(file: Path) -> Stamp:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
