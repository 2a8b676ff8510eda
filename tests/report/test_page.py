"""The page as a whole: what stands on it, what it needs, what it says of runs that can't be shown."""

import base64
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from report.drawn import section_of
from support.outputs_tree import marvell, reading, sweep, write_adversarial_run, write_run

from vflbench.report.charts import library
from vflbench.report.page import Wishes, alarms, write_report
from vflbench.results.runs import read_tree

PLAIN = Wishes(formats=())


@pytest.mark.slow
def test_the_page_has_sentences_figures_tables_and_who_attacks_and_needs_nothing_but_itself(tmp_path):
    pictures = np.random.default_rng(0).random((4, 8, 8))
    arrays = {"x/a/f2/truth": pictures, "x/a/f2/answer": pictures / 2}
    np.savez(sweep(tmp_path, seeds=1) / "none0" / "reconstructions.npz", **arrays)
    reported = write_report([tmp_path], tmp_path / "report", Wishes(formats=("svg",))).parent
    page = (reported / "report.html").read_text()
    threat = "An honest-but-curious attacker at a non-label party, who knows the gradients."
    assert f"<b>norm</b>: {threat} Score each row by the length of its gradient." in page
    assert "Pareto front" in (reported / "figures" / "runs_criteo_plane.svg").read_text()
    bare = page.replace(library(), "")
    links = re.findall(r'(?:src|href)="([^"#][^"]{0,30})', bare)
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "url(" not in bare
    assert base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", page)[1])[:4] == b"\x89PNG"
    for ending, sign in (("md", "| marvell, sumkl 0.04 "), ("tex", r"\toprule")):
        assert sign in (reported / "tables" / f"runs_criteo_settings.{ending}").read_text()


@pytest.mark.slow
def test_the_axes_and_the_layer_are_chosen(tmp_path):
    wishes = Wishes(x="seconds", y="leak_distance:norm", layer="f1", formats=("svg",))
    page = write_report([sweep(tmp_path, seeds=2)], tmp_path / "r", wishes)
    assert "|leak AUC - 0.5| at layer f1, norm" in (page.parent / "figures" / "runs_criteo_plane.svg").read_text()
    settings = pd.read_csv(page.parent / "tables" / "runs_criteo_settings.csv", index_col="setting")
    assert settings.at["marvell, sumkl 0.16", "|leak AUC - 0.5|"] == pytest.approx(0.07)


@pytest.mark.slow
def test_an_adversary_is_named_with_its_honest_run_beside_it_and_a_leak_above_a_ceiling_is_an_alarm(tmp_path):
    keywords = marvell(0.16, 0.68)
    exceeded = [reading(value=0.9, low=0.89, high=0.91, ceiling=0.68)]
    keywords["guarantees"]["marvell"] |= {"bounds": "the leak", "assumption": "so", "exceeded": exceeded}
    for seed in range(2):
        write_run(tmp_path / f"marvell{seed}", seed=seed, **keywords)
        write_adversarial_run(tmp_path / f"scaled{seed}", seed=seed)
    text = write_report([tmp_path], tmp_path / "report", PLAIN).read_text()
    assert re.search('<p class="alarm">marvell: .*above the ceiling of marvell', text, re.IGNORECASE)
    assert "4 finished runs" in text
    assert "<b>scaled, adversary</b>: Party a deviates from the protocol. It multiplies its learning rate by 10." in text
    assert "2 with an honest run beside it" in text


