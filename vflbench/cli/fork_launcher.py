"""`hydra/launcher=fork`, the default of `-m`: several runs at once on this machine, each in a fork of a warm process.

The configs of all runs are composed here, once; what trains is loaded once, in the process that forks (`fork_server`). Each
run has a process of its own, so that what becomes of one costs the others nothing.
"""

import os
import pickle  # nosec  (for our own processes)
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from glob import glob
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from vflbench.cli.environment import THREADS, usable_cores
from vflbench.cli.fork_pool import Pool, Work
from vflbench.cli.workers import distinct_words, failed

_GPUS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")
"""Files of the drivers of NVIDIA, of AMD, and of Windows' subsystem for Linux."""


def fork_launcher(given: Mapping[Any, Any]) -> "ForkLauncher":
    """The launcher with these options. Raises UserError."""
    if dict(given) == {"n_jobs": None, "start": "auto"}:
        return ForkLauncher(None, "auto")
    from vflbench.cli.components import construct  # late: sweeps of finished runs check nothing else by it
    from vflbench.cli.fork_options import ForkOptions

    options = construct(ForkOptions, given, "hydra.launcher")
    return ForkLauncher(options.n_jobs, options.start)


class ForkLauncher(Launcher):
    """compose: makes a run's config of the sweep's and of overrides; what keeps composed configs may take its place."""

    def __init__(self, n_jobs: int | None, start: str):
        self.n_jobs, self.start = n_jobs, start
        self.compose: Callable[[DictConfig, list[str]], DictConfig] | None = None
        self.config: DictConfig | None = None
        self._pool: Pool | None = None
        self._early = False  # whether the pool was made before the number of jobs was known

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.compose, self.config = hydra_context.config_loader.load_sweep_config, config

    def warm_up(self, config: DictConfig) -> None:
        """Begin the process that runs are forked from, while the configs of others than this one are composed."""
        if self._pool is None and not may_use_gpu(config.get("device")):
            self._pool_for(usable_cores()).warm_up()
            self._early = True

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run every job; returns when each has ended. A job whose process was lost is returned as a failure."""
        jobs = [partial(self._work, list(words), initial_job_idx + i) for i, words in enumerate(job_overrides)]
        return [_returned(one) for one in self._pool_for(len(jobs)).compute(jobs, distinct_words(job_overrides))]

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _work(self, overrides: list[str], number: int) -> Work:
        """A job, composed here: processes read no configs."""
        assert self.compose is not None
        assert self.config is not None
        config = self.compose(self.config, overrides)
        with read_write(config.hydra.job), open_dict(config.hydra.job):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
        return Work(pickle.dumps(config), on_gpu=may_use_gpu(config.get("device")))

    def _pool_for(self, jobs: int) -> Pool:
        """Processes that share the cores. They stay for later jobs, unless those could be more at once."""
        cores = usable_cores()
        width = min(self.n_jobs or cores, jobs)
        if self._pool is not None and (self._pool.width < width or (self._early and self._pool.width > width)):
            self.close()
        self._early = False
        if self._pool is None:
            threads = {name: str(max(1, cores // width)) for name in THREADS if name not in os.environ}
            forks = self.start != "spawn" and sys.platform == "linux"
            on_gpus = width if self.n_jobs else 1
            self._pool = Pool(width, on_gpus=on_gpus, forks=forks, environment=threads)
        return self._pool


def may_use_gpu(device: Any) -> bool:
    """Whether a run may begin CUDA, which works in no fork. device: an option."""
    if device == "auto":
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        return not hidden and any(glob(pattern) for pattern in _GPUS)
    return device != "cpu"


def _returned(result: Any) -> JobReturn:
    if isinstance(result, Exception):
        return failed(result)
    returned = JobReturn(status=JobStatus.COMPLETED)
    returned.return_value = result
    return returned
