"""What was rebuilt, in words: each figure beside what a guess reaches, and a guess is not called a leak."""

import pytest
from outputs_tree import write_run

from vflbench.report.figure_words import FIGURES, figure_words
from vflbench.report.rebuilt_words import rebuilt_words
from vflbench.report.short_sentence import short_sentence
from vflbench.results.runs import read_run

NONE = {"worst": None, "levels": {}, "on_changed": {}, "references": {}, "falls": None, "changed": []}


def entry(attack="inversion", layer="f2", message="embedding", party="a", **figures):
    place = {
        "attack": attack,
        "message": message,
        "party": party,
        "layer": layer,
        "visible": True,
        "batches": 5,
        "notes": {},
    }
    return place | {"figures": {name: {"mean": value, "low": value, "high": value} for name, value in figures.items()}}


def words(folder, *entries, **facts):
    return rebuilt_words([read_run(write_run(folder, verdict=NONE, leaks=[], reconstructions=list(entries), facts=facts))])


def batch(**figures):
    usual = {"labels_right": 1.0, "guess_labels_right": 0.55, "guess_entries_right": 0.5, "matched_guess_right": 0.64}
    return entry("batch_reconstruction", "theta", "update", **(usual | figures))


def test_a_batch_that_is_rebuilt_exactly_is_given_away(tmp_path):
    assert words(tmp_path / "run", batch(exact=1.0, entries_right=1.0)) == [
        "Updates give the private batches of party a away, exactly: batch_reconstruction rebuilds 100 % of the entries "
        "(a guess 64 %) and 100 % of the labels (a guess 55 %)."
    ]


def test_a_guess_is_not_called_a_leak(tmp_path):
    (text,) = words(tmp_path / "run", batch(exact=0.0, entries_right=0.65, labels_right=0.55))
    assert text.startswith(
        "Updates don't give the private batches of party a away: batch_reconstruction finds no batch, and"
    )
    assert "guesses 65 % of the entries (a guess 64 %)" in text


def test_some_batches_are_counted(tmp_path):
    (text,) = words(tmp_path / "run", batch(exact=0.4, entries_right=0.9))
    assert text.startswith("Updates give parts of the private batches of party a away")
    assert text.endswith(", 40 % of the batches exactly.")


@pytest.mark.parametrize(
    ("answer", "gives", "end"),
    [
        ({"beats_every_guess": True}, "give", "; better than every guess without messages."),
        ({"beats_every_guess": None}, "give", "(by chance 5 %)."),
        (
            {"beats_every_guess": False, "beats_guesses": {"mean": {"beats": True}, "class_mean": {"beats": False}}},
            "do not clearly give",
            "; 1 of 2 guesses without messages is not significantly worse.",
        ),
        (
            {"beats_every_guess": False, "beats_guesses": {"mean": {"beats": True}}, "told_apart": False},
            "do not clearly give",
            "; a smaller error than every guess, but rows are not distinguished from others of their class.",
        ),
    ],
)
def test_pictures_stand_beside_guesses_that_need_no_message(tmp_path, answer, gives, end):
    entries = (
        entry(recognised=0.94, identified=0.5) | answer,
        entry(layer="class_mean", message="none", recognised=1.0, identified=0.06),
        entry(layer="random_row", message="none", recognised=0.1, identified=0.05),
        entry(layer="chance", message="none", identified=0.05),
    )
    (text,) = words(tmp_path / "run", *entries)
    assert text.startswith(
        f"Embeddings at the cut {gives} the pictures of party a away: inversion rebuilds pictures of which 94 %"
    )
    assert (
        "are recognised (a row by chance 10 %, the class mean 100 %), 50 % are distinguished from others of their class"
        in text
    )
    assert text.endswith(end)


def test_columns_of_a_table_and_a_column_that_is_no_label(tmp_path):
    (numbers,) = words(
        tmp_path / "numbers", entry("equation_solving", message="prediction", r2=0.98) | {"beats_every_guess": None}
    )
    assert numbers == (
        "The joint model's predictions give the columns of party a away: equation_solving rebuilds 98 % of their variance."
    )
    (column,) = words(tmp_path / "column", entry("attribute", layer="C3", attribute_auc=0.8, attribute_gain=0.2))
    assert column == (
        "Embeddings give 80 % of the pairs of column C3 of party a away to attribute (AUC 0.80; a coin 0.50; without "
        "messages 0.60)."
    )


def test_the_strongest_answer_of_each_attack_is_told_and_answers_without_messages_are_not(tmp_path):
    entries = (
        entry(party="a", r2=0.2),
        entry(party="b", r2=0.7),
        entry("other", r2=0.1),
        entry(layer="mean", message="none", r2=0.9),
    )
    texts = words(tmp_path / "run", *entries)
    assert len(texts) == 2
    assert "of party b" in texts[0]
    assert "70 % of their variance" in texts[0]


def test_a_run_that_reads_no_label_begins_with_what_it_rebuilt_and_seeds_are_averaged(tmp_path):
    runs = [
        read_run(
            write_run(
                tmp_path / str(seed),
                seed=seed,
                verdict=NONE,
                leaks=[],
                reconstructions=[batch(exact=0.0, entries_right=right)],
            )
        )
        for seed, right in enumerate((0.8, 1.0))
    ]
    text = short_sentence(runs)
    assert "rebuilds 90 % of the entries" in text
    assert text.endswith("(mean of 2 seeds)")


def test_figures_are_explained_and_unknown_ones_left_out():
    assert figure_words(["r2", "mine"]) == [f"r2: {FIGURES['r2']}"]
