"""Parties of a provisioned project, each `vflbench parties start` in a process and a folder of its own."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from support.builders import figures
from support.warm_command import OPEN

from vflbench.engines.nvflare import PARTY_AT_HOST, write_job

PATIENCE = 180
"""Seconds after which a test gives up. No test asserts a time."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def until(happened: Callable[[], object], what: str) -> None:
    """Return when it has. Fails after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Parties:
    """A project in `folder / "project"`, and its running parties. agreed: options of the experiment that all agree to."""

    def __init__(self, folder: Path, names: Sequence[str], agreed: Sequence[str]):
        self.folder, self.project, self.names, self.agreed = folder, folder / "project", ["label", *names], list(agreed)
        self.running: dict[str, subprocess.Popen] = {}
        self.port = free_port()
        self.call("write", "project", f"parties=[{','.join(names)}]", f"port={self.port}")
        self.call("compose", "experiment.yaml", *agreed)
        for name in self.names:
            self.agree(name, (folder / "experiment.yaml").read_text())

    def agree(self, name: str, experiment: str) -> None:
        kit = self.project / name
        (kit / "experiment.yaml").write_text(experiment)
        text = (kit / "party.yaml").read_text()
        (kit / "party.yaml").write_text(text.replace("experiment: null", "experiment: experiment.yaml"))

    def call(self, *words: str, code: int = 0) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "vflbench", "parties", *words]
        result = subprocess.run(command, cwd=self.folder, env=OPEN, capture_output=True, text=True, timeout=PATIENCE)
        assert result.returncode == code, result.stdout + result.stderr
        return result

    def spawn(self, log: str, *words: str, cwd: Path | None = None) -> subprocess.Popen:
        command = [sys.executable, "-m", "vflbench", "parties", *words]
        with open(self.folder / f"{log}.txt", "w") as printed:
            return subprocess.Popen(command, cwd=cwd, env=OPEN, stdout=printed, stderr=printed)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def start(self, *names: str) -> None:
        """Start parties, and return when they are connected."""
        for name in names or self.names:
            self.running[name] = self.spawn(name, "start", str(self.project / name))
        for name in names or self.names:
            ready = "ready" if name == "label" else "connected to the label party"
            until(lambda name=name, ready=ready: ready in self.said(name), f"{name} does not start")

    def begin(self, *words: str) -> subprocess.Popen:
        return self.spawn("run", "run", "project", *self.agreed, *words, cwd=self.folder)

    def run(self, *words: str, code: int = 0) -> str:
        """What `vflbench parties run` prints."""
        process = self.begin(*words)
        assert process.wait(PATIENCE) == code, self.said("run")
        return self.said("run")

    def outputs(self, name: str) -> Path:
        return next((self.folder / "outputs").glob(f"{name}_*"))

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


HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto" / "parties_on_hosts.md"
EXPERIMENT = ("dataset=digits", "epochs=3", "attack=kmeans", "model.width=16", "audit.batches=2", "engine.timeout=15")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("nvflare") is None, reason="no nvflare here")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    parties = Parties(tmp_path_factory.mktemp("two"), ["a"], EXPERIMENT)
    parties.start()
    yield parties
    parties.end()


def test_the_commands_of_the_page_make_a_run_of_four_parties(tmp_path):
    commands = re.search(r"```sh\n(.*?)```", HOWTO.read_text(), re.DOTALL)[1].replace("port=8002", f"port={free_port()}")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "vflbench"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vflbench "$@"\n')
    script.chmod(0o755)
    environment = OPEN | {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        bash = ["bash", "-ec", commands]
        result = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            if os.path.exists(f"/proc/{pid}"):
                os.kill(int(pid), signal.SIGTERM)
    summary = json.loads(next((tmp_path / "outputs").glob("digits_*/summary.json")).read_text())
    assert summary["test_auc"] > 0.9
    assert list(json.loads(next(tmp_path.glob("outputs/*/manifest.json")).read_text())["cut_layers"]) >= ["a", "b", "c"]


def test_a_run_resumes_to_the_same_figures_after_a_party_was_killed(two):
    two.run("name=whole")
    process = two.begin("name=cut")

    def begun():
        logs = (two.folder / "outputs").glob("cut_*/train.log")
        return process.poll() is not None or any("epoch 1 of " in log.read_text() for log in logs)

    until(begun, "the run does not begin")
    for child in two.of_a_run("a"):
        child.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE) == 1
    assert re.search(r"party a\b", two.said("run").splitlines()[-1]), two.said("run")
    until(lambda: not two.of_a_run("label"), "a process of the label party is left")
    two.run("name=cut")
    assert figures(two.outputs("cut")) == figures(two.outputs("whole"))


def test_another_experiment_is_refused_by_the_key_that_differs(two):
    last = two.run("name=other", "seed=7", code=1).splitlines()[-1]
    assert last.startswith("party label: it has agreed to seed=0, not to 7")
    agreed = (two.folder / "experiment.yaml").read_text()
    two.agree("a", agreed.replace("epochs: 3", "epochs: 4"))
    try:
        last = two.run("name=other", code=1).splitlines()[-1]
        assert "party a: it has agreed to epochs=4, not to 3" in last
    finally:
        two.agree("a", agreed)


def test_a_stranger_gets_nothing(two, tmp_path):
    other = tmp_path / "other"
    two.call("write", str(other), f"port={two.port}")
    result = two.call("check", str(other / "a"), code=1)
    assert result.stderr.strip().endswith("who answers there has no certificate of this project")
    shutil.copy(two.project / "a" / "startup" / "rootCA.pem", other / "a" / "startup")
    for command in ("check", "start"):
        assert "refuses this party's certificate" in two.call(command, str(other / "a"), code=1).stderr
    authority = two.project / "a" / "startup" / "rootCA.pem"
    assert answer(two.port, None) == b""
    assert answer(two.port, ssl.create_default_context(cafile=authority)) == b""
    insider = ssl.create_default_context(cafile=authority)
    insider.load_cert_chain(two.project / "a" / "startup" / "client.crt", two.project / "a" / "startup" / "client.key")
    assert answer(two.port, insider) != b""


def answer(port: int, context: ssl.SSLContext | None) -> bytes:
    """What the server says to somebody with these certificates, or without TLS."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(("localhost", port), timeout=30))
        try:
            if context is not None:
                context.check_hostname = False
                connection = stack.enter_context(context.wrap_socket(connection))
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(100)
        except (ssl.SSLError, ConnectionError):
            return b""


