"""Hints for mistyped options: of the choice that was named, and of no other."""

import pytest

from vflbench.cli.config import choices
from vflbench.cli.mistakes import lacking_runs, nearest_options
from vflbench.places import config_folder

HINTS = {
    "epoch": "; did you mean epochs?",
    "defense.marvell.sumkl": "; it goes with defense=marvell",
    "attack.norm.tpo": "; did you mean attack.norm.top?",
    "attack.norm.power": "; attack=norm has these options: top",
    "attack.direct.power": "; attack=direct has no options",
    "attack.spectrl.component": "; did you mean attack.spectral.component?",
    "attack.spectrl.power": "; there is no attack=spectrl; the folder of one of your own is named by --plugins DIR",
    "attack.spread.power": "; there is no attack=spread; the folder of one of your own is named by --plugins DIR",
}


@pytest.mark.parametrize("key", HINTS)
def test_an_unknown_option(key):
    assert nearest_options([config_folder()], key) == HINTS[key]


def test_choices_of_the_users_own_are_known(tmp_path):
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "spread.yaml").write_text("spread: { _target_: spread.Spread, power: 2.0, floor: 0.1 }\n")
    folders = [config_folder(), tmp_path]
    assert {"norm", "spread"} <= set(choices(folders, "attack"))
    assert nearest_options(folders, "attack.spread.powr") == "; did you mean attack.spread.power?"
    assert nearest_options(folders, "attack.spread.k") == "; attack=spread has these options: power, floor"
    assert nearest_options(folders, "attack.sprea.power") == "; did you mean attack.spread.power?"
    assert nearest_options(folders, "attack.other.k") == "; there is no attack=other"


@pytest.mark.parametrize(
    ("key", "words", "hint"),
    [
        (
            "defense.label_gdp.mu",
            ["defense=none,label_gdp", "defense.label_gdp.mu=0.935", "-m"],
            "the run with defense=none has no such option; make two sweeps: one with defense=none, "
            "one with defense=label_gdp defense.label_gdp.mu=0.935",
        ),
        (
            "attack.norm.top",
            ["seed=0,1", "attack=[norm,direct],direct,spectral", "+attack.norm.top=1,2"],
            "the runs with attack=direct,spectral have no such option; make two sweeps: one with attack=direct,spectral, "
            "one with attack=[norm,direct] +attack.norm.top=1,2",
        ),
        ("defense.label_gdp.mu", ["defense=none", "defense.label_gdp.mu=1"], None),
        ("defense.label_gdp.mu", ["defense=none,marvell", "defense.label_gdp.mu=1"], None),
        ("defense.label_gdp.um", ["defense=none,label_gdp", "defense.label_gdp.um=1"], None),
        ("epoch", ["seed=0,1", "epoch=1"], None),
    ],
)
def test_an_option_that_some_runs_of_a_sweep_lack(key, words, hint):
    assert lacking_runs([config_folder()], key, words) == hint
