"""FLARE's server and clients as started processes of this machine, which connect to each other with mutual TLS.

`python -m vflbench.engines.nvflare.proof_of_concept FILE`, with what `ProofOfConcept` takes as JSON in the file. FLARE
provisions a project of its own for the run, is started, is given the job, and is watched until the job has ended.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.lighter.constants import CtxKey
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner

from vflbench.engines.nvflare.job import CLIENT_CLASSES, SERVER_CLASSES
from vflbench.engines.nvflare.logs import CONFIG
from vflbench.engines.nvflare.processes import alone, end_with

ADMIN = "submit@vflbench.org"
_UNDER_WAY = ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING")
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class ProofOfConcept:
    """job: its folder. workspace: an empty folder. sites: names of the clients. port: of the server; 0: a free one.
    classes: what a site may build beside `SERVER_CLASSES` and `CLIENT_CLASSES`.
    """

    job: Path
    workspace: Path
    sites: Sequence[str]
    port: int
    start_timeout: float
    classes: Sequence[str] = ()

    def go(self) -> str:
        """Run the job to its end. Returns FLARE's word for how it ended. Raises RuntimeError where FLARE can't begin."""
        kits = self._provisioned(self.port or free_port())
        processes = {"the server": self._start(kits / "localhost", "server", "org=label")}
        for site in self.sites:
            processes[site] = self._start(kits / site, "client", "org=party", f"uid={site}")
        session = self._session(kits / ADMIN, processes)
        job = session.submit_job(os.fspath(self.job))
        while (status := str(session.get_job_meta(job)["status"])) in _UNDER_WAY:
            self._check(processes)
            time.sleep(_LOOK_SECONDS)
        return status

    def _provisioned(self, port: int) -> Path:
        """A folder with a kit for each site, which only these may run classes of ours from."""
        server = {"name": "localhost", "type": "server", "org": "label", "fed_learn_port": port, "host_names": ["127.0.0.1"]}
        clients = [{"name": site, "type": "client", "org": "party", "allow_log_streaming": False} for site in self.sites]
        admin = {"name": ADMIN, "type": "admin", "org": "label", "role": "lead"}
        project = {"api_version": 3, "name": "vflbench", "participants": [server, *clients, admin]}
        builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="tcp"), CertBuilder()]
        with contextlib.redirect_stdout(sys.stderr):
            made = Provisioner(os.fspath(self.workspace), builders).provision(prepare_project(project))
        kits = Path(made[CtxKey.CURRENT_PROD_DIR])
        for name in ("localhost", *self.sites):
            self._narrow(kits / name / "local", SERVER_CLASSES if name == "localhost" else CLIENT_CLASSES)
        return kits

    def _narrow(self, local: Path, classes: Sequence[str]) -> None:
        """Only these classes may be built from a job, no log of a party goes to the server, and nothing is kept in /tmp."""
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
        resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [*classes, *self.classes]}
        streams = ("site_log_streamer", "log_receiver")
        resources["components"] = [part for part in resources["components"] if part["id"] not in streams]
        for part in resources["components"]:
            if part["id"] == "job_manager":
                part["args"]["uri_root"] = os.fspath(self.workspace / "jobs")
        if "snapshot_persistor" in resources:
            resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = os.fspath(self.workspace / "snapshots")
        else:
            resources["allow_log_streaming"] = False
        (local / "resources.json").write_text(json.dumps(resources), encoding="utf-8")
        (local / "log_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def _start(self, kit: Path, kind: str, *options: str) -> subprocess.Popen[bytes]:
        module = f"nvflare.private.fed.app.{kind}.{kind}_train"
        words = ["-m", module, "-m", os.fspath(kit), "-s", f"fed_{kind}.json", "--set", "secure_train=true"]
        with (kit / "printed.txt").open("w") as printed:
            return subprocess.Popen(  # nosec B603  # FLARE's own modules, no shell
                [sys.executable, *words, "config_folder=config", *options],
                cwd=kit,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
            )

    def _session(self, kit: Path, processes: dict[str, subprocess.Popen[bytes]]) -> Any:
        """A session with a server to which all clients are connected."""
        deadline = time.monotonic() + self.start_timeout
        session: Any = None
        while time.monotonic() < deadline:
            self._check(processes)
            try:
                session = session or new_secure_session(ADMIN, os.fspath(kit), timeout=5.0)
                if len(session.get_system_info().client_info) == len(self.sites):
                    return session
            except Exception:  # FLARE has a kind for each way not to be there yet
                session = None
            time.sleep(_LOOK_SECONDS / 2)
        raise RuntimeError(f"not all parties were connected after engine.start_timeout={self.start_timeout:g} seconds")

    @staticmethod
    def _check(processes: dict[str, subprocess.Popen[bytes]]) -> None:
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"FLARE's process of {name} has ended with code {process.returncode}")


def free_port() -> int:
    """A port of this machine at which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(file: Path) -> None:
    spec = json.loads(file.read_text(encoding="utf-8"))
    end_with(spec["parents"])
    problem = Path(spec["problem"])
    try:
        site = ProofOfConcept(
            Path(spec["job"]),
            Path(spec["workspace"]),
            spec["sites"],
            spec["port"],
            spec["start_timeout"],
            spec["classes"],
        )
        status = site.go()
    except Exception as error:
        problem.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise
    if not problem.exists():
        problem.write_text(f"FLARE ended the job: {status}", encoding="utf-8")


if __name__ == "__main__":
    alone(main)
