"""The examples of docs/examples, each run as a user would."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import warm_command

from vflbench.messages.facts import Embeddings, PartyFeatures
from vflbench.messages.recordings import RecordedMessages
from vflbench.numerics.distance_correlation import distance_correlation

EXTENDING = Path(__file__).resolve().parents[2] / "docs" / "examples"
SMALL = ["dataset.rows=2000", "dataset.vocabulary=200", "epochs=2", "batch_size=64"]
NARROW = ["model.width=16", "model.bottom_layers=2", "model.top_layers=1"]


def train(folder: Path, *arguments: str) -> Path:
    """The folder of the finished run."""
    result = warm_command.run(["train", *SMALL, *arguments, f"hydra.run.dir={folder}"], folder.parent, warm_command.OPEN)
    assert result.returncode == 0, result.stderr
    return folder


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def leaks(folder: Path, attack: str) -> dict[str, float]:
    """Layer -> two-sided leak AUC after the last epoch."""
    wanted = (attack, "leak_auc_two_sided", "1", "true")
    rows = [row for row in metrics(folder) if tuple(row[key] for key in ("attack", "metric", "epoch", "visible")) == wanted]
    return {row["layer"]: float(row["value"]) for row in rows}


def threat(folder: Path, attack: str) -> dict:
    return json.loads((folder / "manifest.json").read_text())["threats"][attack]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "run"
    return train(folder, *NARROW, "attack=[norm,spectral]", "record=audited")


@pytest.mark.slow
def test_an_attack(tmp_path):
    folder = train(tmp_path / "run", *NARROW, "--plugins", str(EXTENDING / "attack"), "attack=[loudest,norm]")
    assert min(leaks(folder, "loudest").values()) > 0.8
    loudest = threat(folder, "loudest")
    assert (loudest["role"], loudest["knows"], loudest["active"]) == ("non-label party", ["gradients"], False)


def dependence(folder: Path) -> float:
    """Distance correlation of what party a sends with its columns, summed over the recorded rounds of the last epoch."""
    total = 0.0
    for round_ in RecordedMessages(folder / "recording").rounds(1):
        columns = round_.facts["a"][PartyFeatures]
        table = torch.cat([columns.numeric, columns.categorical.float()], dim=1)
        total += float(distance_correlation(round_.facts["a"][Embeddings].layers["f2"], table))
    return total


@pytest.mark.slow
def test_a_defense_that_needs_its_own_columns_and_the_gradient(tmp_path, plain):
    plugins = ("--plugins", str(EXTENDING / "defense"), "defense=no_peek", "defense.no_peek.weight=10")
    folder = train(tmp_path / "run", *NARROW, *plugins, "attack=[norm,spectral]", "record=audited")
    assert dependence(folder) < 0.9 * dependence(plain)


@pytest.mark.slow
def test_a_defense_that_needs_row_ids_gives_a_row_the_same_noise_in_every_epoch(tmp_path):
    plugins = ("--plugins", str(EXTENDING / "defense"), "defense=remembered_noise", "defense.remembered_noise.sigma=2")
    options = ("attack=norm", "record=messages", "optimizer.lr=1e-12")  # nothing is learned: only the noise is added
    folder = train(tmp_path / "run", *NARROW, *plugins, *options)
    sent: list[dict[int, torch.Tensor]] = [{}, {}]
    for epoch in (0, 1):
        for round_ in RecordedMessages(folder / "recording").rounds(epoch):
            received = round_.facts["label"][Embeddings].received["a"]["f2"]
            sent[epoch] |= dict(zip(round_.ids.tolist(), received, strict=True))
    first, second = (torch.stack([values[row] for row in sorted(sent[0].keys() & sent[1].keys())]) for values in sent)
    assert len(first) > 1000
    assert torch.allclose(first, second, atol=1e-4)
    assert abs(float(first.std()) - 2) < 0.1


@pytest.mark.slow
def test_completion_knows_rows_for_the_whole_run_and_asks_its_own_network(tmp_path):
    options = ("attack=ridge_completion", "attack.ridge_completion.k=200", "optimizer.lr=0.005")
    folder = train(tmp_path / "run", *NARROW, "--plugins", str(EXTENDING / "ridge_completion"), *options)
    assert leaks(folder, "ridge_completion")["f2"] > 0.6
    assert threat(folder, "ridge_completion")["known_rows"] == 200


@pytest.mark.slow
def test_a_party_that_cheats_and_the_honest_run_beside_it(tmp_path):
    words = ("attack=norm", "dataset.parties=2", "adversary=fast_learner", "adversary.fast_learner.party=b")
    folder = train(tmp_path / "run", *NARROW, "--plugins", str(EXTENDING / "adversary"), *words)
    assert "fast_learner" not in (folder / "honest" / "config.yaml").read_text()
    assert [threat(one, "norm")["active"] for one in (folder, folder / "honest")] == [True, False]
    figures = [[r for r in metrics(f) if r["metric"] not in ("seconds", "cpu_seconds")] for f in (folder, folder / "honest")]
    assert figures[0] != figures[1]


OWN = {
    "model": ("model=two_towers",),
    "own_modules": ("model=torch", "model.top=nets:Top", "model.bottom=nets:Bottom", "+model.bottom_options.hidden=32"),
}
"""Folder of examples -> the options that choose its modules, with a base class and without one."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_torch_modules_of_ones_own(name, tmp_path):
    folder = train(tmp_path / "run", "--plugins", str(EXTENDING / name), *OWN[name], "attack=norm")
    assert json.loads((folder / "manifest.json").read_text())["cut_layers"] == {"a": ["cut"]}
    assert leaks(folder, "norm")["cut"] > 0.8
    assert name == "model" or list(leaks(folder, "norm")) == ["net.0", "net.1", "cut"]


@pytest.mark.slow
def test_an_audit_of_recorded_rounds_has_the_numbers_of_the_run(plain):
    command = [sys.executable, str(EXTENDING / "recording" / "audit_recording.py"), str(plain / "recording")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    kept = [row for row in metrics(plain) if row["metric"] == "leak_auc"]
    expected = [(row["epoch"], row["attack"], row["party"], row["layer"], float(row["value"])) for row in kept]
    offline = [(*line.split(",")[:4], float(line.split(",")[4])) for line in printed]
    assert sorted(offline) == sorted(expected)


def test_the_page_counts_the_lines():
    page = (EXTENDING.parent / "howto" / "extend.md").read_text()
    for file in EXTENDING.glob("*/*.py"):
        line = next(line for line in page.splitlines() if f"`{file.name}`" in line)
        assert str(len(file.read_text().splitlines())) in line, f"{file.name}: {line}"