def test_whatever_decides_numbers_keeps_runs_apart_and_is_named_but_packages_do_not(tmp_path):
    ours = {"identity": {"code": "c", "plugins": [], "data": {"dataset.path": "d"}}, "device": "cpu"}
    theirs = {"identity": {"code": "e", "plugins": [{"mine.py": "1"}], "data": {"dataset.path": "e"}}, "device": "cuda:0"}
    for seed, (facts, auc) in enumerate(((ours, 0.7), (theirs, 0.9))):
        write_run(tmp_path / str(seed), seed=seed, test_auc=auc, facts=facts)
    section = section_of(tmp_path)
    assert sorted(value.mean for value in section.over_seeds("test_auc")) == [0.7, 0.9]
    parts = "vflbench's code and plug-ins (mine.py) and data (dataset.path) and device"
    assert alarms(section) == [(f"none: its runs are in 2 rows, not averaged, as they differ in {parts}.", False)]
    for seed, version in enumerate(("2.6", "2.7")):
        write_run(tmp_path / "alike" / version, seed=seed, facts={"versions": {"torch": version}})
    averaged = "none: averaged over torch 2.6 and 2.7, which may round differently."
    assert alarms(section_of(tmp_path / "alike")) == [(averaged, False)]


def test_what_stands_between_backticks_is_code_and_the_rest_is_text(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.report.charts.library", lambda: "")
    folder = write_run(tmp_path / "bare", facts={"threats": {"norm": {"text": "a `b<` <i>"}, "other": {"text": "``c`` d"}}})
    (folder / "summary.json").write_text('{"test_auc": null, "leaks": [{"attack": "x"}]}')  # next to nothing is enough
    text = write_report([tmp_path], tmp_path / "report", PLAIN).read_text()
    for said in ("a <code>b&lt;</code> &lt;i&gt;", "<code>c</code> d"):
        assert said in text


def messy(root):
    sweep(root, seeds=1)
    (root / "failed").mkdir()
    (root / "failed" / "config.yaml").write_text("seed: 0\n")
    (root / "failed" / "error.txt").write_text("dataset.path=nowhere: there is\nno such file\n\nTraceback ...\n  File")
    write_run(root / "stopped").joinpath("summary.json").unlink()
    torn = write_run(root / "torn", seed=5)
    (torn / "summary.json").write_text((torn / "summary.json").read_text()[:40])
    (write_run(root / "headless", seed=6) / "config.yaml").unlink()
    write_run(root / "broken promise", seed=9, failed="label_dp: the promise of eps = 1 is broken")
    shutil.copytree(root / "none0", root / "a copy of none0")
    (root / "notes.txt").write_text("mine")
    write_run(root / "sub" / "deeper", seed=10)
    return root


def test_everything_is_reported_with_its_reason(tmp_path):
    tree = read_tree([messy(tmp_path)])
    assert {run.folder.name for run in tree.runs} == {"a copy of none0", "m040", "m160", "deeper"}
    reasons = {(odd.kind, odd.path.name): odd.reason for odd in tree.odd}
    assert reasons["failed", "failed"] == "dataset.path=nowhere: there is no such file"
    assert "promise" in reasons["failed", "broken promise"]
    assert "no summary.json" in reasons["unfinished", "stopped"]
    assert "can't be read" in reasons["unreadable", "torn"]
    assert "no config.yaml" in reasons["unfinished", "headless"]
    assert "counted once" in reasons["repeated", "none0"]
    assert "notes.txt" not in {name for _, name in reasons}


@pytest.mark.slow
def test_the_page_lists_what_is_odd_and_a_second_report_does_not_read_the_first(tmp_path):
    root = messy(tmp_path / "outputs")
    text = write_report([root], root / "report", PLAIN).read_text()
    for word in ("no such file", "stopped", "Failed runs (2)", "Half-written runs (2)", "counted once"):
        assert word in text
    assert "4 finished runs" in text
    assert read_tree([root]).odd == read_tree([root, root / "report"]).odd
    before = {file.name: file.read_text() for file in (root / "report" / "tables").iterdir()}
    write_report([root], root / "report", PLAIN)
    assert before == {file.name: file.read_text() for file in (root / "report" / "tables").iterdir()}


def test_two_experiments_may_hold_the_same_run(tmp_path):
    for name in ("forward_figure4", "forward_figure7"):
        write_run(tmp_path / name / "run", experiment=name, defense={"dcor": {"alpha_d": 0.02}})
    tree = read_tree([tmp_path])
    assert (len(tree.runs), tree.odd) == (2, [])
