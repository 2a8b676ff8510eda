"""The report reads what a run wrote, and nothing else."""

import json
import subprocess
import sys

import numpy as np
import pytest
from builders import run_in
from matplotlib.image import imread

from vflbench.data.synthetic import Synthetic
from vflbench.models.wide_deep import WideDeep
from vflbench.report.figures import draw, draw_epochs, draw_layers
from vflbench.report.read import read_metrics, read_summary
from vflbench.report.table import final_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    run_in(folder, dataset=Synthetic(rows=3000, vocabulary=300, parties=2), model=WideDeep(width=8, wide=True))
    return folder


def test_pictures_are_drawn_and_show_something(folder):
    pictures = draw(folder)
    assert [p.name for p in pictures] == ["auc_per_epoch.png", "leak_per_layer.png"]
    for picture in pictures:
        pixels = imread(picture)
        assert pixels.shape[0] > 500
        assert np.ptp(pixels[..., :3]) > 0.9


def test_lines_go_through_the_measured_values(folder):
    rows = read_metrics(folder)
    axes = draw_epochs(rows).axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert drawn["test AUC"] == [r.value for r in rows if r.metric == "auc" and r.split == "test"]
    layers = draw_layers(rows).axes[0]
    assert [label.get_text() for label in layers.get_xticklabels()] == [
        *("f1", "f2", "f3", "f4", "f5\n(cut)", "wide", "h1", "h2", "h3")
    ]
    levels = {line.get_ydata()[0] for line in layers.get_lines() if len(set(line.get_ydata())) == 1}
    assert {0.5, read_summary(folder)["test_auc"]} <= levels
    labels = layers.get_legend_handles_labels()[1]
    assert "norm on gradients, party a" in labels
    assert "spectral, label party's top layers (hidden)" in labels


def test_many_parties_are_drawn_as_the_worst_of_them(tmp_path):
    dataset = Synthetic(rows=2000, vocabulary=300, parties=9)
    run_in(tmp_path / "run", dataset=dataset, model=WideDeep(bottom_layers=2, width=8))
    rows = read_metrics(tmp_path / "run")
    figure = draw_layers(rows)
    assert "norm on gradients, worst party" in figure.axes[0].get_legend_handles_labels()[1]
    (line,) = (c for c in figure.axes[0].containers if c.get_label() == "norm on gradients, worst party")
    leaks = [r for r in rows if (r.metric, r.attack, r.epoch) == ("leak_auc_two_sided", "norm", 1)]
    assert list(line[0].get_ydata()) == [max(r.value for r in leaks if r.layer == layer) for layer in ("f1", "f2")]
    draw(tmp_path / "run")  # without a warning, which would be an error here


def test_the_table_has_every_leak_of_the_last_epoch_once(folder):
    summary = read_summary(folder)
    lines = final_table(folder).splitlines()
    rows = [line.split() for line in lines if line.startswith(("norm", "spectral"))]
    assert len(rows) == len(summary["leaks"])
    assert all(row[-1] == "hidden" for row in rows if row[2] == "label")
    assert f"test AUC {summary['test_auc']:.4f}" in lines[0]


def test_a_run_without_attacks_and_with_an_undefined_auc_is_reported(tmp_path):
    run_in(tmp_path / "run", attacks={})
    assert [p.name for p in draw(tmp_path / "run")] == ["auc_per_epoch.png"]
    summary = read_summary(tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text(json.dumps({**summary, "test_auc": None}))
    assert "test AUC undefined" in final_table(tmp_path / "run")


def test_reading_needs_nothing_that_trains():
    code = (
        "import sys; import vflbench.report.figures, vflbench.report.table;"
        "sys.exit('torch' in sys.modules or 'hydra' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
