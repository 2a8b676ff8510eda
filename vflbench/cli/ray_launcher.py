"""`hydra/launcher=ray`: each run of a sweep is a task of Ray, on this machine or on a cluster.

The published hydra-ray-launcher can't be installed beside what we pin (it wants cloudpickle < 3), and gives up at the first
worker that is lost. Here what a lost worker left is taken up by the next attempt, from its checkpoint. The lock of the run's
folder keeps two attempts apart, such as one whose machine was taken for lost and works on.
"""

import logging
import os
import pickle  # nosec  (of our own objects, to our own workers, over Ray's own connection)
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict
from pydantic import ValidationError
from tqdm import tqdm

from vflbench import __version__
from vflbench.cli.environment import THREADS, usable_cores
from vflbench.cli.workers import LostRunError, NoClusterError, distinct_words, failed
from vflbench.errors import UserError
from vflbench.options import Cores, Devices, Gibibytes, Retries, options
from vflbench.places import pip_install

_GRACE_SECONDS = 30.0
"""How long runs that are stopped may take to save what they have."""
_ANSWER_SECONDS = 10.0
_OBJECT_STORE = 80 << 20  # bytes; the smallest that Ray accepts is 75 MiB, and a result has some kilobytes
_PASSED_ON = (*THREADS, "OMP_WAIT_POLICY", "HYDRA_FULL_ERROR")
"""Environment variables of this process that hold for its runs, beside those that begin with VFLBENCH_."""


@options
class RayOptions:
    """What stands under hydra.launcher; configs/hydra/launcher/ray.yaml explains each."""

    address: str = "local"
    cpus: Cores = 1
    gpus: Devices = 0.0
    memory_gb: Gibibytes | None = None
    retries: Retries = 3

    def __post_init__(self) -> None:
        if "://" in self.address:
            problem = "a sweep is started on a machine of the cluster: it must be local, auto, or HOST:PORT of its head"
            raise UserError(problem, key="address", value=self.address)
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise UserError("above 1 it must be a whole number", key="gpus", value=self.gpus)


@dataclass(frozen=True)
class _Place:
    """Where a run is to be computed, and with what; read before anything that counts threads is loaded."""

    folder: str
    sweep_folder: str
    environment: Mapping[str, str]
    version: str = __version__


def ray_launcher(given: Mapping[Any, Any]) -> "RayLauncher":
    """The launcher with these options. Raises UserError."""
    try:
        return RayLauncher(RayOptions(**given))
    except (TypeError, ValidationError):
        from vflbench.cli.components import construct

        return RayLauncher(construct(RayOptions, given, "hydra.launcher"))


