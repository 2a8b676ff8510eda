"""A report on folders that others made: nothing runs, hangs or is written elsewhere, and one bad run is a line."""

import contextlib
import json
import random
import re
import shutil

import pytest
import yaml
from support.hostile_runs import ODD, TEXTS, faults, places, replaced_by, with_value, written
from support.outputs_tree import interval, leak, marvell, reading, rebuilt, verdict, write_adversarial_run, write_run

from vflbench.cli.report import report
from vflbench.errors import UserError
from vflbench.report.charts import files
from vflbench.report.page import write_report
from vflbench.report.terminal import final_table
from vflbench.results.folder import ERROR
from vflbench.results.runs import Run, read_run
from vflbench.results.table import load

PLACE = reading()
NO_FILES = ("link", "loop", "fifo", "folder", "device")
FILES = ("summary.json", "manifest.json", "config.yaml")


@pytest.fixture(autouse=True)
def without_figures(monkeypatch):
    monkeypatch.setattr("vflbench.report.charts.files", lambda *_: ())


def reported(root, out):
    page = write_report([root], out)
    assert faults(page) == []
    return page.read_text()


def value_of(file):
    return (yaml.safe_load if file.suffix == ".yaml" else json.loads)(file.read_text())


def state(folder, without):
    """What lies there, but for the times of folders."""
    there = {path: path.lstat() for path in folder.rglob("*") if without not in (path, *path.parents)}
    return {path: path.is_dir() or (one.st_mtime_ns, one.st_size, one.st_ino) for path, one in there.items()}


def rich_run(folder):
    """A run that has every part that a report reads."""
    given = marvell(0.1, 0.5)
    promise, levels, place = given["guarantees"]["marvell"], {"messages only": PLACE}, {"party": "a", "layer": "f2"}
    promise |= {"bounds": "the leak", "assumption": "noise", "assumption_holds": False, "tested": [place | {"gap": 3.0}]}
    promise |= {"exceeded": [PLACE | {"level": "messages only", "ceiling": 0.5}]}
    how = {"levels": levels, "on_changed": levels, "references": {"probe": PLACE}, "changed": ["gradient"]}
    given["verdict"] = verdict(PLACE, falls=reading(because="as the model"), **how)
    noise = {"defense": "marvell", "mechanism": "noise", "epsilon": 1.0}
    given["privacy"] = {"epsilon": 2.0, "delta": 1e-6, "releases": [noise | {"times": 2}], "canaries": 9}
    given["embedding_privacy"] = [place | noise | {"width": 3, "messages": 4, "delta_all": 1e-5, "reason": "a reason"}]
    classes = {"accuracy": interval(0.3), "ami": interval(0.2), "macro_auc": interval(0.6)}
    given["leaks"] = [leak("norm", "f2", 0.9) | {"classes": classes}, leak("no_message", "features", 0.6, message="none")]
    given["distance_correlation"] = [place | {"visible": True, "dcor": interval(0.1)}]
    given["reconstructions"] = [rebuilt(mse=0.1) | {"notes": {"slow": 1}}]
    given["figures"] = [place | {"message": "gradient", "figure": "flips", "value": 3}]
    given["another_list"] = [{"name": "x", "size": 3, "gain": interval(0.5)}]
    reasons = {"skipped": {"hints": "no label"}, "unscored": {"cosine": "too few"}}
    facts = {"notes": ["a note"], "device": "cpu"}
    return write_run(folder, experiment="bytedance_sumkl", facts=facts, **given, **reasons)


def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(tmp_path):
    root, victim = tmp_path / "outputs", tmp_path / "secret"
    victim.write_text("root:x:0:0:the secret\n")
    write_run(root / "good", seed=1)
    others = ("metrics.csv", "page.html", "reconstruction.png")
    for kind in NO_FILES:
        for name in (*FILES, ERROR, *others):
            bad = write_run(root / f"{kind} {name}", seed=len(list(root.iterdir())))
            if name == ERROR:
                (bad / "summary.json").unlink()
            replaced_by(bad / name, kind, victim)
            odd = read_run(bad)
            assert name in others or "plain file" in odd.reason, (kind, name)
    text = reported(root, root / "report")
    assert "secret" not in text
    assert f"{1 + 3 * len(NO_FILES)} finished runs" in text


