"""Figures of rebuilt data that can be read at a glance: no text is clipped and no two texts overlap."""

import itertools
import json

import numpy as np
import pytest
import script_runs

from vflbench.results.report.comparison import lines, read_runs
from vflbench.results.report.inversion import draw_inversion
from vflbench.results.report.picture_table import COLUMNS, PictureTable, draw_picture_table
from vflbench.results.report.recovery import draw_recovery, mechanism
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
    (place / "manifest.json").write_text(json.dumps({"batch_size": 32, "data": {"train_rows": 100}}))
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


def texts_of(figure):
    """Words -> bounding boxes of everything that is written, in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in shown], figure.bbox


def is_readable(figure):
    texts, canvas = texts_of(figure)
    for words, box in texts:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= canvas.x1 + 0.5 and box.y1 <= canvas.y1 + 0.5
        assert inside, f"{words!r} is clipped: {box} in {canvas}"
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        assert not (a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1), f"{one!r} and {other!r} overlap"
    return [words for words, _ in texts]


def visible_ticks(figure):
    """Ticks beyond the limits of an axis are drawn nowhere, but have a text."""
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = min(low, high), max(low, high)
            for tick in axis.get_major_ticks():
                tick.label1.set_visible(tick.label1.get_visible() and low <= tick.get_loc() <= high)
                tick.label2.set_visible(False)


@pytest.mark.slow
def test_the_picture_table_can_be_read(folder):
    table = PictureTable.of(read_runs([folder]), "auxiliary")
    assert table.settings == ((2, 2), (2, 8), (5, 2), (5, 8))
    assert set(table.cells) == {(setting, column) for setting in table.settings for column in COLUMNS[1:]}
    for count in (4, 8):
        figure = draw_picture_table(table, count)
        words = is_readable(figure)
        assert set(COLUMNS) <= set(words)
        assert "not run" not in words
        assert len(figure.axes) == 4 * 5
        boxes = [axes.get_position() for axes in figure.axes]
        assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= 1 and box.y1 <= 1 for box in boxes)


@pytest.mark.slow
def test_pictures_lie_under_no_text(folder):
    figure = draw_picture_table(PictureTable.of(read_runs([folder]), "auxiliary"), 5)
    texts, _ = texts_of(figure)
    for axes in figure.axes:
        box = axes.get_window_extent()
        for words, text in texts:
            assert not (text.x0 < box.x1 and box.x0 < text.x1 and text.y0 < box.y1 and box.y0 < text.y1), words


@pytest.mark.slow
def test_a_setting_that_was_not_run_says_so_and_other_pictures_are_refused(tmp_path):
    save(tmp_path, 0, quantize={"levels": 2})
    words = is_readable(draw_picture_table(PictureTable.of(read_runs([tmp_path]), "pca"), 5))
    assert words.count("not run") == 3
    save(tmp_path, 1, picture_seed=3)
    with pytest.raises(ValueError, match="different pictures"):
        draw_picture_table(PictureTable.of(read_runs([tmp_path]), "pca"))
    with pytest.raises(ValueError, match="no run quantizes"):
        PictureTable.of([run for run in read_runs([tmp_path]) if run.option("defense.quantize") is None], "pca")


@pytest.mark.parametrize("least", [0.001, *(pytest.param(least, marks=pytest.mark.slow) for least in (0.03, 1e-5, 0.0))])
def test_recovery_by_mechanism_can_be_read(folder, tmp_path, least):
    save(tmp_path, 0, quantize={"levels": 3}, errors=(least, 0.71))
    table = lines(read_runs([folder, tmp_path]), BY)
    figure = draw_recovery(table, BY)
    figure.draw_without_rendering()
    visible_ticks(figure)
    words = is_readable(figure)
    assert "top k, fraction 0.12" in words
    assert {
        "quantize + binomial, levels 2, biased, bottom layers 5",
        "quantize + binomial, levels 8, not biased, bottom layers 2",
    } < set(words)
    assert {"total variation", "black box", "no message: class mean", "no message: chance"} <= set(words)
    assert [axes.get_xlabel() for axes in figure.axes][:2] == ["mean squared error", "structural similarity (SSIM)"]
    assert len({mechanism(line, BY, table) for line in table}) == len(table)


@pytest.mark.slow
def test_what_is_rebuilt_against_bits_and_accuracy_can_be_read(folder):
    figure = draw_inversion(lines(read_runs([folder]), BY), BY, "pca")
    figure.draw_without_rendering()
    visible_ticks(figure.subfigs[0])
    words = is_readable(figure)
    assert {"class mean", "true", "random row"} <= set(words)
    assert words.count("top_k 0.12 2") == 2  # in the legend and beside its pictures


@pytest.mark.slow
def test_the_scripts_draw_both(folder, tmp_path):
    done = script_runs.run("inversion_pictures", folder, "--picture", tmp_path / "table.png")
    assert done.returncode == 0, done.stderr
    assert 5_000 < (tmp_path / "table.png").stat().st_size < 200_000
    curve = ["--by", ",".join(BY), "--attack", "strongest", "--recovery", tmp_path / "recovery.png"]
    done = script_runs.run("inversion_curve", folder, *curve)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "recovery.png").stat().st_size < 200_000
    assert "| defense | defense.top_k.fraction |" in done.stdout
    nothing = script_runs.run("inversion_pictures", tmp_path, "--picture", tmp_path / "x.png")
    assert nothing.returncode == 2
    assert "no finished run" in nothing.stderr
