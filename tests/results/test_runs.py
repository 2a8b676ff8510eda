"""What a run recorded about itself, which folders hold runs, and which layers cross."""

import shutil
from pathlib import Path

import pytest
from support.outputs_tree import write_adversarial_run, write_run

from vflbench.cli.main import fail
from vflbench.report.words import knowledge
from vflbench.results.folder import finished_folders
from vflbench.results.runs import Oddity, Run, entries, read_run, read_tree
from vflbench.results.schema import ThreatRecord, base_name, level_of
from vflbench.results.terminal import path_text, wrapped


def test_an_adversary_keeps_the_honest_run_beside_it_which_is_not_counted(tmp_path):
    folder = write_adversarial_run(tmp_path / "run")
    (run,) = read_tree([tmp_path]).runs
    assert (run.adversary, run.summary.test_auc, run.honest.summary.test_auc) == ("scaled", 0.7, 0.76)
    assert finished_folders(tmp_path) == [folder]
    (folder / "honest").rename(tmp_path / "elsewhere")
    (folder / "honest").symlink_to(tmp_path / "elsewhere")
    assert read_run(folder).honest is None, "a link is not followed"
    (folder / "honest" / "summary.json").write_text("{")
    assert read_run(folder).honest is None
    shutil.rmtree(tmp_path / "elsewhere")
    write_run(tmp_path / "honest", seed=3)  # a run of that name is a run
    assert finished_folders(tmp_path) == [tmp_path / "honest", folder]


def test_keys_that_nothing_reads_are_kept_in_printable_form_and_missing_ones_have_their_default(tmp_path):
    run = read_run(write_run(tmp_path / "run", something_new={"a": 1, "\x1b[31m": ["\u202e"]}))
    assert run.summary.something_new == {"a": 1, "\\x1b[31m": ["\\u202e"]}
    assert (run.summary.links, run.summary.privacy, run.manifest.kind) == ([], None, None)


def test_a_config_alone_beside_runs_hides_none_of_them(tmp_path):
    """A config that somebody sent may lie in the folder of their runs."""
    write_run(tmp_path / "theirs" / "run")
    (tmp_path / "theirs" / "config.yaml").write_text((tmp_path / "theirs" / "run" / "config.yaml").read_text())
    found = list(entries([tmp_path]))
    assert [entry.folder.name for entry in found if isinstance(entry, Run)] == ["run"]
    assert [(entry.kind, entry.path.name) for entry in found if isinstance(entry, Oddity)] == [("unfinished", "theirs")]


THREATS = {
    "norm": ThreatRecord(knows=["gradients"], level="messages only"),
    "hints": ThreatRecord(knows=["gradients", "known positives of each batch"], hints=3, level="known labels"),
    "direct": ThreatRecord(knows=["gradients", "one known row of each class in each batch"], level="known labels"),
    "completion": ThreatRecord(knows=["embeddings", "known labels"], known_rows=100, level="known labels"),
    "steered": ThreatRecord(knows=["gradients"], active=True, level="active"),
    "strange": ThreatRecord(level="reference"),
}


def test_the_recorded_level_counts_also_at_the_end_of_an_epoch_and_a_twin_is_a_reference():
    levels = {name: level_of(name, THREATS) for name in (*THREATS, "no_message", "probe", "of a plug-in")}
    recorded = {name: threat.level for name, threat in THREATS.items()}
    assert levels == {**recorded, "no_message": "reference", "probe": "reference", "of a plug-in": "messages only"}
    assert level_of("completion (epoch)", THREATS) == "known labels"
    for twin in ("completion (own columns)", "completion (own columns) (epoch)", "completion (epoch) (own columns)"):
        assert level_of(twin, THREATS) == "reference"
        assert base_name(twin) == "completion"


def test_what_is_known_is_said_in_words():
    said = [knowledge(name, THREATS) for name in ("norm", "hints", "direct", "completion", "steered")]
    assert said[:2] == ["without labels", "with 3 known positives a batch"]
    assert said[2:] == ["with known labels", "with 100 known labels", "actively"]


def test_a_number_stays_with_its_percent_sign_and_a_long_path_stays_whole():
    path = f"/{'long' * 40}/name"
    assert wrapped(f"{'x' * 76} 55 % of it {path}") == ["x" * 76, "55 % of it", path]


def test_messages_are_wrapped_at_a_terminal_and_lines_to_search_elsewhere(capsys, monkeypatch):
    place = f"dataset.path=/{'long' * 30}/name"
    text = f"{place}: there is no such file, and this goes on until the line is full and goes on {'and on ' * 9}".strip()
    with pytest.raises(SystemExit):
        fail(text)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(SystemExit):
        fail(text)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{place}:"  # whole, to copy
    assert all(len(line) <= 80 for line in lines[1:])
    assert " ".join(lines) == text


def test_a_path_is_as_it_is_typed_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_text(tmp_path / "outputs" / "run") == "outputs/run"
    assert path_text(tmp_path / "my runs") == "'my runs'"
    assert path_text(tmp_path.parent) == str(tmp_path.parent)
    assert path_text(Path("outputs")) == "outputs"
