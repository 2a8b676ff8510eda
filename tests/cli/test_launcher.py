"""Runs and sweeps in processes of their own: stopped, killed, and two that meet."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from cli.test_killed import begin, results
from support.warm_command import SMALL, command

from vflbench.cli.main import report_errors
from vflbench.results.folder import finished_folders
from vflbench.run.interruption import Interrupted

RUN = (*SMALL, "attack=norm", "batch_size=64", "log_every=1")
PATIENCE = 240  # seconds after which a test gives up


def wait_until(holds) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def training(cwd: Path, *words: str):
    """A sweep, in which a run has begun to train."""
    process = begin(["-m", *RUN, *words], cwd)
    wait_until(lambda: process.poll() is not None or any(cwd.glob("outputs/*/train.log")))
    assert process.poll() is None, process.communicate()[0]
    return process


BAD = '''"""Ends its process in many ways. Begins a thread, and OpenMP's, when it is imported."""

import os
import signal
import threading
from pathlib import Path

import torch

from vflbench.attacks.norm import Norm
from vflbench.options import options

threading.Thread(target=threading.Event().wait, daemon=True).start()
torch.set_num_threads(2)
torch.ones(512, 512) @ torch.ones(512, 512)


@options
class Bad(Norm):
    how: str = "fine"

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
        return Norm.batch(self, view)
'''
HOW = {"raise": "RuntimeError: on purpose", "exit": "(exit code 3)", "kill": "(killed by SIGKILL)"}


@pytest.mark.slow
def test_a_run_that_ends_its_process_costs_the_others_nothing(tmp_path):
    (tmp_path / "mine" / "attack").mkdir(parents=True)
    (tmp_path / "mine" / "bad.py").write_text(BAD)
    (tmp_path / "mine" / "attack" / "bad.yaml").write_text("bad: {_target_: bad.Bad, how: fine}\n")
    sweep = ("train", "-m", "--plugins", "mine", *RUN, "epochs=1", "audit.probe=false", "attack=bad")
    result = command(*sweep, f"attack.bad.how=fine,{','.join(HOW)},kill_once,fork", cwd=tmp_path)
    assert result.returncode == 1
    before = {folder: (folder / "summary.json").stat().st_mtime_ns for folder in finished_folders(tmp_path)}
    assert len(before) == 3
    assert not list(tmp_path.rglob("*.png"))  # a run draws nothing
    for how, reason in HOW.items():
        assert result.stderr.count(f"failed: attack.bad.how={how}: ") == 1
        assert reason in result.stderr
    assert len(list(tmp_path.glob("outputs/*/error.txt"))) == len(HOW)
    assert result.stdout.count("begun again after the others") == 3  # exit, kill, kill_once
    again = command(*sweep, "attack.bad.how=fine,kill_once,fork", cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout.count("finished before") == 3
    assert {folder: (folder / "summary.json").stat().st_mtime_ns for folder in before} == before


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
@pytest.mark.parametrize(("killed", "epochs"), [("sweep", 40), ("warm process", 8)])
def test_nothing_is_left_of_a_sweep_that_was_killed_and_a_warm_process_is_replaced(tmp_path, killed, epochs):
    psutil = pytest.importorskip("psutil")
    process = training(tmp_path, "seed=0,1", f"epochs={epochs}")
    below = psutil.Process(process.pid).children(recursive=True)
    server = next(one for one in below if "forkserver" in " ".join(one.cmdline()))
    os.kill(process.pid if killed == "sweep" else server.pid, signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE)[0]
    assert psutil.wait_procs(below, PATIENCE)[1] == []
    assert killed == "sweep" or process.returncode == 0, said
    assert len(finished_folders(tmp_path)) == (0 if killed == "sweep" else 2)


@pytest.mark.slow
def test_a_stopped_sweep_saves_what_is_at_work_and_the_same_command_goes_on(tmp_path):
    words = ("seed=0,1", "epochs=10")
    process = training(tmp_path, *words)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 130, said
    assert "of 2 runs 0 are finished; the same command goes on" in said
    assert list(tmp_path.glob("outputs/*/checkpoint.pt"))
    assert not list(tmp_path.glob("outputs/*/error.txt"))
    assert command("train", "-m", *RUN, *words, cwd=tmp_path).returncode == 0
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
    for name in ("HYDRA_FULL_ERROR", "VFLBENCH_TRACEBACK"):
        monkeypatch.setenv(name, "0")

    def stop():
        raise error

    with pytest.raises(SystemExit) as ended:
        report_errors(stop)
    assert ended.value.code == code
    assert capsys.readouterr() == ("", printed)


@pytest.mark.slow
def test_two_sweeps_on_one_folder_share_the_work(tmp_path):
    words = ["-m", *SMALL, "epochs=8", "batch_size=32", "attack=norm", "seed=0,1"]
    both = [begin(words, tmp_path) for _ in range(2)]
    printed = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    counts = [dict(re.findall(r"^  (done|skipped) +(\d+)", text, re.MULTILINE)) for text in printed]
    assert sum(int(count["done"]) for count in counts) == 2  # each run by one of them
    assert sum(int(count["skipped"]) for count in counts) == 2
    assert len(finished_folders(tmp_path)) == 2
    for folder in finished_folders(tmp_path):
        assert "resumed" not in json.loads((folder / "manifest.json").read_text())
        assert (folder / "train.log").read_text().count("training and") == 1
