"""`vflbench train --help`: every option of every choice is explained, in 80 columns."""

import pytest
from warm_command import command

from vflbench.cli.groups import KEYED_NAMES, SINGLE_NAMES
from vflbench.cli.option_help import _leaves, comments, documented, explanations, option_lines
from vflbench.cli.shared_files import read_ours
from vflbench.places import config_folder

CHOICES = [
    (group, file)
    for group in (*SINGLE_NAMES, *KEYED_NAMES)
    for file in sorted((config_folder() / group).glob("*.yaml"))
    if isinstance(read_ours(file), dict)
]


@pytest.mark.parametrize(("group", "file"), CHOICES, ids=[f"{group}={file.stem}" for group, file in CHOICES])
def test_every_option_is_explained(group, file):
    nodes = {key: value for key, value in read_ours(file).items() if key != "defaults"}
    options = nodes if "# @package _global_" in file.read_text() else {group: nodes}
    chosen = {name: file.stem if name == group else None for name in SINGLE_NAMES}
    words = explanations([config_folder()], chosen, options)
    keys = [key for key, value in _leaves(options, "") if value != {} and not key.startswith("dataset.types.")]
    assert [key for key in keys if not words.get(key)] == []


def test_the_options_of_a_run_are_explained():
    words = comments(config_folder() / "train.yaml")
    keys = [key for key, _ in _leaves(read_ours(config_folder() / "train.yaml"), "")]
    assert [key for key in keys if not key.startswith(("hydra.", "defaults")) and not words.get(key)] == []


def test_the_help_fits_80_columns_and_has_each_option_with_its_value(tmp_path):
    words = ("protocol=federated_lr", "defense=[marvell,dcor]", "attack=strongest", "adversary=hijack")
    shown = command("train", *words, "seed=7", "--help", cwd=tmp_path).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "\n  seed=7 " in shown
    lines = shown.partition("\nOptions, ")[2].partition("\nExamples:")[0].splitlines()[1:]
    bare = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if len(line) < 31 and not after.startswith(" " * 30)
    ]
    assert [line for line in bare if "=" in line] == []


def test_a_comment_is_that_of_its_own_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("a: 1 # of a\nb:\n  c: x#y # of c: with more\n  d: 2\n# of none\n  e: { f: 1 } # of e\n")
    assert comments(file) == {"a": "of a", "b.c": "of c: with more", "b.e": "of e"}


def test_a_docstring_explains_by_name():
    text = "What it is.\n\n    x: 3\n\nrows: so many. lr, decay: of steps; the last: not. It is.\n\nSource: somebody."
    words = documented(text)
    assert words["rows"] == "so many."
    assert words["lr"] == words["decay"]
    assert "Source" not in words


def test_a_long_option_has_its_words_on_the_next_line():
    assert option_lines("a=1", "one") == ["  a=1" + " " * 25 + "one"]
    assert option_lines("a" * 40, "one") == ["  " + "a" * 40, " " * 30 + "one"]
    assert option_lines("a=\033[2J", "") == ["  a=\\x1b[2J"]
