"""What a run recorded about itself, and which folders hold runs."""

import json

import pytest
from outputs_tree import write_adversarial_run, write_run

from vflbench.results.files import finished_folders
from vflbench.results.runs import Oddity, Run, entries, read_run, read_runs


def test_facts_are_read_from_the_manifest_and_missing_ones_are_empty(tmp_path):
    write_run(tmp_path / "new", facts={"skipped": {"hints": "no label"}, "unscored": {"cosine": "too few rows"}})
    new = read_run(tmp_path / "new")
    assert new.threats["norm"]["knows"] == ["gradients"]
    assert (new.skipped, new.unscored) == ({"hints": "no label"}, {"cosine": "too few rows"})
    assert new.quantities == ("test_auc", "leak_auc")
    assert new.layers.crosses("a", "f2")
    write_run(tmp_path / "old", facts=None, skipped={"hints": "no label"})
    old = read_run(tmp_path / "old")
    assert (old.threats, old.adversaries, old.quantities, old.unscored) == ({}, {}, (), {})
    assert old.skipped == {"hints": "no label"}  # as older versions record it
    assert (old.adversary, old.honest, old.layers.recorded) == ("none", None, False)


def test_facts_of_a_wrong_shape_make_no_run_and_missing_ones_do(tmp_path):
    names = ("cut_layers", "layers", "threats", "skipped", "unscored", "quantities", "adversary")
    for wrong in (3, "x", [3], {"x": 3}):
        for name in names:
            odd = read_run(write_run(tmp_path / f"{name} {wrong}", facts={name: wrong}))
            assert (odd.kind, odd.reason.startswith(f"manifest.json can't be read: {name}")) == ("unreadable", True)
    run = read_run(write_run(tmp_path / "missing", facts=dict.fromkeys(names)))
    assert (run.threats, run.skipped, run.unscored, run.quantities, run.adversaries) == ({}, {}, {}, (), {})
    assert (run.honest, run.layers.recorded) == (None, False)


def test_an_adversary_keeps_the_honest_run_beside_it_which_is_not_counted(tmp_path):
    folder = write_adversarial_run(tmp_path / "run")
    (run,) = read_runs([tmp_path])
    assert (run.adversary, run.summary["test_auc"], run.honest.summary["test_auc"]) == ("scaled", 0.7, 0.76)
    assert finished_folders(tmp_path) == [folder]
    (folder / "honest" / "summary.json").write_text("{")
    assert read_run(folder).honest is None
    write_run(tmp_path / "honest", seed=3)  # a run of that name is a run
    assert finished_folders(tmp_path) == [tmp_path / "honest", folder]


def test_a_run_that_is_still_at_its_honest_run_is_half_written(tmp_path):
    write_run(tmp_path / "run" / "honest")
    (tmp_path / "run" / ".lock").write_text("")
    (odd,) = entries([tmp_path])
    assert isinstance(odd, Oddity)
    assert (odd.kind, odd.path.name) == ("half-written", "run")


@pytest.mark.parametrize("content", ["{", "[1]", "\x00"])
def test_a_manifest_that_cannot_be_read_makes_no_run(tmp_path, content):
    folder = write_run(tmp_path / "run")
    (folder / "manifest.json").write_text(content)
    assert read_run(folder).kind == "half-written"
    (folder / "manifest.json").unlink()
    assert read_run(folder).manifest == {}
    assert json.loads((folder / "summary.json").read_text())["epochs"] == 2


def test_a_config_alone_beside_runs_hides_none_of_them(tmp_path):
    """A config that somebody sent may lie in the folder of their runs."""
    write_run(tmp_path / "theirs" / "run")
    (tmp_path / "theirs" / "config.yaml").write_text((tmp_path / "theirs" / "run" / "config.yaml").read_text())
    found = list(entries([tmp_path]))
    assert [entry.folder.name for entry in found if isinstance(entry, Run)] == ["run"]
    assert [(entry.kind, entry.path.name) for entry in found if isinstance(entry, Oddity)] == [("half-written", "theirs")]
