"""`hydra/launcher=processes`, the default of `-m`: runs of a sweep, several at once, each in a process of its own.

The processes are forks of one that has loaded what trains (multiprocessing's forkserver). What becomes of one run costs the
others nothing.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from glob import glob
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from hydra import version
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from tqdm import tqdm

from vflbench.cli.sweep import Job, JobOutcome, Status, Sweep
from vflbench.errors import UserError

_LOADED = ("vflbench.cli.train", "vflbench.cli.build")
"""What the process that is forked has imported."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What says to the libraries of a process how many threads they may take."""

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Those that this process may use: a container or a batch system may lend it less than the machine has."""

_GPUS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")
"""Files of the drivers of NVIDIA, of AMD, and of Windows' subsystem for Linux."""

_LOOK_SECONDS = 0.5


class ProcessesLauncher(Launcher):
    """n_jobs: runs at once, which share the cores as threads; None: as many as there are cores, and one on a GPU."""

    def __init__(self, n_jobs: int | None = None):
        if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
            problem = "it must be 1 or more, or null for as many as there are cores"
            raise UserError(problem, key="hydra.launcher.n_jobs", value=n_jobs)
        self.n_jobs = n_jobs
        self.processes = get_context("forkserver")

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run every job, as Hydra asks for; returns when each has ended."""
        load = self.hydra_context.config_loader.load_sweep_config
        jobs = [Job(words, load(self.config, list(words)), initial_job_idx + i) for i, words in enumerate(job_overrides)]
        self.run(Sweep(jobs))
        return [_returned(job.outcome) for job in jobs if job.outcome is not None]

    def run(self, sweep: Sweep) -> None:
        """Run all that have no outcome yet. The sweep hears of each as soon as it has ended, and now and then of those at
        work.

        A run whose process was lost is begun once more, after the others. One on which another command is at work is begun
        when that has ended. After Ctrl-C or SIGTERM, runs are asked to save what they have: raises Interrupted.
        """
        from vflbench.results.folder import is_busy  # late, as below: Hydra loads this module to explain options
        from vflbench.run.interruption import Interruption

        jobs = [job for job in sweep.jobs if job.outcome is None]
        waiting, lost = list(jobs), set[Job]()
        at_work: dict[Connection, tuple[Job, BaseProcess]] = {}
        one = self.n_jobs is None and any(may_use_gpu(job.options.get("device")) for job in jobs)
        width = 1 if one else self.n_jobs or _CORES
        for name in _THREADS:
            os.environ.setdefault(name, str(max(1, _CORES // min(self.n_jobs or _CORES, len(jobs)))))
        self.processes.set_forkserver_preload(list(_LOADED))
        forkserver.ensure_running()
        stopping = announced = False
        try:
            with Interruption() as interruption:
                while at_work or (waiting and not interruption.asked):
                    if interruption.asked and not stopping:
                        stopping = True
                        for _, process in at_work.values():
                            process.terminate()  # once: a second SIGTERM would mean to stop without saving
                    for job in [job for job in waiting if not is_busy(job.folder)][: width - len(at_work)]:
                        if not interruption.asked:
                            waiting.remove(job)
                            self._begin(job, at_work)
                    if waiting and not at_work and not announced:
                        announced = True
                        tqdm.write(f"waiting for another process, which is at work on {len(waiting)} of these runs")
                    for connection in wait(list(at_work), _LOOK_SECONDS):
                        assert isinstance(connection, Connection)
                        job, process = at_work.pop(connection)
                        outcome = _received(connection, process)
                        if outcome is None and (interruption.asked or job not in lost):
                            waiting.append(job)
                            if not interruption.asked:
                                lost.add(job)
                                tqdm.write(f"{job.folder.name}: {_how(process)}; begun again after the others")
                        elif outcome is not None and outcome.status is Status.BUSY:
                            waiting.append(job)
                        else:
                            sweep.report(job, outcome or _lost(job, _how(process)))
                    sweep.watch([job for job, _ in at_work.values()])
                interruption.end("stopped; the same command goes on")
        finally:
            for _, process in at_work.values():
                process.kill()

    def _begin(self, job: Job, at_work: dict[Connection, tuple[Job, BaseProcess]]) -> None:
        from vflbench.run.provenance import known_hashes

        ours, its = self.processes.Pipe()
        process = self.processes.Process(target=_work, args=(its, self.hydra_context, self.task, job.config, known_hashes))
        process.start()
        its.close()  # so that `ours` ends with the process
        at_work[ours] = job, process


def may_use_gpu(device: Any) -> bool:
    """Whether a run may compute on a GPU. device: an option."""
    if device == "auto":
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        return not hidden and any(glob(pattern) for pattern in _GPUS)
    return device != "cpu"


def _work(connection: Connection, context: HydraContext, task: TaskFunction, config: DictConfig, hashes: Any) -> None:
    """In the new process: one run, as Hydra's own launchers do it. hashes: of files that the sweep has read."""
    from vflbench.run.provenance import known_hashes

    known_hashes.update(hashes)
    os.setsid()  # a terminal's Ctrl-C reaches the sweep alone, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup_globals()
    version.setbase("1.3")
    try:
        returned = run_job(task, config, "hydra.sweep.dir", "hydra.sweep.subdir", hydra_context=context)
        connection.send(returned.return_value)
    except KeyboardInterrupt:
        sys.exit(130)


def _end_with_parent() -> None:
    """A sweep that was killed leaves no runs behind."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def _received(connection: Connection, process: BaseProcess) -> JobOutcome | None:
    """What a run came to; None where its process was lost."""
    try:
        outcome: JobOutcome | None = connection.recv()
    except (EOFError, ConnectionError):
        outcome = None
    connection.close()
    process.join()
    return outcome


def _how(process: BaseProcess) -> str:
    code = process.exitcode or 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"its process ended without a result ({how})"


def _lost(job: Job, reason: str) -> JobOutcome:
    from vflbench.results.folder import leave_error

    leave_error(job.folder, reason, UserError(reason))
    return JobOutcome(Status.FAILED, reason=reason)


def _returned(outcome: JobOutcome) -> JobReturn:
    returned = JobReturn(status=JobStatus.COMPLETED)
    returned.return_value = outcome.test_auc
    return returned
