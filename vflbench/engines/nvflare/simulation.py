"""FLARE's simulator: the label party's process, and one more for each other party.

`python -m vflbench.engines.nvflare.simulation FILE`, with what `Simulation` takes as JSON in the file. Ends with exit code 0
once the label party's `@collab.main` has returned.

FLARE's own starter hands each process its settings as a pickle, through a port of this machine that anybody may connect to,
and polls with pauses of seconds. Here they come through a pipe of its own; all else is FLARE's. The parties' processes begin
when this one has imported what all of them need, and before it has read anything or started a thread.
"""

import copy
import importlib
import json
import multiprocessing
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from nvflare.apis.fl_constant import FLContextKey, RunnerTask, RunProcessKey
from nvflare.apis.workspace import Workspace
from nvflare.fuel.hci.server.authz import AuthorizationService
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.utils.log_utils import dynamic_log_config
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner
from nvflare.private.fed.app.simulator.simulator_worker import ClientTaskWorker
from nvflare.private.fed.app.utils import init_security_content_service
from nvflare.private.fed.simulator.simulator_audit import SimulatorAuditor
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants
from nvflare.private.fed.utils.fed_utils import fobs_initialize
from nvflare.security.security import EmptyAuthorizer

from vflbench.engines.nvflare.components import LabelPartyController
from vflbench.engines.nvflare.processes import alone, end_with, named, when_ended

CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
    "handlers": {
        "logFileHandler": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "INFO",
            "formatter": "plain",
            "filename": "log.txt",
            "mode": "a",
            "maxBytes": 20 << 20,
            "backupCount": 2,
        }
    },
    "loggers": {
        "root": {"level": "INFO", "handlers": ["logFileHandler"]},
        "nvflare.collab": {"level": "WARNING"},  # a line for each call, before and after
    },
}
"""For Python's logging.config.dictConfig, as FLARE reads it from local/log_config.json."""


_SOON, _LATER = 0.05, 0.5
_SETUP_TASKS = 2


def take_part(spec: Mapping[str, Any]) -> NoReturn:
    """Set up, take part until the server is done, and end this process."""
    try:
        _take_part(spec)
    finally:
        os._exit(0)  # FLARE leaves threads behind that would wait


def _take_part(spec: Mapping[str, Any]) -> None:
    args = Namespace(**spec["args"])
    os.chdir(args.workspace)
    for name in ("startup", "local"):
        os.makedirs(name, exist_ok=True)
    workspace = Workspace(root_dir=args.workspace, site_name=args.client)
    dynamic_log_config(spec["log"], args.workspace, workspace.get_log_config_file_path())
    fobs_initialize(workspace, job_id=SimulatorConstants.JOB_NAME)
    AuthorizationService.initialize(EmptyAuthorizer())
    AuditService.the_auditor = SimulatorAuditor()
    init_security_content_service(args.workspace)
    worker = ClientTaskWorker()
    deploy_args = Namespace(**spec["deploy_args"])
    client = worker._create_client(args, spec["build"], deploy_args)
    worker.create_client_engine(client, deploy_args)
    worker.create_client_runner(client)
    with client.run_manager.new_context() as fl_ctx:
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        done = 0
        while not runner.run_abort_signal.triggered:
            done += runner.fetch_and_run_one_task(fl_ctx)[1]
            time.sleep(_SOON if done < _SETUP_TASKS else _LATER)
        runner.end_run_events_sequence()


Party = tuple[int, Connection]
"""The id of a process, and what it is asked through."""


class Simulation(SimulatorRunner):
    """A server in this process, and a process for each client.

    job: its folder. workspace: an empty folder for the sites. sites: names of the clients. parties: one for each.
    """

    def __init__(self, job: Path, workspace: Path, sites: list[str], parties: list[Party]):
        self._parties = parties
        self._log = json.dumps(CONFIG)
        super().__init__(
            job_folder=os.fspath(job),
            workspace=os.fspath(workspace),
            clients=",".join(sites),
            threads=len(sites),
            log_config=self._log,
        )

    def go(self) -> None:
        """Run the job to its end. Raises RuntimeError where FLARE can't begin."""
        if not self.setup():
            raise RuntimeError("FLARE's simulator could not be set up")
        self.create_clients()
        self.server.engine.run_processes[SimulatorConstants.JOB_NAME] = {
            RunProcessKey.JOB_HANDLE: None,
            RunProcessKey.JOB_ID: SimulatorConstants.JOB_NAME,
            RunProcessKey.PARTICIPANTS: self.server.engine.client_manager.clients,
        }
        server = threading.Thread(target=self.start_server_app, args=[copy.deepcopy(self.args)], daemon=True)
        server.start()
        for client, (process, pipe) in zip(self.federated_clients, self._parties, strict=True):
            pipe.send(self._asked(client))
            when_ended([named(process)], partial(_report_loss, client.client_name))
        while server.is_alive() and not LabelPartyController.finished.wait(0.5):
            continue

    def _asked(self, client: Any) -> dict[str, Any]:
        """What the process of a client needs to know."""
        folder = Path(self.args.workspace) / client.client_name
        deployed = vars(copy.deepcopy(self.deploy_args)) | {"workspace": os.fspath(folder), "log_config": None}
        return {
            "log": self._log,
            "build": {**self.build_ctx, "client_name": client.client_name},
            "deploy_args": deployed,
            "args": {
                "workspace": os.fspath(folder),
                "client": client.client_name,
                "token": client.token,
                "simulator_root": self.args.workspace,
                "root_url": client.cell.get_root_url_for_child(),
                "parent_url": None,
                "task_name": str(RunnerTask.TASK_EXEC),
            },
        }


def _report_loss(site: str, _process: object) -> None:
    LabelPartyController.lost(site)


def _started(count: int, parents: list[list[float]]) -> list[Party]:
    """Processes that wait for what they are asked. On Linux they are forked: called before this process has any thread."""
    linux = sys.platform == "linux"
    context = multiprocessing.get_context("fork") if linux else multiprocessing.get_context("spawn")
    parties = []
    for _ in range(count):
        reading, writing = context.Pipe(duplex=False)
        process = context.Process(target=_wait, args=(reading, parents))
        process.start()
        parties.append((int(process.pid or 0), writing))
    return parties


def _wait(asked: Connection, parents: list[list[float]]) -> None:
    os.setsid()
    end_with(parents)
    take_part(asked.recv())


def main(file: Path) -> None:
    spec = json.loads(file.read_text(encoding="utf-8"))
    for name in spec["imports"]:
        importlib.import_module(name)
    parties = _started(len(spec["sites"]), [*spec["parents"], named(os.getpid())])
    end_with(spec["parents"])
    Simulation(Path(spec["job"]), Path(spec["workspace"]), spec["sites"], parties).go()
    if lost := LabelPartyController.too_early:
        problem = f"the process of {lost} ended before all parties were ready"
        Path(spec["problem"]).write_text(problem, encoding="utf-8")


if __name__ == "__main__":
    alone(main)
