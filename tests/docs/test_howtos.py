"""Sections of docs/howto/record.md: their code runs as it stands, or the section says that it was not run."""

import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from vflbench import RecordedMessages, audit
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import Gradients
from vflbench.messages.recording_format import manifest_in

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
SCRIPTS = HOWTO / "record"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", (HOWTO / "record.md").read_text(), re.MULTILINE | re.DOTALL))
RUN = {"PyTorch", "NumPy and other arrays", "NVIDIA FLARE", "Try a defense in the same loop"}
NOT_RUN = {"Flower", "Fedlearner and TensorFlow 1.15", "FATE", "SecretFlow"}


def blocks(section: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL)


def run_sections(*sections: str, folder: Path, monkeypatch) -> dict:
    """Their blocks one after the other, as a reader would type them."""
    monkeypatch.chdir(folder)
    names: dict = {}
    for section in sections:
        for block in blocks(section):
            exec(compile(block, section, "exec"), names)
    return names


def leaks(recording: Path, message: str, epochs=(0, 1)) -> list[float]:
    """Of `norm`, two-sided."""
    rows = audit(RecordedMessages(recording), {"norm": Norm()}, probe=False).rows()
    two_sided = [row for row in rows if row.metric == "leak_auc_two_sided" and row.epoch in epochs]
    return [row.value for row in two_sided if row.message == message]


@pytest.mark.slow
def test_torch(tmp_path, monkeypatch):
    torch.manual_seed(0)
    run_sections("PyTorch", "Try a defense in the same loop", folder=tmp_path, monkeypatch=monkeypatch)
    recorded = RecordedMessages(tmp_path / "recorded")
    assert {epoch: len(steps) for epoch, steps in recorded.epochs.items()} == {0: 8, 1: 8}
    assert recorded.manifest.model == {"test_auc": 0.71, "train_auc": 0.75}
    assert pq.read_metadata(tmp_path / "recorded" / "labels.parquet").num_rows == 512
    open_loop, defended = (leaks(tmp_path / name, "gradient") for name in ("recorded", "defended"))
    assert max(open_loop) > 0.9 > 0.75 > max(defended)


def test_numpy(tmp_path, monkeypatch):
    names = run_sections("NumPy and other arrays", folder=tmp_path, monkeypatch=monkeypatch)
    recorded = RecordedMessages(tmp_path / "recorded")
    assert recorded.epochs == {0: list(range(20))}
    *_, last = recorded.rounds(0)
    assert np.array_equal(last.facts["media"][Gradients].layers["cut"].numpy(), names["g"])
    assert recorded.coverage["media"].types == {"float16"}
    assert leaks(tmp_path / "recorded", "gradient")


@pytest.mark.slow
def test_a_script_that_knows_torch_and_the_recorder_alone(tmp_path):
    """Its audit finds what gradients tell: the loss is a mean, so their norms name the rare class."""
    script = SCRIPTS / "record_lstm.py"
    imports = re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.MULTILINE)
    assert set(imports) == {"torch", "vflbench"}
    assert len(script.read_text().splitlines()) <= 30
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    recorded = RecordedMessages(tmp_path / "recorded")
    assert {epoch: len(steps) for epoch, steps in recorded.epochs.items()} == dict.fromkeys(range(4), 20)
    assert recorded.manifest.model["test_auc"] > 0.85
    assert min(leaks(tmp_path / "recorded", "gradient", epochs=(3,))) > 0.8


def test_by_hand(tmp_path):
    """The library reads the file, and the reader the folder, as if they were written with them."""
    module, rng = SimpleNamespace(**runpy.run_path(str(SCRIPTS / "write_by_hand.py"))), np.random.default_rng(5)
    ids = [module.row_id(name) for name in ("user 7", b"user 8", "user 9")]
    assert ids[1] == module.row_id("user 8")
    assert all(0 <= row < 2**63 for row in ids)
    for epoch in range(2):
        for step in range(3):
            h, g = rng.normal(size=(2, 3, 4)).astype("f2" if epoch else "f4")
            module.write_by_hand(str(tmp_path), "media", ids, {"cut": h}, {"cut": g}, epoch, step)
    file = load_file(tmp_path / "messages" / "media-000100000002.safetensors")
    assert np.array_equal(file["2/embedding/cut"], h)
    recorded = RecordedMessages(tmp_path)
    assert recorded.epochs == {0: [0, 1, 2], 1: [0, 1, 2]}
    *_, last = recorded.rounds(1)
    assert last.ids.tolist() == ids
    assert np.array_equal(last.facts["media"][Gradients].layers["cut"].numpy(), g)
    assert json.loads((tmp_path / "manifest.json").read_text())["parties"] == {"media": {"layers": {"cut": 4}}}


def test_each_section_says_whether_its_code_was_run():
    assert SECTIONS.keys() == RUN | NOT_RUN
    for name, text in SECTIONS.items():
        assert ("**Our tests do not run this section.**" in text) == (name in NOT_RUN), name
        assert blocks(name)
        for block in blocks(name):
            compile(block, name, "exec")


def test_the_section_on_nvflare_shows_lines_of_its_script():
    script = (SCRIPTS / "nvflare_split.py").read_text()
    assert [line for block in blocks("NVIDIA FLARE") for line in block.splitlines() if line not in script] == []


@pytest.mark.slow
def test_nvflare(tmp_path):
    """A simulated federation: the label owner is its server, the feature owner its client."""
    pytest.importorskip("nvflare", reason="no nvflare here")
    script = [sys.executable, str(SCRIPTS / "nvflare_split.py"), str(tmp_path)]
    result = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    recorded = RecordedMessages(tmp_path / "recorded")
    assert recorded.epochs == {0: list(range(24))}
    for round_ in recorded.rounds(0):
        gradient = round_.facts["media"][Gradients].layers["cut"]
        assert (gradient.shape, bool(gradient.any())) == ((64, 16), True)


@pytest.mark.slow
def test_arrays_in_one_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```$", (HOWTO / "audit.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(block, "audit.md", "exec"), names)
    assert re.match(r"Gradients at the cut give 9\d(\.\d)? % of label pairs away", names["report"].verdict)
    assert (tmp_path / "audited_arrays" / "report" / "report.html").is_file()


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/howto/audit.md"])
def test_the_lines_shown_make_a_recording_with_epochs_and_labels(tmp_path, monkeypatch, page):
    (shown,) = re.findall(r"\n( +from vflbench import Recording\n(?: .*\n|\n)*)", (ROOT / page).read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=rng), (torch.arange(40) % 4 == 0).float()
    names = {
        "bottom": torch.nn.Linear(3, 4),
        "top": torch.nn.Linear(4, 1),
        "batches": [(ids, x[ids], y[ids]) for ids in torch.arange(40).split(20)],
        "loss_of": lambda out, y: torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y),
    }
    exec(textwrap.dedent(shown.split("\n    vflbench ")[0]), names)
    assert len(pq.read_table("recorded/labels.parquet")) == 40
    assert manifest_in(Path("recorded")).labels == "label"
    rows = audit("recorded", {"norm": Norm()}).rows()
    assert {row.epoch for row in rows if row.metric == "leak_auc"} == {0, 1}
