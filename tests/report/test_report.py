"""The pictures and the table of one run: they show what the run wrote, and nothing else."""

import numpy as np
import pytest
from builders import run_in
from outputs_tree import write_run

from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.digits import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.models.mlp import Mlp
from vflbench.models.wide_deep import WideDeep
from vflbench.report.run_plots import class_plots, epochs_plot, layers_plot, run_plots
from vflbench.report.terminal import final_table
from vflbench.results.layers import layers_of
from vflbench.results.read import read_manifest, read_metrics, read_summary
from vflbench.results.rows import HEADER, Row
from vflbench.results.runs import Run


def layers_in(folder):
    return Run(folder, {}, read_summary(folder), read_manifest(folder)).layers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    attacks = {"norm": Norm(), "spectral": Spectral(), "no_message": NoMessage()}
    run_in(
        folder,
        dataset=Synthetic(rows=2000, vocabulary=300, parties=2),
        model=WideDeep(bottom_layers=3, top_layers=2, width=8, wide=True),
        attacks=attacks,
    )
    return folder


def run_of(folder):
    return Run(folder, {}, read_summary(folder), read_manifest(folder))


@pytest.mark.slow
def test_a_run_has_its_leak_per_layer_and_with_several_epochs_its_auc_per_epoch(folder, tmp_path):
    assert [plot.slug for plot in run_plots(run_of(folder), "s")] == ["s_epochs", "s_layers"]
    rows = [Row(epoch, split, metric="auc", value=0.7) for split in ("test", "train") for epoch in (0, 1)]
    run = run_of(write_run(tmp_path / "run"))
    (run.folder / "metrics.csv").write_text(HEADER + "\n" + "".join(f"{r.epoch},{r.split},,,,,auc,0.7,,,\n" for r in rows))
    (plot,) = run_plots(run, "s")
    assert plot.slug == "s_epochs"
    (run.folder / "metrics.csv").write_text(f"{HEADER}\n0,test,,,,,auc,0.7,,,\n")
    assert run_plots(run, "s") == []
    assert [(line.label, len(line.points)) for line in plot.series] == [("test AUC", 2), ("train AUC", 2)]


def test_lines_go_through_the_measured_values(folder):
    rows, summary = read_metrics(folder), read_summary(folder)
    chart = epochs_plot(rows)
    drawn = {line.label: [point.y.mean for point in line.points] for line in chart.series}
    assert drawn["test AUC"] == [r.value for r in rows if r.metric == "auc" and r.split == "test"]
    assert "no_message, own features alone, worst party" in drawn
    chart = layers_plot(rows, layers_in(folder))
    assert [text for _, text in chart.x.ticks] == ["f1", "f2", "f3 (cut)", "wide (cut)", "h1", "h2"]
    levels = {level.label: level.y for level in chart.levels}
    assert {0.5, summary["test_auc"]} <= set(levels.values())
    assert levels[f"train AUC {summary['train_auc']:.3f}"] == pytest.approx(summary["train_auc"])
    for reference in ("no_message", "probe"):
        leaks = [k for k in summary["leaks"] if k["attack"] == reference]
        assert {k["party"] for k in leaks} == {"a", "b"}
        worst = max(leaks, key=reads)
        assert levels[f"{reference}, party {worst['party']} {reads(worst):.3f}"] == pytest.approx(reads(worst))
    lines = {line.label: line for line in chart.series}
    assert not lines["norm on gradients, party a"].hollow
    assert lines["spectral, label party's top layers (hidden)"].hollow
    for line in lines.values():
        for point in line.points:
            assert point.y.low <= point.y.mean <= point.y.high


def reads(leak):
    return max(leak["two_sided"]["mean"], leak["net"]["mean"])


def test_of_many_references_the_probe_and_the_strongest_on_own_columns_are_drawn():
    rows = [Row(0, split, metric="auc", value=0.7) for split in ("test", "train")]
    rows += [
        Row(0, "train", "a", layer, message, attack, "leak_auc_two_sided", value, visible=True)
        for layer, message, attack, value in [
            ("f1", "gradient", "norm", 0.8),
            ("features", "none", "completion (own columns)", 0.58),
            ("features", "none", "hints (own columns)", 0.61),
            ("features", "none", "no_message", 0.6),
            ("messages", "none", "probe", 0.9),
            ("gradients", "none", "probe", 0.85),
        ]
    ]
    layers = layers_of({"cut_layers": {}}, [("a", "f1", True)])
    labels = [level.label for level in layers_plot(rows, layers).levels]
    assert {"probe 0.900", "hints (own columns) 0.610"} <= set(labels)
    assert not any("completion" in label or "no_message" in label for label in labels)
    labels = [line.label for line in epochs_plot(rows).series]
    assert set(labels) == {
        "test AUC",
        "train AUC",
        "norm on gradients, worst layer",
        "probe, half of the labels known",
        "hints (own columns), own features alone",
    }


