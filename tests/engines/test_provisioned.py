"""Parties on hosts of their own, over mutual TLS, each in a process and a folder: a run, refusals, strangers and faults."""

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
from importlib.util import find_spec
from pathlib import Path

import pytest
from provisioned_parties import ENVIRONMENT, PATIENCE, Parties, figures, free_port, until

from vflbench.engines.nvflare.engine import write_job
from vflbench.hosts.project import PARTY_SITE

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
    environment = ENVIRONMENT | {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        result = subprocess.run(
            ["bash", "-ec", commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
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
    until(lambda: two.begun("cut", "epoch 1 of ") or process.poll() is not None, "the run does not begin")
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
        write_job(tmp_path / name, {}, {"a": {}}, {}, PARTY_SITE)
    (tmp_path / "code" / "app_a" / "custom").mkdir()
    (tmp_path / "code" / "app_a" / "custom" / "own.py").write_text(f"open({str(touched)!r}, 'w')")
    config = tmp_path / "class" / "app_a" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    content["components"][0]["args"] = {"x": {"path": "subprocess.Popen", "args": {"args": ["touch", str(touched)]}}}
    config.write_text(json.dumps(content))
    words = [str(two.project / "submit"), str(tmp_path / "code"), str(tmp_path / "class")]
    result = subprocess.run(
        [sys.executable, "-c", SUBMIT, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
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


def test_each_party_has_a_file_of_its_own_with_other_rows_in_another_order(tmp_path):
    agreed = ("dataset=csv", "dataset.label=y", "dataset.id=id", "epochs=1", "attack=norm", "model.width=8")
    parties = Parties(tmp_path, ["a"], (*agreed, "engine.timeout=30"))
    label = "".join(f"k{i},{i % 2}\n" for i in range(300))
    own = "".join(f"{i % 7},k{i}\n" for i in range(310, 9, -1))
    for name, text in {"label": f"id,y\n{label}", "a": f"x,id\n{own}"}.items():
        kit = parties.project / name
        (kit / "table.csv").write_text(text)
        file = (kit / "party.yaml").read_text()
        (kit / "party.yaml").write_text(file.replace("data: {}", "data: {path: table.csv}"))
    parties.start()
    try:
        parties.run("name=own")
    finally:
        parties.end()
    data = json.loads((parties.outputs("own") / "manifest.json").read_text())["data"]
    assert data["party_rows"]["a"] == {"rows": 301, "shared": 290}
    assert data["parties"]["a"]["numeric"] == ["x"]


HERE, THERE = "10.213.87.1", "10.213.87.2"


@pytest.fixture
def cable():
    """Between this host and a network namespace: (the namespace, plug, unplug)."""
    space, here, there = (f"vfl{kind}{os.getpid() % 100_000}" for kind in "nht")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)

    try:
        ip("netns", "add", space)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespaces here: it takes root and iproute2")
    try:
        try:
            ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
        except subprocess.CalledProcessError:
            pytest.skip("no network namespaces here: the kernel has no pairs of virtual cables")
        ip("addr", "add", f"{HERE}/30", "dev", here)
        ip("-n", space, "addr", "add", f"{THERE}/30", "dev", there)
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "link", "set", there, "up")
        ip("link", "set", here, "up")
        yield space, lambda: ip("link", "set", here, "up"), lambda: ip("link", "set", here, "down")
    finally:
        ip("netns", "delete", space)


def test_a_network_that_is_cut_for_a_second_and_for_good(tmp_path, cable):
    space, plug, unplug = cable
    parties = Parties(tmp_path, ["a"], EXPERIMENT, host=HERE, within={"a": ["ip", "netns", "exec", space]})
    parties.start()
    try:
        process = parties.begin("name=short")
        until(lambda: parties.begun("short", "epoch 1 of ") or process.poll() is not None, "the run does not begin")
        unplug()
        time.sleep(1)
        plug()
        assert process.wait(PATIENCE) == 0, parties.said("run")
        process = parties.begin("name=long")
        until(lambda: parties.begun("long", "epoch 1 of ") or process.poll() is not None, "the run does not begin")
        unplug()
        assert process.wait(PATIENCE) == 1
        assert "party a" in parties.said("run").splitlines()[-1]
        plug()
        parties.run("name=long")
        assert figures(parties.outputs("long")) == figures(parties.outputs("short"))
    finally:
        parties.end()