class RayLauncher(Launcher):
    def __init__(self, given: RayOptions):
        self.options = given
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None
        self.config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run every job; returns when each has ended. A job whose workers were lost is returned as a failure."""
        assert self.config is not None
        setup_globals()
        sweep_folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        sweep_folder.mkdir(parents=True, exist_ok=True)
        passed_on = {name: value for name, value in os.environ.items() if name.startswith("VFLBENCH_") or name in _PASSED_ON}
        place = _Place(os.getcwd(), str(sweep_folder), dict.fromkeys(THREADS, str(self.options.cpus)) | passed_on)
        with connected(self.options):
            jobs = [self._packed(list(words), initial_job_idx + i) for i, words in enumerate(job_overrides)]
            return self._gather(place, jobs, distinct_words(job_overrides))

    def _packed(self, overrides: list[str], number: int) -> bytes:
        """The job, composed here: workers read no configs."""
        assert self.hydra_context is not None
        assert self.config is not None
        config = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config.hydra.job):
            config.hydra.job.id = config.hydra.job.num = number
        return _pickled((config, self.task_function, self.hydra_context, Singleton.get_state()))

    def _gather(self, place: _Place, jobs: Sequence[bytes], names: Sequence[str]) -> list[JobReturn]:
        import ray

        given = self.options
        resources: dict[str, Any] = {"num_cpus": given.cpus, "num_gpus": given.gpus, "max_retries": 0}
        if given.memory_gb is not None:
            resources["memory"] = int(given.memory_gb * 2**30)
        start = ray.remote(**resources)(_run).remote
        returned: dict[int, JobReturn] = {}
        attempts = [1] * len(jobs)
        at_work = {start(place, job): number for number, job in enumerate(jobs)}
        try:
            while at_work:
                (ended,), _ = ray.wait(list(at_work), num_returns=1)
                number = at_work.pop(ended)
                try:
                    returned[number] = pickle.loads(ray.get(ended))  # nosec  (what our own worker made)
                except ray.exceptions.RayTaskError as error:
                    returned[number] = failed(error.cause if isinstance(error.cause, Exception) else error)
                except ray.exceptions.RayError as error:
                    reason = f"its worker was lost ({' '.join(str(error).split())[:200]})"
                    if attempts[number] > given.retries:
                        returned[number] = failed(LostRunError(f"{reason}, {attempts[number]} times"))
                        continue
                    tqdm.write(f"{names[number]}: {reason}; begun again, {attempts[number]} of {given.retries}")
                    attempts[number] += 1
                    at_work[start(place, jobs[number])] = number
        finally:
            _stop(list(at_work))
        return [returned[number] for number in range(len(jobs))]


def _stop(tasks: list[Any]) -> None:
    """Ctrl-C: those that wait are cancelled, those at work save what they have; after some time they are killed."""
    import ray

    if not tasks:
        return
    for force in (False, True):
        for task in tasks:
            ray.cancel(task, force=force)
        _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=_GRACE_SECONDS)
        if not tasks:
            return


@contextmanager
def connected(given: RayOptions) -> Iterator[None]:
    """While entered, this process is connected to Ray. A Ray of the sweep's own is begun and ended."""
    local = given.address == "local"
    if local and given.cpus > usable_cores():
        problem = f"this machine has {usable_cores()} cores that may be used"
        raise NoClusterError(problem, key="hydra.launcher.cpus", value=given.cpus)
    _set_environment(local)
    begun: dict[str, Any] = {"num_cpus": usable_cores(), "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    with _connecting():
        try:
            import ray

            if ":" in given.address:  # Ray itself would ask for minutes
                host, _, port = given.address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
            ray.init(given.address, log_to_driver=False, logging_level=logging.ERROR, **(begun if local else {}))
        except ImportError as error:
            raise NoClusterError(f"it needs Ray: {pip_install('ray')}", key="hydra/launcher", value="ray") from error
        except (OSError, RuntimeError, ValueError) as error:
            problem = f"Ray does not answer there ({' '.join(str(error).split())[:300]}); `ray start --head` starts it"
            raise NoClusterError(problem, key="hydra.launcher.address", value=given.address) from error
    try:
        yield
    finally:
        ray.shutdown()


def _set_environment(local: bool) -> None:
    """What Ray reads when it is imported, unless the user chose otherwise.

    A Ray of the sweep's own listens to this machine only (by default to every network), and has a token of its own (by
    default one that it leaves in the home folder). A cluster that was started where there is a token asks for it.
    """
    chosen = {"RAY_USAGE_STATS_ENABLED": "0"}
    has_token = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if local:
        chosen |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
        chosen |= {} if has_token else {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    elif has_token or Path("~/.ray/auth_token").expanduser().exists():
        chosen |= {"RAY_AUTH_MODE": "token"}
    for name, value in chosen.items():
        os.environ.setdefault(name, value)


def _run(place: _Place, packed: bytes) -> bytes:
    """In a worker: one run, as Hydra's other launchers do it."""
    os.environ.update(place.environment)
    if place.version != __version__:
        problem = f"{socket.gethostname()} has vflbench {__version__}, and the sweep was started by {place.version}"
        raise UserError(problem, key="hydra/launcher", value="ray")
    for folder in (place.folder, place.sweep_folder):
        if not os.path.isdir(folder):
            problem = f"{socket.gethostname()} has no such folder; the machines of a cluster must share it, under one name"
            raise UserError(problem, key="hydra.sweep.dir", value=folder)
    os.chdir(place.folder)
    config, function, context, singletons = pickle.loads(packed)  # nosec  (what our own sweep made)
    setup_globals()
    Singleton.set_state(singletons)
    HydraConfig.instance().set_config(config)
    returned = run_job(
        hydra_context=context,
        task_function=function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    return _pickled(returned)


def _pickled(what: Any) -> bytes:
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(what))


@contextmanager
def _connecting() -> Iterator[None]:
    """While entered, the present folder is that of Python's own library. At the end, it and SIGTERM's handler are as before.

    Ray puts the present folder first on its workers' path, so that modules in it would shadow Python's, and handles SIGTERM.
    """
    here, is_main = os.getcwd(), threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    os.chdir(os.path.dirname(os.__file__))
    try:
        yield
    finally:
        os.chdir(here)
        if is_main:
            signal.signal(signal.SIGTERM, handler)
