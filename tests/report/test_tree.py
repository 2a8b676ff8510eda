"""What is not a finished run in a folder of outputs is reported with its reason, and never a crash."""

import json
import shutil

import pytest
from support.outputs_tree import sweep, write_run

from vflbench.report.page import write_report
from vflbench.results.runs import read_tree


def messy(root):
    sweep(root, seeds=1)
    (root / "failed").mkdir()
    (root / "failed" / "config.yaml").write_text("seed: 0\n")
    (root / "failed" / "error.txt").write_text("dataset.path=nowhere: there is\nno such file\n\nTraceback ...\n  File")
    write_run(root / "stopped").joinpath("summary.json").unlink()
    torn = write_run(root / "torn", seed=5)
    (torn / "summary.json").write_text((torn / "summary.json").read_text()[:40])
    (write_run(root / "headless", seed=6) / "config.yaml").unlink()
    (write_run(root / "listed", seed=8) / "config.yaml").write_text("[1, 2]")
    write_run(root / "broken promise", seed=9, failed="label_dp: the promise of eps = 1 is broken")
    shutil.copytree(root / "none0", root / "a copy of none0")
    (root / "notes.txt").write_text("mine")
    (root / "pictures").mkdir()
    (root / "pictures" / "cat.png").write_bytes(b"no picture")
    (root / "empty").mkdir()
    (root / "sub").mkdir()
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
    assert "config.yaml can't be read: it holds no options" in reasons["unreadable", "listed"]
    assert "counted once" in reasons["repeated", "none0"]
    assert not {"notes.txt", "cat.png"} & {name for _, name in reasons}


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch):
    for name, value in {"files": lambda *_: (), "library": lambda: ""}.items():
        monkeypatch.setattr(f"vflbench.report.charts.{name}", value)


@pytest.mark.slow
def test_the_page_lists_them_and_a_second_report_does_not_read_the_first(tmp_path):
    root = messy(tmp_path / "outputs")
    page = write_report([root], root / "report")
    text = page.read_text()
    for word in ("no such file", "stopped", "Failed runs (2)", "Half-written runs (2)", "counted once"):
        assert word in text
    assert "4 finished runs" in text
    assert read_tree([root]).odd == read_tree([root, root / "report"]).odd
    before = {file.name: file.read_text() for file in (root / "report" / "tables").iterdir()}
    write_report([root], root / "report")
    assert before == {file.name: file.read_text() for file in (root / "report" / "tables").iterdir()}


def test_a_summary_with_next_to_nothing_in_it_is_shown(tmp_path):
    folder = write_run(tmp_path / "bare")
    (folder / "summary.json").write_text(json.dumps({"test_auc": None, "leaks": [{"attack": "x"}]}))
    (folder / "metrics.csv").unlink()
    assert "1 finished run in" in write_report([tmp_path], tmp_path / "report").read_text()


def test_two_experiments_may_hold_the_same_run(tmp_path):
    for name in ("forward_figure4", "forward_figure7"):
        write_run(tmp_path / name / "run", experiment=name, defense={"dcor": {"alpha_d": 0.02}})
    tree = read_tree([tmp_path])
    assert (len(tree.runs), tree.odd) == (2, [])
