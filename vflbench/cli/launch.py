"""How the runs of a sweep are launched: around Hydra's launcher of choice, so that one failed run doesn't end the others.

Hydra's sweepers give a batch of runs to a launcher: basic (one after the other), joblib, submitit. Here runs that were
finished before are left out and the others are launched. Runs on which another process is at work are tried again when that
process is done. A failure is only recorded: Hydra would end a sweep at the first batch with a failed run.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from tqdm import tqdm

from vflbench.cli.composed import Composed
from vflbench.cli.environment import usable_cores
from vflbench.cli.fork_launcher import ForkLauncher, fork_launcher
from vflbench.cli.guard import GuardedLoader
from vflbench.cli.hydra_internals import (
    current_config,
    keep_jobs_apart,
    returned_value,
    starts_all_at_once,
    wrapped_launchers,
)
from vflbench.cli.plugins import recorded_folders
from vflbench.cli.resolvers import plain
from vflbench.cli.run_folder import refuse_shared
from vflbench.cli.shared_mistake import refuse_shared_mistake
from vflbench.cli.submitit_jobs import gathered
from vflbench.cli.sweep import Job, JobOutcome, Status, Sweep, finished_elsewhere, outcome_of
from vflbench.cli.trust import LAUNCHERS
from vflbench.cli.workers import LostRunError, NoClusterError, shared_cores, stoppable
from vflbench.results.files import ERROR, is_finished
from vflbench.results.folder import Earlier, FolderError, is_busy, leave_error, look
from vflbench.results.notices import printed_once
from vflbench.results.read import read_summary
from vflbench.run.provenance import origin_of, rounding_notices

_LOOK_AGAIN_SECONDS = 0.5


@contextmanager
def surviving(sweep: Sweep) -> Iterator[None]:
    """While entered, Hydra's launchers are wrapped in a SurvivingLauncher that reports to this sweep."""
    forking: list[ForkLauncher] = []

    def fork(given: Mapping[Any, Any]) -> ForkLauncher:
        forking.append(fork_launcher(given))
        return forking[-1]

    try:
        with printed_once(), wrapped_launchers(partial(SurvivingLauncher, sweep=sweep), {LAUNCHERS["fork"]: fork}):
            yield
    finally:
        for launcher in forking:
            launcher.close()


class SurvivingLauncher(Launcher):
    """inner: the launcher that `hydra/launcher=` names."""

    def __init__(self, inner: Launcher, hydra_context: HydraContext, config: DictConfig, sweep: Sweep):
        self.inner, self.hydra_context, self.config, self.sweep = inner, hydra_context, config, sweep
        self.loader = GuardedLoader(hydra_context.config_loader)
        self.composed = Composed(self.loader, self._begin_early if isinstance(inner, ForkLauncher) else None)
        keep_jobs_apart(inner)
        if isinstance(inner, ForkLauncher):
            inner.compose = self.composed.take
        hydra_context.config_loader = self.composed  # type: ignore[assignment]  # it has all that sweepers call
        self.numbered = False  # whether a folder's name has its run's number: then leaving runs out must not change others'

    def _begin_early(self, config: DictConfig) -> None:
        """Have what trains loaded while other runs are composed, unless the first was finished before."""
        try:
            at = place(config, 0)
        except Exception:  # which the launch will report
            return
        if isinstance(self.inner, ForkLauncher) and (at.options.get("overwrite") or not is_finished(at.folder)):
            self.inner.warm_up(config)

    def setup(self, **_: Any) -> None:
        """Nothing to do: the inner launcher is set up already."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Bring every run to its end or its failure. Returns test AUCs, nan for runs that failed."""
        setup_globals()
        configs = [self.composed.take(self.config, list(overrides)) for overrides in job_overrides]
        places = [place(config, initial_job_idx + i) for i, config in enumerate(configs)]
        jobs = [Job(tuple(job_overrides[i]), at.folder, initial_job_idx + i) for i, at in enumerate(places)]
        if not self.sweep.jobs and not any(is_finished(at.folder) for at in places):
            refuse_shared_mistake(configs)
        self.sweep.add(jobs)
        self.numbered = bool(places) and place(configs[0], initial_job_idx + len(places)).folder != places[0].folder
        refuse_shared((at.folder, at.options) for at in places)
        for job, at in zip(jobs, places, strict=True):
            if not self.numbered:
                skip_finished(job, at, self.sweep)
        del configs, places
        with self.sweep.watched(), self._real_loader(), stoppable():
            self._launch_all(jobs)
        return [_returned(job) for job in jobs]

    def _launch_all(self, jobs: Sequence[Job]) -> None:
        """Launch until each job has an outcome; those of another process when it is done, if it left them unfinished."""
        tried = announced = False
        while waiting := [job for job in jobs if job.outcome is None]:
            free = [job for job in waiting if not tried or not is_busy(job.folder)]
            if not free:
                time.sleep(_LOOK_AGAIN_SECONDS)
                continue
            error, tried = self._launch(free), True
            stuck = [job for job in free if job.outcome is None and not is_busy(job.folder)]
            if error is not None and len(stuck) == len(free):  # launching them once more would not help
                reason = f"the run ended without a message: {reason_of(error)}"
                for job in stuck:
                    leave_error(job.folder, reason, error)
                    self.sweep.report(job, JobOutcome(Status.FAILED, reason=reason))
            busy = [job.folder.name for job in jobs if job.outcome is None and job.elsewhere]
            if busy and not announced:
                announced = True
                tqdm.write(f"waiting for another process, which is at work on {len(busy)} of these runs: {', '.join(busy)}")

    def _launch(self, jobs: Sequence[Job]) -> Exception | None:
        """Launch each job once. Returns the launcher's own error, such as a worker that was killed."""
        cores = usable_cores()
        width = cores if starts_all_at_once(self.inner) else len(jobs)
        for part in _parts(jobs, width, in_order=self.numbered):
            with shared_cores(self.inner, len(part), cores), gathered(self.inner):
                try:
                    returned = self.inner.launch([job.overrides for job in part], part[0].number)
                except NoClusterError:
                    raise
                except Exception as error:
                    self.sweep.look()
                    return error
            for job, one in zip(part, returned, strict=True):
                outcome = outcome_returned(one)
                if outcome.status is not Status.BUSY:
                    if isinstance(lost := returned_value(one), LostRunError) and not is_busy(job.folder):
                        leave_error(job.folder, str(lost), lost)
                    self.sweep.report(job, outcome)
                    continue
                job.elsewhere = True
                if job.outcome is not None:
                    job.outcome = finished_elsewhere(job.outcome)
        return None

    @contextmanager
    def _real_loader(self) -> Iterator[None]:
        """While entered, the context holds Hydra's loader: launchers pickle the context for their workers."""
        self.hydra_context.config_loader = self.loader  # type: ignore[assignment]
        try:
            yield
        finally:
            self.hydra_context.config_loader = self.composed  # type: ignore[assignment]


