import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.image import imread
from scipy import stats

from vflbench.results.report.sweep import attacks_of, markdown, read_runs, settings
from vflbench.results.report.tradeoff import draw_tradeoff

ROOT = Path(__file__).resolve().parents[3]
BY = ["defense.marvell.sumkl"]


def write_run(folder, *, defense, seed, test_auc, raw, oriented=None, promise=None, batches=5):
    """What a run leaves, as far as a comparison reads it."""
    folder.mkdir(parents=True)
    config = {"defense": defense, "model": {"bottom_layers": 5}, "seed": seed}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def interval(mean):
        return {"mean": mean, "low": mean, "high": mean}

    def leak(party, layer, value, visible=True):
        values = {"raw": value, "two_sided": max(value, 1 - value), "oriented": oriented or max(value, 1 - value)}
        place = {"attack": "norm", "message": "gradient", "party": party, "layer": layer, "visible": visible}
        return place | {name: interval(mean) for name, mean in values.items()} | {"batches": batches, "left_out": 0}

    leaks = [leak("a", "f5", raw), leak("b", "f5", 0.5), leak("a", "f1", 0.99), leak("label", "f5", 1.0, visible=False)]
    leaks.append(leak("label", "h3", 0.7, visible=False))
    guarantees = dict.fromkeys(defense or {}, promise)
    summary = {"test_auc": test_auc, "leaks": leaks, "guarantees": guarantees}
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def runs(tmp_path):
    for seed, (test_auc, raw) in enumerate([(0.76, 0.9), (0.75, 0.92), (0.77, 0.91)]):
        write_run(tmp_path / f"none{seed}", defense={}, seed=seed, test_auc=test_auc, raw=raw)
    for sumkl, raw in ((math.inf, 0.91), (0.16, 0.52), (0.04, 0.45)):
        promise = None if math.isinf(sumkl) else {"leak_auc_one_message": 0.5 + sumkl, "leak_auc_all_messages": 0.9}
        for seed in range(2):
            defense = {"marvell": {"sumkl": sumkl}}
            write_run(tmp_path / f"m{sumkl}{seed}", defense=defense, seed=seed, test_auc=0.7, raw=raw, promise=promise)
    (tmp_path / "unfinished").mkdir()
    return read_runs([tmp_path])


def test_runs_that_differ_in_their_seed_make_one_line(runs):
    found = settings(runs, BY)
    assert [(s.defense, s.options[0], len(s.runs)) for s in found] == [
        ("none", None, 3),
        ("marvell", 0.04, 2),
        ("marvell", 0.16, 2),
        ("marvell", math.inf, 2),
    ]
    assert attacks_of(runs) == ["norm"]


def test_means_have_students_interval_over_seeds(runs):
    ours = settings(runs, BY)[0].over_seeds("test_auc")
    values = [0.75, 0.76, 0.77]
    assert (ours.low, ours.high) == pytest.approx(stats.t.interval(0.95, 2, 0.76, stats.sem(values)))


def test_the_leak_is_that_of_the_worst_party_at_the_cut(runs):
    none, tight = settings(runs, BY)[:2]
    assert none.over_seeds("raw", "norm").mean == pytest.approx(0.91)
    assert none.over_seeds("raw", "norm", "f1").mean == pytest.approx(0.99)
    assert tight.over_seeds("two_sided", "norm").mean == pytest.approx(0.55)
    assert tight.over_seeds("distance", "norm").mean == pytest.approx(0.05)
    assert none.over_seeds("raw", "norm", "h3").mean == pytest.approx(0.7)
    assert math.isnan(none.over_seeds("raw", "cosine").mean)


def test_one_run_shows_no_interval_and_says_how_many(tmp_path):
    write_run(tmp_path / "one", defense={}, seed=0, test_auc=0.76, raw=0.9)
    text = markdown(settings(read_runs([tmp_path]), BY), BY, ["norm", "cosine"])
    assert "| none |  | 1 | 0.760 | 0.900 | 0.900 | 0.900 | 0.400 | - | - | - | - |" in text


def test_lines_go_through_the_means_and_ceilings_through_the_promises(runs):
    figure = draw_tradeoff(settings(runs, BY), BY[0], ["norm"])
    left, right = figure.axes
    drawn = {c.get_label(): list(c[0].get_ydata()) for c in left.containers}
    assert drawn["norm"] == pytest.approx([0.55, 0.52, 0.91])
    lines = {line.get_label(): line.get_ydata() for line in left.get_lines()}
    assert lines["ceiling, one message"][:2] == pytest.approx([0.54, 0.66])
    assert math.isnan(lines["ceiling, one message"][2])
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["0.04", "0.16", "inf", "none"]
    assert {text.get_text() for text in right.texts} == {"0.04", "0.16", "inf", "none"}


def test_the_script_prints_the_table_and_draws(runs, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "tradeoff.py", tmp_path, "--picture", tmp_path / "t.png"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert markdown(settings(runs, BY), BY, ["norm"]) in told
    assert np.ptp(imread(tmp_path / "t.png")[..., :3]) > 0.9
    nothing = subprocess.run([*command[:2], tmp_path / "unfinished"], capture_output=True, text=True, check=False)
    assert nothing.returncode == 2
    assert "there is no finished run" in nothing.stderr
