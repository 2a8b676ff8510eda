"""Runs and sweeps in processes of their own: stopped, killed, and two that meet."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli.test_killed import results
from support.warm_command import OPEN, SMALL, command

from vflbench.cli.main import report_errors
from vflbench.results.folder import finished_folders
from vflbench.run.interruption import Interrupted

RUN = (*SMALL, "attack=norm", "batch_size=64", "log_every=1")
PATIENCE = 240  # seconds after which a test gives up


def begin(cwd: Path, *words: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-P", "-m", "vflbench", "train", "-m", *RUN, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=OPEN | environment, start_new_session=True, **pipes)


def ended(process: subprocess.Popen) -> str:
    """What it wrote, once it has ended."""
    return process.communicate(timeout=PATIENCE)[0]


def wait_until(holds, process: subprocess.Popen | None = None) -> None:
    """Until it holds, while the process goes on."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def training(cwd: Path) -> bool:
    """Whether a run has begun to train."""
    return any(cwd.glob("outputs/*/train.log"))


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


BAD = '''"""Ends its process in many ways. Begins a thread, and OpenMP's, when it is imported."""

import os
import signal
import sys
import threading
from pathlib import Path

import torch

from vflbench import Attack, Gradients, Scores, Threat

threading.Thread(target=threading.Event().wait, daemon=True).start()
torch.set_num_threads(2)
torch.ones(512, 512) @ torch.ones(512, 512)


class Bad(Attack):
    threat = Threat(knows={Gradients})

    def __init__(self, how: str = "fine"):
        self.how = how

    def batch(self, view):
        mark = Path(__file__).parents[1] / "killed"
        match self.how:
            case "raise":
                raise RuntimeError("on purpose")
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill_once" if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "fork":
                if os.fork() == 0:
                    os._exit(0)
        return Scores(view.ids, {layer: g.abs().amax(dim=1) for layer, g in view[Gradients].layers.items()})
'''
HOW = {
    "raise": "RuntimeError: on purpose",
    "exit": "(exit code 3)",
    "kill": "(killed by SIGKILL)",
}


@pytest.fixture
def plugins(tmp_path):
    (tmp_path / "mine" / "attack").mkdir(parents=True)
    (tmp_path / "mine" / "bad.py").write_text(BAD)
    (tmp_path / "mine" / "attack" / "bad.yaml").write_text("bad:\n  _target_: bad.Bad\n  how: fine\n")
    return ("--plugins", "mine", *RUN, "epochs=1", "audit.probe=false", "attack=bad")


@pytest.mark.slow
def test_a_run_that_ends_its_process_costs_the_others_nothing(tmp_path, plugins):
    sweep = ("train", "-m", *plugins, f"attack.bad.how=fine,{','.join(HOW)},kill_once,fork")
    result = command(*sweep, cwd=tmp_path)
    assert result.returncode == 1
    assert len(finished_folders(tmp_path)) == 3
    assert not list(tmp_path.rglob("*.png"))  # a run draws nothing
    for how, reason in HOW.items():
        assert result.stderr.count(f"failed: attack.bad.how={how}: ") == 1
        assert reason in result.stderr
    assert len(list(tmp_path.glob("outputs/*/error.txt"))) == len(HOW)
    assert result.stdout.count("begun again after the others") == 3  # exit, kill, kill_once
    before = stamps(tmp_path)
    again = command("train", "-m", *plugins, "attack.bad.how=fine,kill_once,fork", cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout.count("finished before") == 3
    assert stamps(tmp_path) == before


@pytest.mark.slow
def test_a_run_of_a_sweep_leaves_the_bytes_of_a_single_run(tmp_path):
    words = (*RUN, "epochs=1", "defense=max_norm")
    single = command("train", *words, "seed=1", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert single.returncode == 0, single.stderr
    (folder,) = finished_folders(tmp_path)
    alone = results(folder)
    shutil.rmtree(folder)
    assert command("train", "-m", *words, "seed=0,1", cwd=tmp_path, OMP_NUM_THREADS="1").returncode == 0
    assert results(folder) == alone


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["sweep", "warm process"])
def test_nothing_is_left_of_a_sweep_that_was_killed_and_a_warm_process_is_replaced(tmp_path, killed):
    words = ("seed=0,1", "epochs=40" if killed == "sweep" else "epochs=8")
    process = begin(tmp_path, *words)
    wait_until(lambda: training(tmp_path), process)
    below = descendants(process.pid)
    server = next(number for number in below if b"forkserver" in Path(f"/proc/{number}/cmdline").read_bytes())
    os.kill(process.pid if killed == "sweep" else server, signal.SIGKILL)
    said = ended(process)
    wait_until(lambda: not any(Path(f"/proc/{number}").exists() and running(number) for number in below))
    if killed == "sweep":
        assert not finished_folders(tmp_path)
    else:
        assert process.returncode == 0, said
        assert len(finished_folders(tmp_path)) == 2


def running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_stopped_sweep_saves_what_is_at_work_and_the_same_command_goes_on(tmp_path):
    words = ("seed=0,1", "epochs=10")
    process = begin(tmp_path, *words)
    wait_until(lambda: training(tmp_path), process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = ended(process)
    assert process.returncode == 130, said
    assert "of 2 runs 0 are finished; the same command goes on" in said
    assert list(tmp_path.glob("outputs/*/checkpoint.pt"))
    assert not list(tmp_path.glob("outputs/*/error.txt"))
    process = begin(tmp_path, *words)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    logs = [(folder / "train.log").read_text() for folder in finished_folders(tmp_path)]
    assert len(logs) == 2
    assert any("going on before" in log for log in logs)


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (Interrupted("stopped before epoch 3, and saved", 143), 143, "\nstopped before epoch 3, and saved\n"),
        (KeyboardInterrupt(), 130, "\nstopped; the same command goes on from what was saved\n"),
    ],
)
def test_a_command_that_was_stopped_ends_with_its_exit_code(error, code, printed, capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("VFLBENCH_TRACEBACK", "0")

    def stop():
        raise error

    with pytest.raises(SystemExit) as ended:
        report_errors(stop)
    assert ended.value.code == code
    assert capsys.readouterr() == ("", printed)


@pytest.mark.slow
def test_two_sweeps_on_one_folder_share_the_work(tmp_path):
    words = ("train", "-m", *SMALL, "epochs=8", "batch_size=32", "attack=norm", "seed=0,1")
    command = [sys.executable, "-m", "vflbench", *words]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=OPEN) for _ in range(2)]
    printed = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert len(finished_folders(tmp_path)) == 2
    counts = [{word: int(n) for word, n in re.findall(r"^  (done|skipped) +(\d+)", text, re.MULTILINE)} for text in printed]
    assert sum(count["done"] for count in counts) == 2  # each run by one of them
    assert sum(count["skipped"] for count in counts) == 2
    for folder in finished_folders(tmp_path):
        assert "resumed" not in json.loads((folder / "manifest.json").read_text())
        assert (folder / "train.log").read_text().count("training and") == 1
