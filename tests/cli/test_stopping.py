"""Commands that are stopped, and commands that meet: in processes of their own."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from warm_command import OPEN, SMALL

from vflbench.cli.main import report_errors
from vflbench.results.folder import finished_folders
from vflbench.run.interruption import Interrupted


def started(*arguments, cwd):
    """A run in a process of its own, as soon as it has finished an epoch."""
    command = [sys.executable, "-m", "vflbench", "train", *SMALL, "epochs=100000", *arguments]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=OPEN)
    deadline = time.monotonic() + 200
    while not list(cwd.rglob("checkpoint.pt")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_saves_says_so_and_the_same_command_goes_on(tmp_path):
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = started("hydra.run.dir=run", "log_every=1", cwd=tmp_path)
        if number == signal.SIGTERM:
            log = tmp_path / "run" / "train.log"
            while " loss: " not in log.read_text().partition("going on before epoch ")[2] and process.poll() is None:
                time.sleep(0.05)
        process.send_signal(number)
        _, printed = process.communicate(timeout=300)
        assert process.returncode == code
        assert len(printed.strip().splitlines()) == 1
        assert re.match(r"\nstopped before epoch \d+.*, and saved; the same command goes on from there", printed)
        assert not (tmp_path / "run" / "summary.json").exists()


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
    """tests/cli/test_launch.py has the same without a second process."""
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
