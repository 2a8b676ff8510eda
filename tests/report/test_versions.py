"""A row of a report has one meaning: runs of several versions of code, plug-ins, data or options are never averaged."""

import json
import re

import pytest
from outputs_tree import leak, write_run

from vflbench.report.comparison import lines
from vflbench.report.groups import baseline_of, group_runs
from vflbench.report.sections import Wishes, sections
from vflbench.report.site import write_report
from vflbench.report.verdict_table import alarms
from vflbench.results import load
from vflbench.results.tree import read_tree

LOUDEST = "loudest.py"


def made(*, code="c" * 64, plugin=None, data="d" * 64, version="0.1.0", **manifest):
    """The facts of a run of that origin, as its manifest has them. plugin: digest of loudest.py."""
    plugins = [{LOUDEST: plugin * 64}] if plugin else []
    identity = {"vflbench": version, "code": code, "plugins": plugins, "data": {"dataset.path": data}}
    return {"identity": identity, "device": "cpu", **manifest}


def two(folder, first, second, **options):
    """A run with seed 0 and AUC 0.7, and one with seed 1 and AUC 0.9."""
    for seed, (facts, auc) in enumerate(((first, 0.7), (second, 0.9))):
        write_run(folder / f"run{seed}", seed=seed, test_auc=auc, norm=auc, facts=facts, **options)
    return folder


def values(folder):
    """Row -> test AUCs that are averaged in it."""
    return {g.name: list(g.values("test_auc").values()) for g in group_runs(read_tree([folder]).runs)}


@pytest.mark.slow
def test_two_versions_of_a_plug_in_are_two_rows_in_every_table(tmp_path):
    two(tmp_path / "runs", made(plugin="1"), made(plugin="2"))
    named = values(tmp_path / "runs")
    assert sorted(named.values()) == [[0.7], [0.9]]
    assert all(name.startswith("none, plug-ins ") for name in named)
    page = write_report([tmp_path / "runs"], tmp_path / "report").read_text()
    assert "none: its runs are in 2 rows, not averaged, as they differ in plug-ins (loudest.py)." in page
    for table in (tmp_path / "report" / "tables").glob("*.csv"):
        assert not re.search(r"(^|,)0\.80*(\D|$)", table.read_text(), re.MULTILINE), table.name


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (made(code="e" * 64), "vflbench's code"),
        (made(version="0.2.0"), "vflbench's code"),
        (made(data="e" * 64), "data"),
        (made(plugin="1"), "plug-ins (loudest.py)"),
        (made(device="cuda:0"), "device"),
        (made(code="e" * 64, data="e" * 64), "vflbench's code and data"),
    ],
    ids=["code", "version", "data", "a plug-in", "device", "both"],
)
def test_whatever_decides_numbers_keeps_runs_apart_and_is_named(tmp_path, second, words):
    two(tmp_path, made(), second)
    named = values(tmp_path)
    assert sorted(named.values()) == [[0.7], [0.9]]
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    assert alarms(section) == [(f"none: its runs are in 2 rows, not averaged, as they differ in {words}.", False)]
    assert len(set(load(tmp_path)["made_by"].to_pylist())) == 2
    assert [len(line.runs) for line in lines(read_tree([tmp_path]).runs, [])] == [1, 1]


def test_one_origin_is_one_row_also_where_packages_differ_which_is_said(tmp_path):
    two(tmp_path, made(versions={"torch": "2.6", "numpy": "2"}), made(versions={"torch": "2.7", "numpy": "2"}))
    assert values(tmp_path) == {"none": [0.7, 0.9]}
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    assert alarms(section) == [("none: averaged over torch 2.6 and 2.7, which may round differently.", False)]


def test_the_same_run_of_two_versions_is_not_taken_for_a_repeated_one(tmp_path):
    for name, facts in (("a", made()), ("b", made(code="e" * 64)), ("c", made())):
        write_run(tmp_path / name, facts=facts)
    tree = read_tree([tmp_path])
    assert [run.folder.name for run in tree.runs] == ["a", "b"]
    assert [odd.path.name for odd in tree.of_kind("repeated")] == ["c"]


def test_a_setting_is_compared_with_an_undefended_one_of_its_own_origin(tmp_path):
    defense = {"loudest": {"_target_": "loudest.Defense"}}
    write_run(tmp_path / "none_old", facts=made(code="e" * 64))
    write_run(tmp_path / "defended", facts=made(plugin="1"), defense=defense)
    groups = group_runs(read_tree([tmp_path]).runs)
    defended = next(g for g in groups if not g.undefended)
    assert baseline_of(defended, groups) is None
    write_run(tmp_path / "none_same", facts=made())  # without a plug-in: none is used
    groups = group_runs(read_tree([tmp_path]).runs)
    assert baseline_of(next(g for g in groups if not g.undefended), groups).runs[0].folder.name == "none_same"


def test_settings_with_many_different_options_of_an_attack_keep_their_names_apart(tmp_path):
    """Of more than three options none is in the name; tables collect values by name."""
    for number in (0, 1):
        attack = {"norm": {"_target_": "vflbench.attacks.norm.Norm", **dict.fromkeys("abcd", number)}}
        write_run(tmp_path / f"run{number}", facts=made(), config={"attack": attack}, test_auc=(0.7, 0.9)[number])
    assert sorted(values(tmp_path).values()) == [[0.7], [0.9]]


def test_audits_of_a_recording_in_two_states_are_apart(tmp_path):
    facts = [made(kind="audit", source={"path": "/x/recorded", "state": state}, data=None) for state in ("1" * 16, "2" * 16)]
    two(tmp_path, *facts)
    assert len(values(tmp_path)) == 2


@pytest.mark.slow
def test_a_damaged_identity_is_a_run_that_cannot_be_read_or_one_of_an_older_version(tmp_path):
    for number, identity in enumerate((3, [], {"plugins": 3, "data": [1]}, None)):
        write_run(tmp_path / f"run{number}", seed=number, facts={"identity": identity}, leaks=[leak("norm", "f2", 0.9)])
    assert [len(of) for of in values(tmp_path).values()] == [1, 1]
    assert {odd.path.name for odd in read_tree([tmp_path]).odd} == {"run0", "run1"}
    assert json.dumps(sorted(values(tmp_path)))
    write_report([tmp_path], tmp_path / "report")
