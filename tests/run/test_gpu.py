"""Runs on a GPU beside the same runs on the CPU: test AUC with each defense, rebuilt pictures, and going on after a stop.

    pytest -m slow tests/run/test_gpu.py

Random numbers of the two devices differ, so an AUC may differ by 0.02; a run that was stopped and went on may not differ at
all from one in one go. Without a card there is nothing to compare.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.builders import figures

from vflbench.files import config_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
DEVICE, ROWS, TOLERANCE = "cuda", 40_000, 0.02
FULL = {"binomial": ["defense=[quantize,binomial]"], "selective_update": ["protocol=shared_embeddings"]}
DEFENSES = sorted(file.stem for file in (config_folder() / "defense").glob("*.yaml"))
PICTURES = [
    *("dataset=digits", "model=mlp", "attack=model_inversion", "epochs=1", "audit.batches=1"),
    *("attack.model_inversion.rows=8", "attack.model_inversion.steps=20"),
]


def command(folder: Path, device: str, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "vflbench", "train", f"device={device}", f"hydra.run.dir={folder}", *words]


def train(folder: Path, device: str, words: list[str]) -> dict:
    """The content of summary.json of a run in that folder, which goes on where one was stopped."""
    done = subprocess.run(command(folder, device, words), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or done.stdout
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("defense", DEFENSES)
def test_the_model_is_as_good(defense, tmp_path):
    words = [f"dataset.rows={ROWS}", "epochs=1", "attack=norm", *FULL.get(defense, [f"defense={defense}"])]
    here, there = (train(tmp_path / device, device, words) for device in ("cpu", DEVICE))
    assert there["test_auc"] == pytest.approx(here["test_auc"], abs=TOLERANCE)


def test_pictures_are_rebuilt_as_well(tmp_path):
    here, there = (train(tmp_path / device, device, PICTURES) for device in ("cpu", DEVICE))
    assert len(here["reconstructions"]) == len(there["reconstructions"]) > 0


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path):
    words = [f"dataset.rows={ROWS}", "epochs=3", "attack=norm", "defense=[gaussian,dcor]"]
    train(tmp_path / "whole", DEVICE, words)
    process = subprocess.Popen(command(tmp_path / "parts", DEVICE, words), stdout=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "parts").glob("checkpoint*")):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait()
    train(tmp_path / "parts", DEVICE, words)
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")
