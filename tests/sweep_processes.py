"""Sweeps in processes of their own, what they have at work, and how to kill it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from vflbench.results.folder import finished_folders

SMALL = ("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3")
RUN = (*SMALL, "attack=norm", "batch_size=64", "log_every=1")
PATIENCE = 240  # seconds after which a test gives up
OPEN = dict(os.environ)


def begin(cwd: Path, *words: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-P", "-m", "vflbench", "train", "-m", *RUN, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=OPEN | environment, start_new_session=True, **pipes)


def ended(process: subprocess.Popen) -> str:
    """What it wrote, once it has ended."""
    return process.communicate(timeout=PATIENCE)[0]


def wait_until(holds, process: subprocess.Popen | None = None, said=None) -> None:
    """Until it holds, while the process goes on."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process is None or process.poll() is None, said() if said else process.communicate()[0]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def at_work(cwd: Path) -> dict[int, str]:
    """Process -> the run whose folder it has locked."""
    inodes = {file.stat().st_ino: file.parent.name for file in cwd.glob("outputs/*/.lock")}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]  # who waits
    return {int(line[4]): inodes[inode] for line in lines if (inode := int(line[5].split(":")[2])) in inodes}


def training(cwd: Path) -> dict[int, str]:
    """Those of them that have begun to train."""
    return {number: name for number, name in at_work(cwd).items() if (cwd / "outputs" / name / "train.log").exists()}


def stamps(cwd: Path) -> dict[str, int]:
    """When each finished run was written."""
    return {folder.name: (folder / "summary.json").stat().st_mtime_ns for folder in finished_folders(cwd / "outputs")}


def descendants(number: int) -> list[int]:
    """Process ids of all that a process has started, and these, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    below, generation = [], [number]
    while generation:
        generation = [child for child, parent in parents.items() if parent in generation]
        below += generation
    return below


def kill(number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def kill_all(process: subprocess.Popen) -> None:
    """kill -9 of a process and of all that it started: a machine without power."""
    for number in [process.pid, *descendants(process.pid)]:
        kill(number)
    process.wait()
