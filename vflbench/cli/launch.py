"""How a sweep's runs are launched: around Hydra's launcher of choice, so that no run is lost for another's sake.

Hydra's sweepers hand a batch of runs to a launcher: basic (one after the other), joblib, submitit, Ray. Here what was
finished before is taken out, the rest is launched, what another process was at work on is tried again when that one is done,
and what failed is only noted: Hydra would end a sweep at the first failed batch.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from tqdm import tqdm

from vflbench.cli.composed import Composed
from vflbench.cli.sweep import Job, Outcome, Status, Sweep, finished_elsewhere, outcome_of
from vflbench.results.folder import Earlier, FolderError, is_busy, leave_error, look
from vflbench.results.read import read_summary
from vflbench.run.interruption import Interrupted
from vflbench.run.provenance import changed_source

_LOOK_AGAIN_SECONDS = 0.5
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextmanager
def surviving(sweep: Sweep) -> Iterator[None]:
    """While entered, Hydra's launchers are wrapped. Hydra has no other door: a plugin could not wrap another."""
    original = Plugins.instantiate_launcher

    def instantiate(self: Plugins, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
        inner = original(self, hydra_context=hydra_context, task_function=task_function, config=config)
        return SurvivingLauncher(inner, hydra_context, config, sweep)

    Plugins.instantiate_launcher = instantiate
    try:
        yield
    finally:
        Plugins.instantiate_launcher = original


class SurvivingLauncher(Launcher):
    """inner: whom `hydra/launcher=` names."""

    def __init__(self, inner: Launcher, hydra_context: HydraContext, config: DictConfig, sweep: Sweep):
        self.inner, self.hydra_context, self.config, self.sweep = inner, hydra_context, config, sweep
        self.loader = hydra_context.config_loader
        self.composed = Composed(self.loader)
        hydra_context.config_loader = self.composed
        self.numbered = False  # whether a folder bears its run's number: leaving runs out must not change the others'

    def setup(self, **_: Any) -> None:
        """The inner launcher has been."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Every run to its end or its failure. Returns test AUCs, nan for what failed."""
        setup_globals()
        configs = [self.composed.take(self.config, list(overrides)) for overrides in job_overrides]
        places = [place(config, initial_job_idx + i) for i, config in enumerate(configs)]
        jobs = [Job(tuple(job_overrides[i]), folder, initial_job_idx + i) for i, (folder, _) in enumerate(places)]
        self.sweep.add(jobs)
        self.numbered = bool(places) and place(configs[0], initial_job_idx + len(places))[0] != places[0][0]
        for job, (_, chosen) in zip(jobs, places, strict=True):
            if not self.numbered:
                skip_finished(job, chosen, self.sweep)
        del configs, places
        with self.sweep.watched(), self._real_loader(), stoppable():
            self._launch_all(jobs)
        return [_returned(job) for job in jobs]

    def _launch_all(self, jobs: Sequence[Job]) -> None:
        """Also those that another process is at work on: when it is done, whatever it left undone is done here."""
        tried = told = False
        while waiting := [job for job in jobs if job.outcome is None]:
            free = [job for job in waiting if not tried or not is_busy(job.folder)]
            if not free:
                time.sleep(_LOOK_AGAIN_SECONDS)
                continue
            error, tried = self._launch(free), True
            stuck = [job for job in free if job.outcome is None and not is_busy(job.folder)]
            if error is not None and len(stuck) == len(free):  # nothing comes of launching them again
                reason = f"the run ended without a word: {told_of(error)}"
                for job in stuck:
                    leave_error(job.folder, reason, error)
                    self.sweep.tell(job, Outcome(Status.FAILED, reason=reason))
            busy = [job.folder.name for job in jobs if job.outcome is None and job.elsewhere]
            if busy and not told:
                told = True
                tqdm.write(f"waiting for another process, which is at work on {len(busy)} of these runs: {', '.join(busy)}")

    def _launch(self, jobs: Sequence[Job]) -> Exception | None:
        """Once. Returns what the launcher itself ran into: a worker that was killed, say."""
        cores = _cores()
        width = cores if type(self.inner).__name__ == "LocalLauncher" else len(jobs)  # submitit starts all at once
        for part in _parts(jobs, width, in_order=self.numbered):
            with self._threads(len(part), cores):
                try:
                    returned = self.inner.launch([job.overrides for job in part], part[0].number)
                except Exception as error:
                    self.sweep.look()
                    return error
            for job, one in zip(part, returned, strict=True):
                outcome = outcome_returned(one)
                if outcome.status is not Status.BUSY:
                    self.sweep.tell(job, outcome)
                    continue
                job.elsewhere = True
                if job.outcome is not None:
                    job.outcome = finished_elsewhere(job.outcome)
        return None

    @contextmanager
    def _threads(self, runs: int, cores: int) -> Iterator[None]:
        """Processes at work at once share the cores: no more workers than runs, and cores / workers threads each.

        joblib tells its workers so by itself (from n_jobs); submitit's local jobs inherit the environment. Elsewhere, and
        where the user has set OMP_NUM_THREADS, nothing is changed.
        """
        options = getattr(self.inner, "joblib", None)
        if isinstance(options, Mapping) and "n_jobs" in options:
            wanted = int(options["n_jobs"])
            workers = wanted if wanted > 0 else max(1, cores + 1 + wanted)
            options["n_jobs"] = min(workers, runs)
            try:
                yield
            finally:
                options["n_jobs"] = wanted
            return
        mine = [name for name in _THREADS if name not in os.environ] if type(self.inner).__name__ == "LocalLauncher" else []
        os.environ.update(dict.fromkeys(mine, str(max(1, cores // runs))))
        try:
            yield
        finally:
            for name in mine:
                del os.environ[name]

    @contextmanager
    def _real_loader(self) -> Iterator[None]:
        """Launchers pickle the context for their workers."""
        self.hydra_context.config_loader = self.loader
        try:
            yield
        finally:
            self.hydra_context.config_loader = self.composed


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends a sweep as Ctrl-C does. A run in this process takes both to itself while it trains."""

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


def _parts(jobs: Sequence[Job], width: int, *, in_order: bool) -> list[list[Job]]:
    """At most so many a part; in_order: their numbers without a gap, as a launcher counts on from the first."""
    parts: list[list[Job]] = []
    for job in jobs:
        follows = bool(parts) and (not in_order or job.number == parts[-1][-1].number + 1)
        if follows and len(parts[-1]) < width:
            parts[-1].append(job)
        else:
            parts.append([job])
    return parts


def place(config: DictConfig, number: int) -> tuple[Path, dict[str, Any]]:
    """The folder in which Hydra would run this job, and the job's options, resolved where they can be."""
    before = HydraConfig.instance().cfg
    with read_write(config.hydra.job), open_dict(config.hydra.job):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
    HydraConfig.instance().set_config(config)
    try:
        folder = Path(os.path.abspath(os.path.join(str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir))))
        own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        return folder, OmegaConf.to_container(own, resolve=True)
    finally:
        HydraConfig.instance().cfg = before


def skip_finished(job: Job, options: Mapping[str, Any], sweep: Sweep) -> None:
    """What was finished before is only told of, quickly: nothing that trains is imported."""
    if options.get("overwrite") or (job.folder / "error.txt").exists():
        return
    try:
        if look(job.folder, options) is not Earlier.FINISHED:
            return
        outcome = outcome_of(read_summary(job.folder))
        notice = changed_source(options, job.folder)
    except (FolderError, OSError, ValueError):  # the run itself will say what is wrong
        return
    sweep.tell(job, outcome if outcome.status is Status.FAILED else Outcome(Status.SKIPPED, outcome.test_auc))
    if notice:
        tqdm.write(notice)


def outcome_returned(returned: JobReturn) -> Outcome:
    """What a launcher handed back of a run."""
    value = returned._return_value
    if returned.status is JobStatus.COMPLETED and isinstance(value, Outcome):
        return value
    return Outcome(Status.FAILED, reason=told_of(value) if isinstance(value, Exception) else f"it returned {value!r}")


def told_of(error: Exception) -> str:
    """In one paragraph."""
    from vflbench.cli.mistakes import describe  # late: it knows all that can be chosen, and so imports what trains

    return describe(error) or f"{type(error).__name__}: {error}"


def _returned(job: Job) -> JobReturn:
    returned = JobReturn(overrides=list(job.overrides), working_dir=os.getcwd(), status=JobStatus.COMPLETED)
    returned.return_value = job.outcome.test_auc if job.outcome is not None else float("nan")
    return returned


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
