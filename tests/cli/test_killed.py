"""Runs and sweeps that are killed again and again end with the bytes of those left in peace, times aside.

`VFLBENCH_KILLS=20 pytest -m slow tests/cli/test_killed.py` kills each of them 20 times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import zip_longest
from pathlib import Path

import pytest
from support.warm_command import OPEN

KILLS = int(os.environ.get("VFLBENCH_KILLS", "3"))
SMALL = (
    *("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=5"),
    *("batch_size=64", "log_every=1", "attack=norm"),
)
RUN = [*SMALL, "epochs=8", "defense=max_norm", "dataset.parties={a: [I*], b: [C1*], label: [C2*]}", "model.wide=true"]
SWEEP = ["-m", *SMALL, "epochs=2", "seed=0,1", "defense=none,max_norm"]


def begin(words: list[str], cwd: Path | None = None) -> subprocess.Popen[str]:
    """In a process group of its own, so that its workers can be killed with it."""
    command = [sys.executable, "-P", "-m", "vflbench", "train", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=OPEN, start_new_session=True, **pipes)


def logged(folder: Path) -> int:
    """Bytes of every train.log in it."""
    return sum(file.stat().st_size for file in folder.glob("**/train.log"))


def strike(process: subprocess.Popen[str], number: signal.Signals, folder: Path, size: float) -> tuple[int, str]:
    """Send the signal when the logs in a folder exceed a size, unless the process ends before. Returns code and output."""
    while process.poll() is None and logged(folder) <= size:
        time.sleep(0.002)
    if process.poll() is None and number is signal.SIGKILL:
        os.killpg(process.pid, number)
    elif process.poll() is None:
        process.send_signal(number)
    output = process.communicate()[0]
    return process.returncode, output


def finish(words: list[str]) -> str:
    process = begin(words)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def results(folder: Path) -> dict[str, list[bytes]]:
    """What each run in a folder came to, without times, and the names of its files."""
    came_to: dict[str, list[bytes]] = {}
    for run in sorted(file.parent for file in folder.glob("**/metrics.csv")):
        lines = (run / "metrics.csv").read_bytes().splitlines(keepends=True)
        summary = json.loads((run / "summary.json").read_text())
        facts = [f"{key}: {json.dumps(value)}".encode() for key, value in summary.items() if "seconds" not in key]
        names = [file.name.encode() for file in sorted(run.iterdir())]
        came_to[run.relative_to(folder).as_posix()] = [line for line in lines if b"seconds," not in line] + facts + names
    return came_to


def assert_same(peace: Path, fire: Path) -> None:
    one, other = results(peace), results(fire)
    assert one.keys() == other.keys()
    for name, expected in one.items():
        lines = zip_longest(expected, other[name])
        assert next((pair for pair in enumerate(lines) if pair[1][0] != pair[1][1]), None) is None, name


@pytest.mark.slow
def test_deaths_of_a_run_change_no_byte(tmp_path: Path) -> None:
    rng, peace = random.Random(3), tmp_path / "peace"
    finish([*RUN, f"hydra.run.dir={peace}"])
    whole, run = logged(peace), tmp_path / "fire"
    for kill in range(KILLS):
        size = logged(run) + rng.random() * 2 / KILLS * whole * (kill > 0)  # the first one comes while it starts
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[kill % 3]
        code, output = strike(begin([*RUN, f"hydra.run.dir={run}"]), number, run, size)
        assert code in (0, -number, 128 + number), output
        assert "Traceback" not in output
    finish([*RUN, f"hydra.run.dir={run}"])
    assert_same(peace, run)


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_same_bytes_and_computes_nothing_twice(tmp_path: Path) -> None:
    rng, peace, fire = random.Random(3), tmp_path / "peace", tmp_path / "fire"
    finish([*SWEEP, f"hydra.sweep.dir={peace}"])
    whole = logged(peace)
    written: dict[Path, int] = {}
    for _ in range(KILLS):
        size = logged(fire) + rng.random() * 1.5 / KILLS * whole
        strike(begin([*SWEEP, f"hydra.sweep.dir={fire}"]), signal.SIGKILL, fire, size)
        now = {file: file.stat().st_mtime_ns for file in fire.glob("*/summary.json")}
        assert written.items() <= now.items(), "a finished run was written again"
        written = now
    finish([*SWEEP, f"hydra.sweep.dir={fire}"])
    assert written.items() <= {file: file.stat().st_mtime_ns for file in fire.glob("*/summary.json")}.items()
    assert_same(peace, fire)
