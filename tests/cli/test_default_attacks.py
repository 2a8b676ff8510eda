"""Three classes choose attacks that can do three classes, where the command line chooses none."""

import pytest
from raw_files import write

from vflbench.cli.default_attacks import CHOICES, with_attacks


@pytest.fixture
def table(tmp_path):
    lines = ["x,y,z", *(f"{i % 7},{'abc'[i % 3]},{i % 2}" for i in range(60))]
    return f"dataset.path={write(tmp_path / 't.csv', lines)}"


def test_three_classes_choose_attacks_for_three(table, capsys):
    words = ["dataset=csv", table, "dataset.label=y"]
    assert with_attacks(words) == [*words, *CHOICES]
    assert "more than two classes" in capsys.readouterr().out
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())
    assert with_attacks(["dataset=digits", "seed=3"]) == ["dataset=digits", "seed=3", *CHOICES]


@pytest.mark.parametrize(
    "more",
    [
        *(["dataset.label=z"], ["dataset.label=y", "dataset.positive=a"], ["dataset.label=y", "attack=norm"]),
        *(["dataset.label=y", "+attack@x=norm"], ["dataset.label=y", "experiment=x"], ["dataset.label=y", "adversary=x"]),
        *(["dataset.label=y", "protocol=federated_lr"], ["dataset.label=y,z", "-m"], ["dataset.label=nothing"], []),
        ["dataset.label=y", "dataset.no_such_option=1"],
    ],
    ids=str,
)
def test_whatever_else_stays_as_it_is(table, more, capsys):
    words = ["dataset=csv", table, *more]
    assert with_attacks(words) == words
    assert not capsys.readouterr().out
    assert with_attacks(["seed=1"]) == ["seed=1"]


@pytest.mark.slow
def test_in_a_sweep_another_process_counts(table):
    words = ["-m", "dataset=csv", table, "dataset.label=y", "seed=1,2"]
    assert with_attacks(words) == [*words, *CHOICES]
