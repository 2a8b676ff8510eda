"""The examples of docs/examples, each run as a user would."""

import csv
import json
import os
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
    environment = {k: v for k, v in os.environ.items() if k not in ("HYDRA_FULL_ERROR", "VFLBENCH_TRACEBACK")}
    result = warm_command.run(["train", *SMALL, *arguments, f"hydra.run.dir={folder}"], folder.parent, environment)
    assert result.returncode == 0, result.stderr
    return folder


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def leaks(folder: Path, attack: str) -> dict[str, float]:
    """Layer -> two-sided leak AUC after the last epoch."""
    rows = [row for row in metrics(folder) if row["attack"] == attack and row["metric"] == "leak_auc_two_sided"]
    return {row["layer"]: float(row["value"]) for row in rows if row["epoch"] == "1" and row["visible"] == "true"}


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "run"
    return train(folder, *NARROW, "attack=[norm,spectral]", "record=audited")


@pytest.mark.slow
def test_an_attack(tmp_path):
    folder = train(tmp_path / "run", *NARROW, "--plugins", str(EXTENDING / "attack"), "attack=[loudest,norm]")
    assert min(leaks(folder, "loudest").values()) > 0.8
    threat = manifest(folder)["threats"]["loudest"]
    assert (threat["role"], threat["knows"], threat["active"]) == ("non-label party", ["gradients"], False)


def rounds(folder: Path):
    """(embeddings, columns) of party a in each recorded round of the last epoch."""
    for round_ in RecordedMessages(folder / "recording").rounds(1):
        facts = round_.facts["a"]
        columns = facts[PartyFeatures]
        yield facts[Embeddings], torch.cat([columns.numeric, columns.categorical.float()], dim=1), round_.ids


@pytest.mark.slow
def test_a_defense_that_needs_its_own_columns_and_the_gradient(tmp_path, plain):
    plugins = ("--plugins", str(EXTENDING / "defense"), "defense=no_peek", "defense.no_peek.weight=10")
    folder = train(tmp_path / "run", *NARROW, *plugins, "attack=[norm,spectral]", "record=audited")
    dependence = [
        sum(float(distance_correlation(h.layers["f2"], columns)) for h, columns, _ in rounds(f)) for f in (plain, folder)
    ]
    assert dependence[1] < 0.9 * dependence[0]


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
    common = sorted(set(sent[0]) & set(sent[1]))
    first, second = (torch.stack([values[row] for row in common]) for values in sent)
    assert len(common) > 1000
    assert torch.allclose(first, second, atol=1e-4)
    assert abs(float(first.std()) - 2) < 0.1


@pytest.mark.slow
def test_completion_knows_rows_for_the_whole_run_and_asks_its_own_network(tmp_path):
    options = ("attack=ridge_completion", "attack.ridge_completion.k=200", "optimizer.lr=0.005")
    folder = train(tmp_path / "run", *NARROW, "--plugins", str(EXTENDING / "ridge_completion"), *options)
    assert leaks(folder, "ridge_completion")["f2"] > 0.6
    assert manifest(folder)["threats"]["ridge_completion"]["known_rows"] == 200


@pytest.mark.slow
def test_a_party_that_cheats_and_the_honest_run_beside_it(tmp_path):
    plugins = ("--plugins", str(EXTENDING / "adversary"))
    folder = train(
        *(tmp_path / "run", *NARROW, *plugins, "attack=norm", "dataset.parties=2"),
        *("adversary=fast_learner", "adversary.fast_learner.party=b"),
    )
    assert manifest(folder)["threats"]["norm"]["active"]
    assert "fast_learner" not in (folder / "honest" / "config.yaml").read_text()
    assert not manifest(folder / "honest")["threats"]["norm"]["active"]
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
    assert manifest(folder)["cut_layers"] == {"a": ["cut"]}
    assert leaks(folder, "norm")["cut"] > 0.8
    assert name == "model" or list(leaks(folder, "norm")) == ["net.0", "net.1", "cut"]


@pytest.mark.slow
def test_an_audit_of_recorded_rounds_has_the_numbers_of_the_run(plain):
    script = EXTENDING / "recording" / "audit_recording.py"
    command = [sys.executable, str(script), str(plain / "recording")]
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
