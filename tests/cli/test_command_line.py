"""Words of a command line: in any order, split by the shell, nearly right, and what each mistake is answered with."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException

from vflbench.cli.command_line import hydra_words, with_quoted_marks
from vflbench.cli.config import choices
from vflbench.cli.main import Words
from vflbench.cli.mistakes import lacking_runs, nearest_options, quoting_mistake, split_word
from vflbench.errors import UserError, nearest
from vflbench.files import config_folder

NAMES = ("norm", "spectral", "spectral_clustering", "max_norm", "federated_lr")


ORDERED = {
    "seed=1 -m epochs=2,3": "seed=1 epochs=2,3 --multirun",
    "--cfg job seed=1": "seed=1 --cfg=job",
    "a=1 --config-dir mine -cn x b=2": "a=1 b=2",
    "--config-dir=mine ~defense +x=-1": "~defense +x=-1",
    "": "",
}


@pytest.mark.parametrize("words", ORDERED)
def test_options_come_before_flags_whatever_the_order(words):
    typed = hydra_words(words.split(), "vflbench train")
    assert " ".join([*typed.overrides, *typed.flags]) == ORDERED[words]


NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "bar": "|"}


@pytest.mark.parametrize("word", ["dataset.delimiter", "++dataset.decimal"])
def test_a_mark_arrives_as_it_was_typed_or_named_and_is_no_sweep(word):
    for typed in [*"!#$%&()*+,-./:;<=>?@[]^`{|}~", *NAMED]:
        (quoted,) = with_quoted_marks([f"{word}={typed}"])
        override = OverridesParser.create().parse_override(quoted)
        assert override.value() == NAMED.get(typed, typed)
        assert not override.is_sweep_override()
        assert with_quoted_marks([quoted]) == [quoted]
    others = [f"{word}=a", f"{word}=,.", f"{word}=',',.", f"{word}=", "dataset.missing=-", "-m"]
    assert with_quoted_marks(others) == others


FLAGS = {
    "seed=1 --epochs 3": "--epochs: there is no such flag; options are KEY=VALUE: epochs=3",
    "--batch-size=3 -m": "--batch-size: there is no such flag; options are KEY=VALUE: batch_size=3",
    "--cfg some": "argument --cfg/-c: invalid choice",
}


@pytest.mark.parametrize("words", FLAGS)
def test_a_flag_that_hydra_lacks_ends_in_one_line(words):
    with pytest.raises(UserError, match=FLAGS[words]) as refused:
        hydra_words(words.split(), "vflbench train")
    assert str(refused.value).endswith("(see: vflbench train --help)")


def test_what_is_missing_is_explained_and_what_may_be_left_out_is_not():
    parser = Words(prog="vflbench x")
    parser.add_argument("folder", metavar="FOLDER", help="a folder with runs")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    with pytest.raises(UserError, match=r"^FOLDER: it is missing: a folder with runs \(see: vflbench x --help\)$"):
        parser.parse_intermixed_args([])


NEAR = {"nrom": "norm", "spectrl": "spectral", "maxnorm": "max_norm", "MAX-NORM": "max_norm", "fed": "federated_lr"}


@pytest.mark.parametrize("name", [*NEAR, "", "x", "zzzzzz", "../norm/../../etc"])
def test_a_name_that_is_nearly_right_is_found_and_nothing_is_guessed_else(name):
    assert nearest(name, NAMES) == (f"; did you mean {NEAR[name]}?" if name in NEAR else "")


SPLIT = [
    ("seed=1 attack=[norm, spectral, direct] epochs=1", "'attack=[norm, spectral, direct]'"),
    ("attack={norm: {top: 0.1}}", "'attack={norm: {top: 0.1}}'"),
    ("defense=none, marvell", "leave out the space behind it: defense=none,marvell"),
    ("attack=norm spectral", "'attack=[norm,spectral]'"),
    ("name=a b", "\"name='a b'\""),
    ("attack=[norm seed=1", "attack=[norm: a bracket is not closed"),
]


@pytest.mark.parametrize(("line", "expected"), SPLIT)
def test_the_answer_to_a_split_word_can_be_typed(line, expected):
    words = ["vflbench train", *line.split()]
    with pytest.raises(OverrideParseException) as refused:
        OverridesParser.create().parse_overrides(words[1:])
    assert expected in quoting_mistake(str(refused.value), refused.value.override, words)


def test_whole_words_are_no_split_ones():
    assert split_word(["vflbench", "audit", "recorded"], ["attack=[norm,cosine]"]) is None
    assert quoting_mistake("Could not override 'epoch'", "epoch=3", ["vflbench train", "epoch=3"]) is None


SEVERAL = [
    ("attack=norm,cosine", "train", "add -m; all in one run are 'attack=[norm,cosine]'"),
    ("defense=none,marvell", "train", "add -m"),  # none beside others is no chain of defenses
    ("attack=norm,cosine", "audit", "all in one run are 'attack=[norm,cosine]'"),
    ("dataset=digits,bank", "prepare", "it takes one value here"),
]


@pytest.mark.parametrize(("word", "command", "expected"), SEVERAL)
def test_several_values_are_a_sweep_where_there_are_sweeps(word, command, expected):
    text = f"Ambiguous value for argument '{word}' 1. To use it as a list, use key=[value1,value2]"
    told = quoting_mistake(text, "", [f"vflbench {command}"])
    assert told.endswith(expected)


HINTS = {
    "epoch": "; did you mean epochs?",
    "defense.marvell.sumkl": "; it goes with defense=marvell",
    "attack.norm.tpo": "; did you mean attack.norm.top?",
    "attack.norm.power": "; attack=norm has these options: top",
    "attack.direct.power": "; attack=direct has no options",
    "attack.spectrl.component": "; did you mean attack.spectral.component?",
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
    assert nearest_options(folders, "attack.other.k") == "; there is no attack=other"


def test_of_a_sweep_in_which_some_runs_lack_an_option_two_are_made():
    def hint(key, *words):
        return lacking_runs([config_folder()], key, words)

    assert hint("defense.label_gdp.mu", "defense=none,label_gdp", "defense.label_gdp.mu=0.935", "-m") == (
        "the run with defense=none has no such option; make two sweeps: one with defense=none, "
        "one with defense=label_gdp defense.label_gdp.mu=0.935"
    )
    assert hint("attack.norm.top", "seed=0,1", "attack=[norm,direct],direct,spectral", "+attack.norm.top=1,2") == (
        "the runs with attack=direct,spectral have no such option; make two sweeps: one with attack=direct,spectral, "
        "one with attack=[norm,direct] +attack.norm.top=1,2"
    )
    for words in ("defense=none", "defense=none,marvell"):
        assert hint("defense.label_gdp.mu", words, "defense.label_gdp.mu=1") is None
    assert hint("epoch", "seed=0,1", "epoch=1") is None
