"""Which runs a sweep has: what `params`, `runs` and the command line make together."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from vflbench.cli.config import composed, refuse_launcher, use_plugins
from vflbench.cli.sweep import overrides_of_runs
from vflbench.errors import UserError

PAIRS = [["defense=none"], ["defense=marvell", "defense.marvell.sumkl=3.6"]]


def runs(*typed, params=None, pairs=PAIRS):
    return overrides_of_runs(OverridesParser.create(), params or {}, pairs, typed)


def test_each_pair_is_run_with_each_value():
    assert runs(params={"seed": "0,1"}, pairs=PAIRS[1:]) == [[*PAIRS[1], "seed=0"], [*PAIRS[1], "seed=1"]]
    assert len(runs("epochs=1,2", params={"seed": "0,1"})) == 8
    assert runs("seed=3", pairs=[]) == [["seed=3"]]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["seed=5"], [["defense=none", "seed=5"], [*PAIRS[1], "seed=5"]]),  # in place of the experiment's seeds
        (["defense=max_norm"], [["seed=0", "defense=max_norm"]]),  # with the options of its defense
        (["defense.marvell.sumkl=1"], [["defense=none", "seed=0"], ["defense=marvell", "seed=0"]]),
    ],
)
def test_the_command_line_takes_the_place_of_what_an_experiment_sweeps_over(typed, expected):
    words = [[*run] for run in runs(*typed, params={"seed": "0"})]
    assert [[word for word in run if word != "defense.marvell.sumkl=1"] for run in words] == expected


def test_values_keep_their_quotes_and_brackets():
    assert runs("defense=[norm,direct],none", "name='a b'", pairs=[]) == [
        ["defense=[norm,direct]", "name='a b'"],
        ["defense=none", "name='a b'"],
    ]


def test_an_interval_is_refused():
    with pytest.raises(UserError, match="values, separated by commas"):
        runs("seed=interval(0,1)", pairs=[])


@pytest.mark.slow
def test_a_launcher_that_an_experiment_chooses_is_refused_unless_the_command_line_has_one(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: basic\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    use_plugins([str(tmp_path)])
    with pytest.raises(UserError, match=r"a launcher in .*mine.yaml: .* hydra/launcher=basic"):
        refuse_launcher(composed("train", ["experiment=mine"]))
    refuse_launcher(composed("train", ["experiment=mine", "hydra/launcher=basic"]))
    refuse_launcher(composed("train", ["experiment=marvell_sumkl"]))
    use_plugins([])
