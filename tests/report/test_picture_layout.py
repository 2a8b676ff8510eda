"""Figures of rebuilt data: everything is named, and no text lies on a picture."""

import itertools
import json

import numpy as np
import pytest
from report.drawn import marks_of, points_of, texts_of

from vflbench.report.comparison import lines, read_runs
from vflbench.report.inversion_figures import draw_inversion
from vflbench.report.picture_table import COLUMNS, PictureTable, draw_picture_table
from vflbench.report.recovery import draw_recovery, mechanism
from vflbench.results.rows import HEADER

BY = ["defense.top_k.fraction", "defense.quantize.levels", "defense.binomial.biased", "model.bottom_layers"]
ATTACKS = ("total_variation", "informed", "pca", "auxiliary", "black_box")


def entry(attack, layer, message="embedding", **figures):
    values = {name: {"mean": value, "low": None, "high": None} for name, value in figures.items()}
    return {"attack": attack, "message": message, "party": "all", "layer": layer, "figures": values}


def save(folder, number, *, seed=0, depth=2, picture_seed=0, errors=(0.01, 0.02), **defense):
    place = folder / f"run{number}"
    place.mkdir(parents=True)
    rng, entries = np.random.default_rng(seed), []
    for attack, error in zip(ATTACKS, np.linspace(*errors, len(ATTACKS)), strict=True):
        entries.append(entry(attack, "f2", mse=error, ssim=0.5 + 0.4 * rng.random(), identified=1.0))
        for guess, mse in (("mean", 0.07), ("class_mean", 0.05), ("random_row", 0.14)):
            entries.append(entry(attack, guess, "none", mse=mse, ssim=0.2, identified=0.05))
        entries.append(entry(attack, "chance", "none", identified=0.05))
    (place / "summary.json").write_text(json.dumps({"test_auc": 0.9, "test_accuracy": 0.9, "reconstructions": entries}))
    (place / "manifest.json").write_text(json.dumps({"format": 1, "batch_size": 32, "data": {"train_rows": 100}}))
    config = {"seed": seed, "model": {"bottom_layers": depth}, "defense": defense}
    (place / "config.yaml").write_text(json.dumps(config))
    (place / "metrics.csv").write_text(HEADER + "\n0,train,a,,embedding,,bytes_sent,960,,,\n")
    pictures = np.random.default_rng(picture_seed).random((20, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    arrays = {f"{attack}/all/f2/{part}": pictures for attack in ATTACKS for part in ("truth", "answer")}
    np.savez(place / "reconstructions.npz", **arrays)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All mechanisms at two depths, and top_k."""
    place, number = tmp_path_factory.mktemp("runs"), itertools.count()
    for depth in (2, 5):
        save(place, next(number), depth=depth)
        for levels in (2, 8):
            quantize = {"levels": levels}
            save(place, next(number), depth=depth, quantize=quantize)
            for biased in (True, False):
                save(place, next(number), depth=depth, quantize=quantize, binomial={"n": 64, "biased": biased})
    for fraction in (0.12, 0.23, 1.0):
        save(place, next(number), top_k={"fraction": fraction})
    return place


@pytest.mark.slow
def test_the_picture_table_names_every_setting_and_mechanism(folder):
    table = PictureTable.of(read_runs([folder]), "auxiliary")
    assert table.settings == ((2, 2), (2, 8), (5, 2), (5, 8))
    assert set(table.cells) == {(setting, column) for setting in table.settings for column in COLUMNS[1:]}
    for count in (4, 8):
        figure = draw_picture_table(table, count)
        words = texts_of(figure)
        assert {"2 layers, 2 levels", "5 layers, 8 levels", "original"} <= set(words)
        assert sum("MSE 0.018, identified 100%" in word for word in words) == 4 * 4
        assert len(figure.spec["datasets"]["pictures"]) == 4 * 5 * count


def test_pictures_lie_under_no_text_and_within_the_figure(folder):
    figure = draw_picture_table(PictureTable.of(read_runs([folder]), "auxiliary"), 5)
    pictures, written = figure.spec["datasets"]["pictures"], figure.spec["datasets"]["texts"]
    assert all(p["x"] + p["wide"] <= 340 and p["y"] + p["tall"] <= figure.spec["height"] for p in pictures)
    for text in written:
        assert not any(p["y"] < text["y"] + 7 and text["y"] - 7 < p["y"] + p["tall"] for p in pictures), text
    heights = sorted(text["y"] for text in written)
    assert min(np.diff(heights)) >= 15


def test_a_setting_that_was_not_run_says_so_and_other_pictures_are_refused(tmp_path):
    save(tmp_path, 0, quantize={"levels": 2})
    words = texts_of(draw_picture_table(PictureTable.of(read_runs([tmp_path]), "pca"), 5))
    assert sum("not run" in word for word in words) == 3
    save(tmp_path, 1, picture_seed=3)
    with pytest.raises(ValueError, match="different pictures"):
        draw_picture_table(PictureTable.of(read_runs([tmp_path]), "pca"))
    with pytest.raises(ValueError, match="no run quantizes"):
        PictureTable.of([run for run in read_runs([tmp_path]) if run.option("defense.quantize") is None], "pca")


@pytest.mark.slow
@pytest.mark.parametrize("least", [0.001, 0.0])
def test_recovery_has_a_row_for_each_mechanism(folder, tmp_path, least):
    save(tmp_path, 0, quantize={"levels": 3}, errors=(least, 0.71))
    table = lines(read_runs([folder, tmp_path]), BY)
    figures = draw_recovery(table, BY)
    assert [figure.slug for figure in figures] == ["recovery_mse", "recovery_ssim", "recovery_identified"]
    error = figures[0]
    words = texts_of(error)
    assert {
        "top k, fraction 0.12",
        "quantize + binomial, levels 2, biased, bottom layers 5",
        "quantize + binomial, levels 8, not biased, bottom layers 2",
    } < set(words)
    assert {"total variation", "black box", "no message: class mean", "mean squared error"} <= set(words)
    assert len({mechanism(line, BY, table) for line in table}) == len(table)
    drawn = points_of(error)
    assert len(drawn) == len(table) * len(ATTACKS) == len(marks_of(error))
    assert min(record["x"] for record in drawn) == pytest.approx(max(least, 1e-6))  # an exact answer has a place too
    assert "no message: chance" in texts_of(figures[2])


@pytest.mark.slow
def test_what_is_rebuilt_against_bits_and_accuracy_is_named(folder):
    figures = draw_inversion(lines(read_runs([folder]), BY), BY, "pca")
    words = [texts_of(figure) for figure in figures]
    assert all("no message: class mean" in of_figure for of_figure in words[:2])
    assert all("top_k 0.12 2" in of_figure for of_figure in words)
