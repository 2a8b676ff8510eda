import json
import math

import numpy as np
import pytest
import script_runs

from vflbench.results.report.comparison import lines, read_runs
from vflbench.results.report.inversion import bits_per_row, draw_inversion, inversion_table, rebuilt
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
    (folder / "manifest.json").write_text(json.dumps({"batch_size": 32, "data": {"train_rows": 100}}))
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


def test_the_picture_has_a_point_and_a_row_of_pictures_per_line(runs):
    figure = draw_inversion(lines(runs, BY), BY, "inversion")
    curves, grid = figure.subfigs
    left, right = curves.axes
    points = {tuple(line.get_xydata()[0]) for line in left.lines if len(line.get_xdata()) == 1}
    assert {(16.0, 0.6), (128.0, 0.9)} <= {(x, round(y, 9)) for x, y in points}
    (legend,) = curves.legends
    assert [text.get_text() for text in legend.get_texts()] == ["quantize 2", "quantize 16", "mean"]
    assert right.get_xlabel() == "test accuracy of the model"
    true, first, _ = (axes.images[0].get_array() for axes in grid.axes)
    assert true.shape == (6, 4 * 7)
    assert np.array_equal(first[:, :6] * 2, true[:, :6])
    assert [axes.get_ylabel() for axes in grid.axes] == ["true", "quantize 2", "quantize 16"]


def test_the_script_prints_the_table_and_draws(runs, tmp_path):
    words = ["--by", BY[0], "--picture", tmp_path / "curve.png"]
    done = script_runs.run("inversion_curve", runs[0].folder.parent, *words)
    assert inversion_table(lines(runs, BY), BY, "inversion") in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 5000
    nothing = script_runs.run("inversion_curve", tmp_path)
    assert nothing.returncode == 2
    assert "rebuilt anything" in nothing.stderr
