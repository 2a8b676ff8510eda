"""Words of a command line in any order, and names that are nearly right."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from vflbench.cli.command_line import hydra_words, with_quoted_marks
from vflbench.cli.main import Words
from vflbench.errors import UserError, nearest

NAMES = ("norm", "spectral", "spectral_clustering", "max_norm", "federated_lr")


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["seed=1", "-m", "epochs=2,3"], ["seed=1", "epochs=2,3", "--multirun"]),
        (["--cfg", "job", "seed=1"], ["seed=1", "--cfg=job"]),
        (["a=1", "--config-dir", "mine", "-cn", "x", "b=2"], ["a=1", "b=2"]),
        (["--config-dir=mine", "~defense", "+x=-1"], ["~defense", "+x=-1"]),
        ([], []),
    ],
)
def test_options_come_before_flags_whatever_the_order(words, ordered):
    typed = hydra_words(words, "vflbench train")
    assert [*typed.overrides, *typed.flags] == ordered


@pytest.mark.parametrize("word", ["dataset.delimiter", "++dataset.decimal"])
@pytest.mark.parametrize("mark", [*"!#$%&()*+,-./:;<=>?@[]^`{|}~", "\t"])
def test_a_mark_arrives_as_it_was_typed_and_is_no_sweep(word, mark):
    (quoted,) = with_quoted_marks([f"{word}={mark}"])
    override = OverridesParser.create().parse_override(quoted)
    assert override.value() == mark
    assert not override.is_sweep_override()
    assert with_quoted_marks([quoted]) == [quoted]


@pytest.mark.parametrize(("name", "mark"), {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "bar": "|"}.items())
def test_a_mark_may_be_named(name, mark):
    (quoted,) = with_quoted_marks([f"dataset.delimiter={name}"])
    assert OverridesParser.create().parse_override(quoted).value() == mark


@pytest.mark.parametrize(
    "word",
    ["dataset.delimiter=a", "dataset.decimal=,.", "dataset.decimal=',',.", "dataset.delimiter=", "dataset.missing=-", "-m"],
)
def test_other_words_stay(word):
    assert with_quoted_marks([word]) == [word]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["seed=1", "--epochs", "3"], "--epochs: there is no such flag; options are KEY=VALUE: epochs=3"),
        (["--batch-size=3", "-m"], "--batch-size: there is no such flag; options are KEY=VALUE: batch_size=3"),
        (["--cfg", "some"], "argument --cfg/-c: invalid choice"),
    ],
)
def test_a_flag_that_hydra_lacks_ends_in_one_line(words, problem):
    with pytest.raises(UserError, match=problem) as refused:
        hydra_words(words, "vflbench train")
    assert str(refused.value).endswith("(see: vflbench train --help)")


def test_what_is_missing_is_explained_and_what_may_be_left_out_is_not():
    parser = Words(prog="vflbench x")
    parser.add_argument("folder", metavar="FOLDER", help="a folder with runs")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    with pytest.raises(UserError, match=r"^FOLDER: it is missing: a folder with runs \(see: vflbench x --help\)$"):
        parser.parse_intermixed_args([])
    with pytest.raises(UserError, match="--seed: there is no such flag; options are KEY=VALUE: seed=3"):
        parser.parse_intermixed_args(["runs", "--seed", "3"])


@pytest.mark.parametrize(
    ("name", "near"),
    [("nrom", "norm"), ("spectrl", "spectral"), ("maxnorm", "max_norm"), ("MAX-NORM", "max_norm"), ("fed", "federated_lr")],
)
def test_a_name_that_is_nearly_right_is_found(name, near):
    assert nearest(name, NAMES) == f"; did you mean {near}?"


@pytest.mark.parametrize("name", ["", "x", "zzzzzz", "../norm/../../etc"])
def test_nothing_is_guessed_where_nothing_is_like_it(name):
    assert nearest(name, NAMES) == ""
