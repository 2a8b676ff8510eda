import math

import pytest
import script_runs
import torch

import vflbench.cli.build
import vflbench.data.synthetic
import vflbench.results.report.raster  # noqa: F401


@pytest.fixture(scope="module")
def script():
    return script_runs.load("no_defense")


def read_of(script, values, labels, tests):
    count = len(labels)
    return script.Read({"embeddings": values}, torch.arange(count), labels, tests, torch.zeros(count), 0.5)


def test_labelled_rows_are_training_rows_of_both_classes(script, rng):
    labels = torch.tensor([1, 0] * 10 + [0] * 57 + [1] * 3)
    read = read_of(script, torch.zeros(80, 1), labels, tests=20)
    drawn = list(script.labelled(read, 5, 50, rng))
    assert len(drawn) == 50
    assert all(int(places.min()) >= 20 and 0 < int(labels[places].sum()) < 5 for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 40


def test_aucs_leave_out_the_rows_that_were_fitted(script):
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    read = read_of(script, torch.zeros(6, 1), labels, tests=2)
    scores = torch.tensor([1.0, 0.0, 0.0, 1.0, 5.0, 2.0])
    assert read.aucs(scores) == {"test": 0.0, "train": 0.5}
    assert read.aucs(scores, torch.tensor([4])) == {"test": 0.0, "train": 1.0}


def test_a_head_reaches_the_best_reader_of_planted_embeddings(script, rng):
    """Classes N(+-e_1, I) in 8 dimensions: nobody exceeds Phi(sqrt 2)."""
    labels = torch.randint(2, (6000,), generator=rng)
    values = torch.randn(6000, 8, generator=rng)
    values[:, 0] += 2.0 * labels - 1
    read = read_of(script, values, labels, tests=3000)
    best = 0.5 * (1 + math.erf(1))
    few, many = (read.aucs(script.head(values, read, torch.arange(3000, 3000 + k)))["test"] for k in (10, 1000))
    assert abs(many - best) < 0.02
    assert 0.6 < few < many


@pytest.mark.slow
def test_a_row_for_each_defense_and_the_model_beside_the_head(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "DEFENSES", {"none": ()})
    picture = tmp_path / "p.svg"
    quick = ("dataset=breast_cancer", "model=mlp", "epochs=8", "batch_size=64", "--seeds", 0, "--draws", 2, "--known", 100)
    done = script_runs.run(script, *quick, "--picture", picture)
    assert done.returncode == 0, done.stderr
    tables = done.stdout.split("train rows")
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in tables[0].splitlines()[4:]}
    model, no_label, known = (float(cell.split()[0]) for cell in cells["none"])
    assert model > 0.9
    assert abs(model - known) < 0.1
    assert 0.5 <= no_label < 1
    assert cells["own columns"][:2] == ["", ""]
    assert "own columns" in picture.read_text()
