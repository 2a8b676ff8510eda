"""`hydra/launcher=ray`, and what becomes of a sweep whose workers and machines die."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from vflbench.cli.ray_launcher import RayOptions, ray_launcher
from vflbench.errors import UserError
from vflbench.results.files import finished_folders

SMALL = ("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3")
RUN = (*SMALL, "attack=norm", "batch_size=64", "log_every=1", "hydra/launcher=ray")
PATIENCE = 240
OPEN = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": 64 * "a"}


def needs_ray():
    return pytest.importorskip("ray", reason="no Ray here")


@contextmanager
def node(log, *words):
    """`ray start --block` with one core, in a process group of its own: a machine of a cluster."""
    ray = Path(sys.executable).with_name("ray")
    command = [ray, "start", "--block", "--num-cpus=1", "--object-store-memory=80000000", *words]
    with log.open("w") as output:
        environment = OPEN | {"RAY_AUTH_MODE": "token"}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: "Ray runtime started" in log.read_text(), process, log.read_text)
        yield process
    finally:
        kill_all(process)


def kill_all(process):
    """kill -9 of a process and of all that it started: a machine without power."""
    below = descendants(process.pid)
    for number in [process.pid, *below]:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()


def descendants(number):
    """Process ids, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below, generation = [], [number]
    while generation:
        generation = [child for child, parent in parents.items() if parent in generation]
        below += generation
    return below


@pytest.fixture
def cluster(tmp_path_factory):
    """Two machines, by their addresses on the loopback device: the head's address, and the process of each."""
    needs_ray()
    logs = tmp_path_factory.mktemp("logs")
    with socket.socket() as one:
        one.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{one.getsockname()[1]}"
    head = (f"--port={address.partition(':')[2]}", "--node-ip-address=127.0.0.2", "--include-dashboard=false")
    with (
        tempfile.TemporaryDirectory(prefix="ray") as place,  # short: the path of a socket has at most 107 letters
        node(logs / "head", "--head", *head, f"--temp-dir={place}") as first,
        node(logs / "second", f"--address={address}", "--node-ip-address=127.0.0.3") as second,
    ):
        yield address, first, second


def begin(cwd, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "vflbench", "train", "-m", *RUN, *words],
        cwd=cwd,
        env=OPEN,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until(holds, process, said=None):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, said() if said else process.communicate()[0]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def at_work(cwd):
    """Run -> the process that holds the lock of its folder."""
    inodes = {file.stat().st_ino: file.parent.name for file in cwd.glob("outputs/*/.lock")}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {inodes[inode]: int(line[4]) for line in lines if (inode := int(line[5].split(":")[2])) in inodes}


def stamps(cwd):
    return {folder.name: (folder / "summary.json").stat().st_mtime_ns for folder in finished_folders(cwd / "outputs")}


@pytest.mark.slow
def test_a_machine_that_dies_during_a_sweep_costs_no_finished_run(cluster, tmp_path):
    address, _, second = cluster
    words = ("epochs=4", "seed=0,1,2,3,4,5", f"hydra.launcher.address={address}")
    sweep = begin(tmp_path, *words)
    wait_until(lambda: len(stamps(tmp_path)) >= 2 and set(at_work(tmp_path).values()) & set(descendants(second.pid)), sweep)
    before = stamps(tmp_path)
    kill_all(second)
    said = sweep.communicate(timeout=PATIENCE)[0]
    assert sweep.returncode == 0, said
    assert said.count("its worker was lost") == 1, said
    assert {name: stamps(tmp_path)[name] for name in before} == before
    assert len(stamps(tmp_path)) == 6
    again = begin(tmp_path, *words).communicate(timeout=PATIENCE)[0]
    assert again.count("finished before, so not computed again") == 6, again