def _parts(jobs: Sequence[Job], width: int, *, in_order: bool) -> list[list[Job]]:
    """Parts of at most `width` jobs; in_order: with consecutive numbers, as launchers count on from the first."""
    parts: list[list[Job]] = []
    for job in jobs:
        follows = bool(parts) and (not in_order or job.number == parts[-1][-1].number + 1)
        if follows and len(parts[-1]) < width:
            parts[-1].append(job)
        else:
            parts.append([job])
    return parts


@dataclass(frozen=True)
class Place:
    """Where a job runs, its resolved options, and what else decides its numbers."""

    folder: Path
    options: dict[str, Any]
    origin: dict[str, Any]


def place(config: DictConfig, number: int) -> Place:
    """The place that Hydra would choose for the job of this number."""
    with read_write(config.hydra.job), open_dict(config.hydra.job):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
    with current_config(config):
        folder = Path(os.path.abspath(os.path.join(str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir))))
        options = plain(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
    return Place(folder, options, origin_of(options, recorded_folders(config)))


def skip_finished(job: Job, at: Place, sweep: Sweep) -> None:
    """Report a run that was finished before, quickly: nothing that trains is imported."""
    if at.options.get("overwrite") or (job.folder / ERROR).exists():
        return
    try:
        if look(job.folder, at.options, at.origin) is not Earlier.FINISHED:
            return
        outcome = outcome_of(read_summary(job.folder))
        notices = rounding_notices(job.folder)
    except (FolderError, OSError, ValueError):  # the run itself will report what is wrong
        return
    sweep.report(job, outcome if outcome.status is Status.FAILED else replace(outcome, status=Status.SKIPPED))
    for notice in notices:
        sweep.say_once(notice.replace("this run was", "finished runs were"))


def outcome_returned(returned: JobReturn) -> JobOutcome:
    """The outcome in what a launcher returned for a run."""
    if isinstance(value := returned_value(returned), JobOutcome) and returned.status is JobStatus.COMPLETED:
        return value
    return JobOutcome(Status.FAILED, reason=reason_of(value) if isinstance(value, Exception) else f"it returned {value!r}")


def reason_of(error: Exception) -> str:
    """The error in one paragraph."""
    from vflbench.cli.mistakes import describe  # late: it knows all choices, and so imports what trains

    return describe(error) or f"{type(error).__name__}: {error}"


def _returned(job: Job) -> JobReturn:
    returned = JobReturn(list(job.overrides), working_dir=os.getcwd(), status=JobStatus.COMPLETED)
    returned.return_value = job.outcome.test_auc if job.outcome is not None else float("nan")
    return returned