OPEN = {
    *("threats", "skipped", "unscored", "versions", "modules", "guarantees", "references", "bytes_sent"),
    *("defense", "attack"),
}
"""Mappings of which the keys are names."""


def said(value, text, key=""):
    """The same, that says the text wherever it may."""
    if isinstance(value, dict):
        return {text if key in OPEN else name: said(one, text, name) for name, one in value.items()}
    if isinstance(value, list):
        return [said(one, text, key) for one in value]
    return text if isinstance(value, str) and key != "figure" else value


@pytest.mark.slow
def test_texts_of_a_run_are_texts_in_every_format_and_no_paths(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.report.charts.files", lambda figure, *_: files(figure, ("svg",)))
    texts = [text for text in TEXTS if 0 < len(text) < 20_000 and "\ud800" not in text]  # half a character is no JSON
    for number, text in enumerate(texts):
        folder = rich_run(tmp_path / str(number))
        for name in FILES:
            word = text.encode(errors="backslashreplace").decode() if name == "config.yaml" else text
            (folder / name).write_text(written(name, said(value_of(folder / name), word)))
    before = state(tmp_path, tmp_path / "report")
    page = reported(tmp_path, tmp_path / "report")
    assert state(tmp_path, tmp_path / "report") == before
    assert f"{len(texts)} finished runs" in page
    assert not any(c in page for c in "\x00\x1b\x9b\u202e\u2066")


def test_a_folder_that_is_a_link_is_followed_only_where_the_user_named_it_and_no_file_is_written_through_one(
    tmp_path, capsys
):
    write_run(tmp_path / "outputs" / "run")
    (tmp_path / "victim").mkdir()
    link = tmp_path / "outputs" / "report"
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="^vflbench report .*it is a link"):
        report([str(tmp_path / "outputs")])
    assert list((tmp_path / "victim").iterdir()) == []
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "victim" / "report.html").symlink_to(tmp_path / "secret")
    report([str(tmp_path / "outputs"), "--out", str(link)])
    assert (tmp_path / "secret").read_text() == "mine"
    assert not (tmp_path / "victim" / "report.html").is_symlink()
    assert capsys.readouterr().out.endswith("report.html\n")
    link.unlink()
    link.mkdir()
    (link / "tables").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="--out=.*tables.*it can't be written: "):
        write_report([tmp_path / "outputs"], link)


@pytest.mark.filterwarnings("ignore:.* is left out")  # as `load` says of what can't be read
@pytest.mark.slow
def test_no_mutation_ends_a_report(tmp_path, capsys):
    """Runs with odd values in one tree; each is also read alone, as a finished run is shown on the terminal."""
    rng, root = random.Random(0), tmp_path / "tree"
    for number, how in enumerate(({}, marvell(0.1, 0.9))):
        write_run(root / "good" / str(number), dataset="good", **how)
    report([str(root), "--out", str(tmp_path / "expected")])
    originals, changed = (rich_run(tmp_path / "rich"), write_adversarial_run(tmp_path / "scaled")), {}
    for number in range(60):
        folder = root / "zz" / str(number)
        shutil.copytree(originals[number % 2], folder)
        name = rng.choice(FILES)
        value = value_of(folder / name)
        place = changed[folder] = rng.choice(list(places(value)))
        with contextlib.suppress(ValueError, yaml.YAMLError):  # what can't be written at all
            text = written(name, with_value(value, place, rng.choice(ODD)))
            (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    report([str(root)])
    for folder, place in changed.items():
        run = read_run(folder)
        try:
            text = final_table(folder) if isinstance(run, Run) else run.reason
        except UserError as error:
            text = str(error)
        assert text.replace("\n", "").isprintable(), place
    with contextlib.suppress(UserError):
        load(root / "zz", ["defense.marvell.sumkl"])
    page = root / "report" / "report.html"
    assert faults(page) == []
    assert re.search(r"\d+ unreadable", page.read_text())
    for file in (tmp_path / "expected" / "tables").iterdir():
        assert file.read_bytes() == (root / "report" / "tables" / file.name).read_bytes()
    assert capsys.readouterr().err == ""
