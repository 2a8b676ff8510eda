"""FLARE's simulator: the label party's process, and one more for each other party.

`python -m vflbench.engines.nvflare.simulation FILE`, with what `Simulation` takes as JSON in the file. Ends with exit code 0
once the label party's `@collab.main` has returned.

On Linux the parties' processes are forked from this one when it has imported what all of them need, and before it has read
anything or started a thread; elsewhere they are started afresh.
"""

import copy
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import RunnerTask, RunProcessKey
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from vflbench.engines.nvflare.components import LabelPartyController
from vflbench.engines.nvflare.logs import CONFIG
from vflbench.engines.nvflare.processes import alone, end_with, named, when_ended
from vflbench.engines.nvflare.simulated_client import take_part

Starter = Callable[[Path], int]
"""Lets a process take part as a file says. Returns its id."""


class Simulation(SimulatorRunner):
    """A server in this process, and a process for each client.

    job: its folder. workspace: an empty folder for the sites. sites: names of the clients. starters: one for each.
    parents: processes without which this one ends.
    """

    def __init__(self, job: Path, workspace: Path, sites: list[str], starters: list[Starter], parents: list[list[float]]):
        self._starters = starters
        self._log = json.dumps(CONFIG)
        self._parents = parents
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
        parents = [*self._parents, named(os.getpid())]
        for client, start in zip(self.federated_clients, self._starters, strict=True):
            process = named(start(self._asked(client, parents)))
            when_ended([process], partial(_report_loss, client.client_name))
        while server.is_alive() and not LabelPartyController.finished.wait(0.5):
            continue

    def _asked(self, client: Any, parents: list[list[float]]) -> Path:
        """A file with what the process of a client needs to know."""
        folder = Path(self.args.workspace) / client.client_name
        deployed = vars(copy.deepcopy(self.deploy_args)) | {"workspace": os.fspath(folder), "log_config": None}
        spec = {
            "parents": parents,
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
        file = folder / "client.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        return file


def _report_loss(site: str, _process: object) -> None:
    LabelPartyController.lost(site)


def forked(count: int) -> list[Starter]:
    """Processes that wait for a file each, and end if this process does. Called before it has any thread."""
    ends: list[int] = []
    starters: list[Starter] = []
    for _ in range(count):
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.setsid()
                for end in (*ends, writing):  # else nobody would see that this process's parent is gone
                    os.close(end)
                with os.fdopen(reading, encoding="utf-8") as pipe:
                    file = pipe.read()
                if file:
                    take_part(Path(file))
            finally:
                os._exit(1)
        os.close(reading)
        ends.append(writing)
        starters.append(partial(_told, process, writing))
    return starters


def _told(process: int, writing: int, file: Path) -> int:
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        pipe.write(os.fspath(file))
    return process


def started(file: Path) -> int:
    """A process that is started afresh."""
    command = [sys.executable, "-m", "vflbench.engines.nvflare.simulated_client", os.fspath(file)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # nosec B603  # our own module
    return process.pid


def main(file: Path) -> None:
    spec = json.loads(file.read_text(encoding="utf-8"))
    for name in spec["imports"]:
        importlib.import_module(name)
    count = len(spec["sites"])
    starters: list[Starter] = forked(count) if sys.platform == "linux" else [started] * count
    end_with(spec["parents"])
    Simulation(Path(spec["job"]), Path(spec["workspace"]), spec["sites"], starters, spec["parents"]).go()
    if lost := LabelPartyController.too_early:
        problem = f"the process of {lost} ended before all parties were ready"
        Path(spec["problem"]).write_text(problem, encoding="utf-8")


if __name__ == "__main__":
    alone(main)