def test_of_many_attacks_the_worst_and_the_strongest_of_each_message_are_drawn_and_the_note_says_so():
    """Eight attacks on gradients read 1; `direct`, which the verdict names, is the ninth; two read embeddings."""
    read = [(f"attack_{i}", "gradient", 1.0) for i in range(8)]
    read += [("direct", "gradient", 1.0), ("spectral", "embedding", 0.6), ("kmeans", "embedding", 0.55)]
    rows = [
        Row(epoch, "train", "a", "f1", message, attack, "leak_auc_two_sided", value, visible=True)
        for epoch in (0, 1)
        for attack, message, value in [*read, ("early", "gradient", 1.0 - 0.4 * epoch)]
    ]
    layers = layers_of({"cut_layers": {}}, [("a", "f1", True)])
    charts = epochs_plot(rows, ("direct", "gradient")), layers_plot(rows, layers, first=("direct", "gradient"))
    for chart in charts:
        drawn = {line.label.split(" ")[0] for line in chart.series}
        assert drawn == {"direct", "spectral", *(f"attack_{i}" for i in range(4))}
        assert "Drawn are 6 of 12 attacks: the worst of the verdict, the strongest on each kind of message" in chart.note
    assert epochs_plot([row for row in rows if row.attack in ("direct", "spectral")]).note == ""


def test_many_parties_are_drawn_as_the_worst_of_them():
    values = np.random.default_rng(0).uniform(0.5, 1, (9, 2))
    rows = [Row(0, split, metric="auc", value=0.7) for split in ("test", "train")]
    rows += [
        Row(0, "train", f"party{i}", f"f{j + 1}", "gradient", "norm", "leak_auc_two_sided", values[i, j], visible=True)
        for i in range(9)
        for j in range(2)
    ]
    chart = layers_plot(rows, layers_of({"cut_layers": {}}, [("party0", "f1", True), ("party0", "f2", True)]))
    (line,) = (line for line in chart.series if line.label == "norm on gradients, worst party")
    assert [point.y.mean for point in line.points] == list(values.max(axis=0))
    assert [text for _, text in chart.x.ticks] == ["f1", "f2"]


def test_a_run_without_attacks_and_with_an_undefined_auc_is_reported(tmp_path):
    run_in(tmp_path / "run", attacks={})
    assert [plot.slug for plot in run_plots(run_of(tmp_path / "run"), "s")] == ["s_epochs"]


@pytest.mark.slow
def test_many_classes_have_a_table_and_a_picture_of_their_own(tmp_path):
    attacks = {"kmeans": Kmeans(), "norm": Norm()}
    summary = run_in(tmp_path / "run", dataset=Digits(), model=Mlp(bottom_layers=2, top_layers=1), attacks=attacks)
    assert summary["leak_auc"] == {}
    assert set(summary["leak_ami"]["kmeans"]["embedding"]) == {"f1", "f2", "h1"}
    assert summary["leak_ami"]["kmeans"]["embedding"]["f1"] > 0.3
    metrics = {row.metric for row in read_metrics(tmp_path / "run") if row.attack}
    assert metrics == {"leak_accuracy", "leak_ami", "leak_macro_auc"}
    table = final_table(tmp_path / "run")
    assert "always answers the most frequent class reaches 0.10" in table
    assert "Not run: norm: " in table
    assert [plot.slug for plot in run_plots(run_of(tmp_path / "run"), "s")] == [
        "s_epochs",
        "s_layers_ami",
        "s_layers_accuracy",
    ]
    plots = class_plots(read_metrics(tmp_path / "run"), layers_in(tmp_path / "run"), 0.104)
    assert [plot.y.title for plot in plots] == ["adjusted mutual information", "accuracy"]
    assert [text for _, text in plots[1].x.ticks] == ["f1", "f2 (cut)", "h1"]
