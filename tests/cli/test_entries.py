"""The list of choices, read from sources: each line is what the class itself says."""

import inspect
from dataclasses import dataclass
from pathlib import Path

import pytest

from vflbench.attacks.base import Attack
from vflbench.attacks.norm import Norm
from vflbench.cli import entries
from vflbench.cli.build import KEYED, SINGLE
from vflbench.cli.catalog import catalog
from vflbench.cli.declared import Source, UnclearError, declared
from vflbench.cli.groups import COMPONENTS, KEYED_NAMES, SINGLE_NAMES
from vflbench.messages.facts import Gradients
from vflbench.messages.threat import Threat
from vflbench.places import config_folder

OTHERS = [group for group in COMPONENTS if group != "attack"]


def test_the_groups_are_those_that_are_built():
    assert tuple(SINGLE) == SINGLE_NAMES
    assert tuple(KEYED) == KEYED_NAMES


@pytest.mark.parametrize("groups", [["attack"], pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["attack", "others"])
def test_sources_say_what_classes_say(groups):
    for file in (file for name in groups for file in sorted((config_folder() / name).glob("*.yaml"))):
        group = file.parent.name
        assert entries._read(group, file.stem, file) == entries._imported(group, file.stem, file), f"{group}/{file.stem}"


def source(folder: Path, text: str) -> Source:
    (folder / "made.py").write_text(text)
    return Source("vflbench.made", folder / "made.py")


def test_options_decide_a_threat_as_in_an_instance():
    norm = declared("vflbench.attacks.norm.Norm")
    for top in (None, "prior"):
        from vflbench.attacks.norm import Norm

        assert norm(top=top).threat == Norm(top=top).threat
    averaging = declared("vflbench.attacks.averaging.Averaging")
    assert averaging(base="norm").threat != averaging(base="hints", k=3).threat


def test_what_a_source_does_not_say_is_unclear(tmp_path):
    for body in ("from elsewhere import A", "import a.b as A", "A = A", "A = B", "def f(): ...", "if True:\n    A = 1"):
        with pytest.raises(UnclearError):
            source(tmp_path, body).value("A")
    bare = source(tmp_path, "class A:\n    pass\n").value("A")  # its docstring and its threat may be those of a base
    for attribute in ("docstring", "member"):
        with pytest.raises(UnclearError):
            _ = bare.docstring if attribute == "docstring" else bare().threat


def test_what_is_unclear_is_imported(monkeypatch):
    def unclear(path):
        raise UnclearError(path)

    file = config_folder() / "attack" / "norm.yaml"
    expected = entries.read_entry("attack", "norm", file)
    monkeypatch.setattr(entries, "declared", unclear)
    assert entries.read_entry("attack", "norm", file) == expected


@dataclass
class Bare(Attack):
    threat = Threat(knows={Gradients})
    k: int = 1


def test_a_class_without_a_docstring_is_not_described_by_that_of_its_base():
    assert entries._own_docstring(Bare) == "(Bare has no docstring)"
    assert entries._own_docstring(Norm) == inspect.getdoc(Norm)


def test_a_config_of_others_is_read_from_its_class(tmp_path):
    (tmp_path / "attack").mkdir()
    for name, known in {"nine": 9, "missing": "???"}.items():
        text = f"{name}:\n  _target_: vflbench.attacks.completion.Completion\n  known: {known}\n"
        (tmp_path / "attack" / f"{name}.yaml").write_text(text)
    (tmp_path / "attack" / "torn.yaml").write_text("torn: [1, 2\n")
    (tmp_path / "attack" / "missing.yaml").write_text(
        "missing:\n  _target_: vflbench.attacks.completion.Completion\n  known: ???\n"
    )
    found = {entry.name: entry for entry in catalog([config_folder(), tmp_path], "attack")}
    assert "the labels of 9 rows" in found["nine"].threat
    assert found["torn"].does.startswith("can't be used: ")
    assert found["missing"].threat == "the threat depends on options that must be given"
