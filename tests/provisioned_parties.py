"""Parties of a provisioned project, each `vflbench parties start` in a process and a folder of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

PATIENCE = 180
"""Seconds after which a test gives up. No test asserts a time."""

ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("HYDRA_FULL_ERROR", "VFLBENCH_TRACEBACK")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(happened: Callable[[], object], what: str) -> None:
    """Return when it has. Fails after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Parties:
    """A project in `folder / "project"`, and its running parties. agreed: options of the experiment that all agree to.
    host: where the label party is reached. within: party -> words of a command that its own are given to.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        agreed: Sequence[str],
        host: str = "localhost",
        within: Mapping[str, Sequence[str]] | None = None,
    ):
        self.within = dict(within or {})
        self.folder, self.project, self.names, self.agreed = folder, folder / "project", ["label", *names], list(agreed)
        self.running: dict[str, subprocess.Popen] = {}
        self.port = free_port()
        self.call("write", "project", f"parties=[{','.join(names)}]", f"port={self.port}", f"host={host}")
        self.call("compose", "experiment.yaml", *agreed)
        for name in self.names:
            self.agree(name, (folder / "experiment.yaml").read_text())

    def agree(self, name: str, experiment: str) -> None:
        kit = self.project / name
        (kit / "experiment.yaml").write_text(experiment)
        text = (kit / "party.yaml").read_text()
        (kit / "party.yaml").write_text(text.replace("experiment: null", "experiment: experiment.yaml"))

    def call(self, *words: str, code: int = 0) -> subprocess.CompletedProcess:
        result = subprocess.run(
            [sys.executable, "-m", "vflbench", "parties", *words],
            cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert result.returncode == code, result.stdout + result.stderr
        return result

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def start(self, *names: str) -> None:
        """Start parties, and return when they are connected."""
        for name in names or self.names:
            with open(self.folder / f"{name}.txt", "w") as printed:
                command = [*self.within.get(name, ()), sys.executable, "-m", "vflbench", "parties", "start"]
                command.append(str(self.project / name))
                self.running[name] = subprocess.Popen(command, env=ENVIRONMENT, stdout=printed, stderr=printed)
        for name in names or self.names:
            ready = "ready" if name == "label" else "connected to the label party"
            until(lambda name=name, ready=ready: ready in self.said(name), f"{name} does not start")

    def begin(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "vflbench", "parties", "run", "project", *self.agreed, *words]
        with open(self.folder / "run.txt", "w") as printed:
            return subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=printed, stderr=printed)

    def run(self, *words: str, code: int = 0) -> str:
        """What `vflbench parties run` prints."""
        process = self.begin(*words)
        assert process.wait(PATIENCE) == code, self.said("run")
        return self.said("run")

    def outputs(self, name: str) -> Path:
        return next((self.folder / "outputs").glob(f"{name}_*"))

    def begun(self, name: str, line: str) -> bool:
        """Whether the log of a run has a line with this."""
        return any(line in log.read_text() for log in (self.folder / "outputs").glob(f"{name}_*/train.log"))

    def of_a_run(self, name: str) -> list[psutil.Process]:
        """The processes of a run at a party, beside the one that was started."""
        return psutil.Process(self.running[name].pid).children(recursive=True)

    def end(self) -> None:
        """Ctrl-C at every party. None of their processes is left."""
        processes = [psutil.Process(process.pid) for process in self.running.values() if process.poll() is None]
        every = processes + [child for process in processes for child in process.children(recursive=True)]
        for process in processes:
            process.send_signal(signal.SIGINT)
        _, left = psutil.wait_procs(every, timeout=30)
        for process in left:
            process.kill()
        for process in self.running.values():
            process.wait(PATIENCE)
        assert not left, left


def figures(folder: Path) -> list[str]:
    """The lines of metrics.csv other than times."""
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds," not in line]