SUBMIT = """
import os, sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
session = new_secure_session("submit@vflbench.org", sys.argv[1], timeout=30)
for path in sys.argv[2:]:
    job = session.submit_job(path)
    while (status := session.get_job_meta(job)["status"]) in ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING"):
        time.sleep(0.2)
    print(status, session.get_job_meta(job)["job_deploy_detail"])
print([session.do_command(command)["data"] for command in ("ls a", "shutdown client a", "restart client a")])
sys.stdout.flush()
os._exit(0)
"""


def test_who_holds_the_submitting_key_can_bring_no_code_name_no_other_class_and_command_no_host(two, tmp_path):
    touched = tmp_path / "touched"
    for name in ("code", "class"):
        write_job(tmp_path / name, {}, {"a": {}}, {}, PARTY_AT_HOST)
    (tmp_path / "code" / "app_a" / "custom").mkdir()
    (tmp_path / "code" / "app_a" / "custom" / "own.py").write_text(f"open({str(touched)!r}, 'w')")
    config = tmp_path / "class" / "app_a" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    content["components"][0]["args"] = {"x": {"path": "subprocess.Popen", "args": {"args": ["touch", str(touched)]}}}
    config.write_text(json.dumps(content))
    command = [sys.executable, "-c", SUBMIT, two.project / "submit", tmp_path / "code", tmp_path / "class"]
    result = subprocess.run(command, env=OPEN, capture_output=True, text=True, timeout=PATIENCE, check=True)
    lines = result.stdout.splitlines()[-3:]
    assert "BYOC not permitted" in lines[0]
    assert lines[1].startswith("FINISHED:ABNORMAL")
    assert lines[2].count("not authorized") == 3
    assert not touched.exists()
    assert "asks for other classes than vflbench's" in two.said("a")


def test_a_missing_party_is_named_and_connects_again_to_a_server_that_was_restarted(two):
    two.running["a"].send_signal(signal.SIGINT)
    assert two.running["a"].wait(PATIENCE) == -signal.SIGINT
    assert two.run("name=missing", "timeout=15", code=1).splitlines()[-1].startswith("party a: not connected after 15 s")
    assert not list(two.folder.glob("outputs/missing_*"))
    two.start("a")
    two.running["label"].send_signal(signal.SIGKILL)
    two.running["label"].wait(PATIENCE)
    two.start("label")
    two.run("name=again")
    assert figures(two.outputs("again"))


def test_each_party_has_a_file_of_its_own_with_other_rows_in_another_order(two):
    label = "".join(f"k{i},{i % 2}\n" for i in range(300))
    own = "".join(f"{i % 7},k{i}\n" for i in range(310, 9, -1))
    kits = {"label": f"id,y\n{label}", "a": f"x,id\n{own}"}
    for name, text in kits.items():
        (two.project / name / "table.csv").write_text(text)
        file = two.project / name / "party.yaml"
        file.write_text(file.read_text().replace("data: {}", "data: {path: table.csv}"))
    two.agreed = ["dataset=csv", "dataset.label=y", "dataset.id=id", "epochs=1", "attack=norm", "model.width=8"]
    two.call("compose", "own.yaml", *two.agreed, "engine.timeout=15")
    for name in kits:
        two.agree(name, (two.folder / "own.yaml").read_text())
    two.run("name=own", "engine.timeout=15")
    data = json.loads((two.outputs("own") / "manifest.json").read_text())["data"]
    assert data["party_rows"]["a"] == {"rows": 301, "shared": 290}
    assert data["parties"]["a"]["numeric"] == ["x"]
