"""`hydra/launcher=processes`, the default of `-m`: runs of a sweep, several at once, each in a process of its own.

The processes are forks of one that has loaded what trains (multiprocessing's forkserver). What becomes of one run costs the
others nothing.
"""

import math
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from glob import glob
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hydra import version
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write
from tqdm import tqdm

from vflbench.cli.environment import THREADS, usable_cores
from vflbench.cli.outcome import JobOutcome, Status
from vflbench.errors import UserError
from vflbench.results.folder import is_busy, leave_error
from vflbench.run.interruption import Interrupted, Interruption

_LOADED = ("vflbench.cli.train", "vflbench.cli.build", "vflbench.cli.record", "vflbench.cli.mistakes")
"""What the process that is forked has imported."""

_GPUS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")
"""Files of the drivers of NVIDIA, of AMD, and of Windows' subsystem for Linux."""

_LOOK_SECONDS = 0.5
Report = Callable[[int, JobOutcome], None]


class ProcessesLauncher(Launcher):
    """n_jobs: runs at once, which share the cores as threads; None: as many as there are cores, and one on a GPU."""

    def __init__(self, n_jobs: int | None = None):
        if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
            raise UserError("it must be 1 or more, or null for as many as there are cores", key="hydra.launcher.n_jobs", value=n_jobs)
        self.n_jobs = n_jobs
        self.processes = get_context("forkserver")

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run every job; returns when each has ended."""
        load = self.hydra_context.config_loader.load_sweep_config
        configs = [numbered(load(self.config, list(words)), initial_job_idx + i) for i, words in enumerate(job_overrides)]
        folders = [Path(os.path.abspath(str(config.hydra.sweep.dir))) for config in configs]
        outcomes = self.run(dict(enumerate(configs)), folders, lambda number, outcome: None)
        return [_returned(outcomes[number]) for number in range(len(configs))]

    def warm_up(self, jobs: int) -> None:
        """Begin the process that runs are forked from; `jobs` of them share the cores."""
        threads = max(1, usable_cores() // min(self.n_jobs or usable_cores(), jobs))
        for name in THREADS:
            os.environ.setdefault(name, str(threads))
        self.processes.set_forkserver_preload(list(_LOADED))
        forkserver.ensure_running()

    def run(self, configs: dict[int, DictConfig], folders: Sequence[Path], report: Report) -> dict[int, JobOutcome]:
        """Run all; `report` is called as soon as one has ended. folders: of their results.

        A run whose process was lost is begun once more, after the others. One on which another command is at work is begun
        when that has ended. After Ctrl-C or SIGTERM, runs are asked to save what they have: raises Interrupted.
        """
        outcomes: dict[int, JobOutcome] = {}
        waiting, lost = deque(configs), set[int]()
        at_work: dict[Connection, tuple[int, BaseProcess]] = {}
        width = self.n_jobs or (1 if any(may_use_gpu(config.get("device")) for config in configs.values()) else usable_cores())
        self.warm_up(len(configs))
        stopping = announced = False
        try:
            with Interruption() as interruption:
                while at_work or (waiting and not stopping):
                    if interruption.asked and not stopping:
                        stopping = True
                        for _, process in at_work.values():
                            process.terminate()  # once: a second SIGTERM means to stop without saving
                    for number in [] if stopping else _free(waiting, folders, width - len(at_work)):
                        waiting.remove(number)
                        at_work.update([self._begin(number, configs[number])])
                    if waiting and not at_work and not announced:
                        announced = True
                        tqdm.write(f"waiting for another process, which is at work on {len(waiting)} of these runs")
                    for connection in wait(list(at_work), _LOOK_SECONDS):
                        assert isinstance(connection, Connection)
                        number, process = at_work.pop(connection)
                        outcome = _received(connection, process)
                        if stopping and outcome is None:
                            continue
                        if outcome is None and number not in lost:
                            lost.add(number)
                            waiting.append(number)
                            tqdm.write(f"{folders[number].name}: {_how(process)}; begun again after the others")
                        elif outcome is not None and outcome.status is Status.BUSY:
                            waiting.append(number)
                        else:
                            outcomes[number] = outcome or _failed(folders[number], _how(process))
                            report(number, outcomes[number])
                if stopping:
                    raise Interrupted("the runs that were at work go on from what they saved last", 128 + interruption.asked)
        finally:
            for _, process in at_work.values():
                process.kill()
        return outcomes

    def _begin(self, number: int, config: DictConfig) -> tuple[Connection, tuple[int, BaseProcess]]:
        ours, its = self.processes.Pipe()
        process = self.processes.Process(target=_work, args=(its, self.hydra_context, self.task, config), name=f"run {number}")
        process.start()
        its.close()  # so that `ours` ends with the process
        return ours, (number, process)


def numbered(config: DictConfig, number: int) -> DictConfig:
    """The config of a sweep's run of this number."""
    with read_write(config.hydra.job), open_dict(config.hydra.job):
        config.hydra.job.num, config.hydra.job.id = number, str(number)
    return config


def may_use_gpu(device: Any) -> bool:
    """Whether a run may compute on a GPU. device: an option."""
    if device == "auto":
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        return not hidden and any(glob(pattern) for pattern in _GPUS)
    return device != "cpu"


def _work(connection: Connection, context: HydraContext, task: TaskFunction, config: DictConfig) -> None:
    """In the new process: one run, as Hydra's own launchers do it."""
    os.setsid()  # a terminal's Ctrl-C reaches the sweep alone, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup_globals()
    version.setbase("1.3")
    try:
        keys = {"job_dir_key": "hydra.sweep.dir", "job_subdir_key": "hydra.sweep.subdir"}
        connection.send(run_job(hydra_context=context, task_function=task, config=config, **keys).return_value)
    except KeyboardInterrupt:
        sys.exit(130)


def _end_with_parent() -> None:
    """A sweep that was killed leaves no runs behind."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def _free(waiting: Iterable[int], folders: Sequence[Path], room: int) -> list[int]:
    """As many as there is room for, of those on which no other command is at work."""
    return [number for number in waiting if not is_busy(folders[number])][: max(0, room)]


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


def _failed(folder: Path, reason: str) -> JobOutcome:
    leave_error(folder, reason, UserError(reason))
    return JobOutcome(Status.FAILED, reason=reason)


def _returned(outcome: JobOutcome) -> JobReturn:
    returned = JobReturn(status=JobStatus.COMPLETED)
    returned.return_value = outcome.test_auc
    return returned
