"""`vflbench list`, `train --help` and completion read comments: each says what the class says, and every option has one."""

from itertools import pairwise

import pytest
from support.warm_command import command

from vflbench.attacks.base import Attack
from vflbench.cli.build import KEYED, SINGLE
from vflbench.cli.components import component, locate
from vflbench.cli.config import KEYED_NAMES, SINGLE_NAMES, leaves, read_config
from vflbench.cli.help import explanations, listing
from vflbench.files import config_folder
from vflbench.report.published import comments_of
from vflbench.results.terminal import WIDTH

BASES = {**SINGLE, **KEYED}
FILES = [(group, file) for group in BASES for file in sorted((config_folder() / group).glob("*.yaml"))]
CHOICES = [(group, file) for group, file in FILES if isinstance(read_config(file)[1], dict)]
NAMES = [f"{group}={file.stem}" for group, file in CHOICES]
IN_OTHER_WORDS = {"engine=nvflare"}
"""Choices whose comment says more than the class: what has to be installed."""


@pytest.mark.parametrize(("group", "file"), CHOICES, ids=NAMES)
def test_a_choice_is_described_as_its_class_is(group, file):
    content = read_config(file)[1]
    node = content.get(file.stem) if group in KEYED_NAMES else content.get(group, content)
    words = comments_of(file)
    assert words["does"]
    if not node or f"{group}={file.stem}" in IN_OTHER_WORDS:
        return
    cls = locate(node["_target_"], group, BASES[group])
    if cls.__module__.rpartition(".")[2] != file.stem:  # values for the options of another choice
        return
    paragraphs = [" ".join(text.split()) for text in cls.__doc__.split("\n\n")]
    source = next((text.removeprefix("Source: ") for text in paragraphs if text.startswith("Source: ")), "")
    assert (words["does"], words["source"]) == (paragraphs[0], source)
    if group == "attack":
        threat = component(node, f"attack.{file.stem}", Attack).threat
        assert words["threat"] == f"{threat.level}; {threat}"


@pytest.mark.parametrize(("group", "file"), CHOICES, ids=NAMES)
def test_every_option_is_explained(group, file):
    nodes = {key: value for key, value in read_config(file)[1].items() if key != "defaults"}
    options = nodes if "# @package _global_" in file.read_text() else {group: nodes}
    chosen = {name: file.stem if name == group else None for name in SINGLE_NAMES}
    words = explanations([config_folder()], chosen, options)
    keys = [key for key, value in leaves(options, "") if value != {} and not key.endswith("_target_")]
    assert [key for key in keys if not key.startswith("dataset.types.") and not words.get(key)] == []


def test_a_choice_of_the_users_own_is_described_by_its_comments(tmp_path):
    (tmp_path / "attack").mkdir()
    for name, comment in (("bare", ""), ("said", "# Mine.\n# Threat: messages only\n")):
        (tmp_path / "attack" / f"{name}.yaml").write_text(f"{comment}{name}:\n  _target_: nowhere.Nothing\n")
    (tmp_path / "attack" / "torn.yaml").write_text("torn: [1, 2\n")
    lines = listing([config_folder(), tmp_path], "attack").splitlines()
    assert "bare" in [line.strip() for line in lines]
    text = " ".join(" ".join(lines).split())
    assert " said Mine. [messages only] " in text
    assert " torn can't be used: " in text


def test_the_help_fits_80_columns_and_has_each_option_with_its_value(tmp_path):
    words = ("protocol=federated_lr", "defense=[marvell,dcor]", "attack=strongest", "adversary=fsha")
    shown = command("train", *words, "seed=7", "--help", cwd=tmp_path).stdout
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert "\n  seed=7 " in shown
    assert "\n\n\n" not in shown
    lines = shown.partition("\nOptions, ")[2].partition("\nExamples:")[0].splitlines()[1:]
    pairs = [(line, after) for line, after in pairwise([*lines, ""]) if "=" in line]
    assert [line for line, after in pairs if len(line) < 31 and not after.startswith(" " * 30)] == []
