"""Options in the names of settings: no name twice, nothing that is null, and no word cut in two."""

import pytest

from vflbench.report.option_words import in_words, shown, within


def test_two_keys_of_one_last_part_have_one_part_more():
    assert in_words({"audit.epochs": "last", "epochs": 3}) == ["audit.epochs last", "epochs 3"]
    assert in_words({"defense.label_gdp.mu": 1.0}) == ["mu 1"]
    assert in_words({"audit.epochs": "last"}) == ["audit.epochs last"]
    assert in_words({"attack.a.rows": 3, "attack.b.rows": 4}) == ["a.rows 3", "b.rows 4"]
    assert in_words({"audit.epochs": None, "epochs": 3}) == ["epochs 3"]


def test_what_is_null_is_left_out_and_zero_and_false_are_not():
    assert in_words({"dataset.id": None, "dataset.path": "x/all.csv", "a.n": 0, "a.on": False}) == [
        *("path all.csv", "n 0", "on False"),
    ]


def test_columns_and_files_of_a_party_say_what_they_are():
    options = {"dataset.parties.a": ["opened", "score"], "dataset.party_files.a": "x/bank.csv", "dataset.parties": 1}
    assert in_words(options) == ["columns of a opened+score", "file of a bank.csv", "parties 1"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["opened", "score", "balance"], "opened+score+balance"),
        (["opened", "score", "balance", "region"], "opened+score+balance+1 more"),
        (["a name of a column that is long", "b"], "a name of a column that is long+1 more"),
        ([], "none"),
        ([0.5, 2], "0.5+2"),
        ("vflbench.models.mlp.Mlp", "Mlp"),
    ],
)
def test_a_list_is_shown_in_a_few_words(value, text):
    assert shown(value) == text


def test_a_long_name_is_cut_between_two_options_or_words():
    assert within("none, epochs 3, path a.csv, mu 1", 24) == "none, epochs 3 ... mu 1"
    assert within("none attacked by dual+posterior and 2", 24) == "none attacked ... and 2"
    name = "none, audit.epochs last, attacked by norm+direct+7 more"
    assert within(name, 46) == "none, audit.epochs last ... norm+direct+7 more"
    assert within("x" * 30, 20) == "x" * 8 + " ... " + "x" * 7
    assert within("none, epochs 3", 20) == "none, epochs 3"
    assert all(len(within("none, path abc.csv, epochs 3, of norm+direct", most)) <= most for most in range(12, 60))
