"""The report reads what a run wrote, and nothing else."""

import json
import subprocess
import sys

import numpy as np
import pytest
from builders import run_in
from matplotlib.image import imread

from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.data.digits import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.models.mlp import Mlp
from vflbench.models.wide_deep import WideDeep
from vflbench.results.read import read_metrics, read_summary
from vflbench.results.report.figures import draw, draw_class_layers, draw_epochs, draw_layers
from vflbench.results.report.table import final_table


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
        "import sys; import vflbench.results.report.figures, vflbench.results.report.table;"
        "sys.exit('torch' in sys.modules or 'hydra' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_same_attacker_without_messages_and_train_auc_are_lines(tmp_path):
    attacks = {"norm": Norm(), "no_message": NoMessage()}
    summary = run_in(tmp_path / "run", dataset=Synthetic(rows=3000, vocabulary=300, parties=2), attacks=attacks)
    rows = read_metrics(tmp_path / "run")
    axes = draw_layers(rows).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["f1", "f2\n(cut)"]
    levels = {line.get_label(): line.get_ydata()[0] for line in axes.get_lines()}
    alone = {leak["party"]: leak["two_sided"]["mean"] for leak in summary["leaks"] if leak["message"] == "none"}
    assert set(alone) == {"a", "b"}
    party = max(alone, key=alone.get)
    assert levels[f"no_message, party {party} {alone[party]:.3f}"] == pytest.approx(alone[party])
    assert levels[f"train AUC {summary['train_auc']:.3f}"] == pytest.approx(summary["train_auc"])
    assert "no_message  none" in final_table(tmp_path / "run")
    labels = draw_epochs(rows).axes[0].get_legend_handles_labels()[1]
    assert "no_message, own features alone, worst party" in labels


def test_many_classes_have_a_table_and_a_picture_of_their_own(tmp_path):
    attacks = {"kmeans": Kmeans(), "norm": Norm()}
    summary = run_in(tmp_path / "run", dataset=Digits(), model=Mlp(bottom_layers=2, top_layers=1), attacks=attacks)
    assert summary["leak_auc"] == {}
    assert set(summary["leak_ami"]["kmeans"]["embedding"]) == {"f1", "f2", "h1"}
    assert summary["leak_ami"]["kmeans"]["embedding"]["f1"] > 0.3
    found = {row.metric for row in read_metrics(tmp_path / "run") if row.attack}
    assert found == {"leak_accuracy", "leak_ami", "leak_macro_auc"}
    table = final_table(tmp_path / "run")
    assert "always answers the most frequent class reaches 0.10" in table
    assert "skipped norm: it tells 2 classes apart" in table
    assert [p.name for p in draw(tmp_path / "run")] == ["auc_per_epoch.png", "leak_per_layer.png"]
    figure = draw_class_layers(read_metrics(tmp_path / "run"), 0.104)
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy", "adjusted mutual information"]
