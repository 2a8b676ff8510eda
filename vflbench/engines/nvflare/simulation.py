"""FLARE's simulator: the label party's process, which starts one more for each other party.

`python -m vflbench.engines.nvflare.simulation FILE`, with what `Simulation` takes as JSON in the file. Ends with exit code 0
once the label party's `@collab.main` has returned.
"""

import copy
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import RunnerTask, RunProcessKey
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from vflbench.engines.nvflare.components import LabelPartyController
from vflbench.engines.nvflare.logs import CONFIG
from vflbench.engines.nvflare.processes import end_with, named, when_ended

_MODULE = "vflbench.engines.nvflare.simulated_client"


class Simulation(SimulatorRunner):
    """A server in this process, and a process for each client.

    job: its folder. workspace: an empty folder for the sites. sites: names of the clients.
    """

    def __init__(self, job: Path, workspace: Path, sites: list[str], parents: list[list[float]]):
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
        for client in self.federated_clients:
            process = self._start(client, parents)
            when_ended([named(process.pid)], lambda _, site=client.client_name: LabelPartyController.lost(site))
        while server.is_alive() and not LabelPartyController.finished.wait(0.5):
            continue

    def _start(self, client: Any, parents: list[list[float]]) -> subprocess.Popen[bytes]:
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
        return subprocess.Popen([sys.executable, "-m", _MODULE, file], stdin=subprocess.DEVNULL, start_new_session=True)


def main(file: Path) -> None:
    spec = json.loads(file.read_text(encoding="utf-8"))
    end_with(spec["parents"])
    Simulation(Path(spec["job"]), Path(spec["workspace"]), spec["sites"], spec["parents"]).go()


if __name__ == "__main__":
    code = 1
    try:
        main(Path(sys.argv[1]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # FLARE leaves threads behind that would wait
