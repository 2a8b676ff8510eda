import json
import math

import numpy as np
import pytest
from report.drawn import points_of, texts_of

from vflbench.report.comparison import lines, read_runs
from vflbench.report.inversion import bits_per_row, inversion_table, rebuilt
from vflbench.report.inversion_figures import draw_inversion
from vflbench.results.rows import HEADER

BY = ["defense.quantize.levels"]


def entry(layer, party, message="embedding", **figures):
    values = {name: {"mean": value, "low": None, "high": None} for name, value in figures.items()}
    return {"attack": "inversion", "message": message, "party": party, "layer": layer, "figures": values}


def save(folder, levels, ssim, accuracy, seed=0):
    """A run of 100 training rows in batches of 32 that sent 96 rows of `levels` bytes to the label party."""
    folder.mkdir()
    reconstructions = [
        entry("f2", "a", ssim=0.1, mse=0.5),
        entry("f2", "all", ssim=ssim, mse=0.01),
        entry("mean", "all", "none", ssim=0.2, mse=None),
    ]
    summary = {"test_auc": 0.9, "test_accuracy": accuracy, "reconstructions": reconstructions}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "batch_size": 32, "data": {"train_rows": 100}}))
    (folder / "config.yaml").write_text(f"seed: {seed}\ndefense: {{quantize: {{levels: {levels}}}}}\n")
    rows = [f"0,train,a,,embedding,,bytes_sent,{96 * levels},,,", f"1,train,a,,embedding,,bytes_sent,{96 * levels},,,"]
    rows += ["1,train,a,,gradient,,bytes_sent,9999,,,", "1,test_prediction,a,,embedding,,bytes_sent,9999,,,"]
    (folder / "metrics.csv").write_text(HEADER + "\n".join(rows) + "\n")
    pictures = np.random.default_rng(seed).random((4, 6, 6))
    arrays = {"inversion/all/f2/truth": pictures, "inversion/all/f2/answer": pictures / 2}
    np.savez(folder / "reconstructions.npz", **arrays)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    save(folder / "one", 2, 0.5, 0.8)
    save(folder / "two", 2, 0.7, 0.9, seed=1)
    save(folder / "three", 16, 0.9, 0.95)
    return read_runs([folder])


def test_bits_are_those_of_the_last_epochs_training_messages(runs):
    by_name = {run.folder.name: run for run in runs}
    assert bits_per_row(by_name["one"]) == 16
    assert bits_per_row(by_name["three"]) == 128


def test_figures_are_those_of_whole_pictures(runs):
    by_name = {run.folder.name: run for run in runs}
    assert rebuilt(by_name["one"], "inversion", "ssim") == 0.5
    assert rebuilt(by_name["one"], "inversion", "ssim", "mean") == 0.2
    assert math.isnan(rebuilt(by_name["one"], "inversion", "mse", "mean"))
    assert math.isnan(rebuilt(by_name["one"], "other", "ssim"))


def test_a_line_is_the_mean_over_seeds_and_guesses_follow(runs):
    rows = inversion_table(lines(runs, BY), BY, "inversion").split("\n")
    assert rows[0] == "| defense | defense.quantize.levels | runs | bits a row | test accuracy | mse | ssim |"
    assert rows[2].startswith("| quantize | 2 | 2 | 16 | 0.85 (2 runs: no interval)")
    assert "| 0.6 (2 runs: no interval)" in rows[2]
    assert rows[3].replace(" (1 run: no interval)", "!") == "| quantize | 16 | 1 | 128 | 0.95! | 0.01! | 0.9! |"
    assert rows[4] == "| no message: mean |  |  |  |  | - | 0.2 (3 equal runs) |"


def test_the_figures_have_a_point_and_a_line_of_pictures_per_line(runs):
    bits, utility, grid = draw_inversion(lines(runs, BY), BY, "inversion")
    assert {(r["x"], r["y"]) for r in points_of(bits)} == {(16.0, 0.6), (128.0, 0.9)}
    assert [r["series"] for r in points_of(bits)] == ["quantize 2", "quantize 16"]
    assert {"quantize 2", "quantize 16", "no message: mean"} <= set(texts_of(bits))
    assert "test accuracy of the model" in texts_of(utility)
    drawn = grid.spec["datasets"]["pictures"]
    assert len(drawn) == 3 * 4
    assert [t for t in texts_of(grid) if t != grid.title] == ["true", "quantize 2", "quantize 16"]
    assert [len({entry["url"] for entry in drawn[k : k + 4]}) for k in (0, 4, 8)] == [4, 4, 4]
