"""A result in one sentence: each number is of the right attack and place, and nothing is claimed that was not measured."""

import pytest
from outputs_tree import FACTS, leak, write_run

from vflbench.report.plain_numbers import auc_text, mean, percent
from vflbench.report.readings import over_seeds
from vflbench.report.short_sentence import short_sentence
from vflbench.report.worst_reading import at_the_cut, message_at
from vflbench.results.runs import read_run

NAN = float("nan")


def reading(attack="norm", value=0.912, *, low=0.9, high=0.93, figure="AUC", message="gradient", layer="f2", party="a"):
    place = {"attack": attack, "message": message, "party": party, "layer": layer, "figure": figure}
    return place | {"value": value, "low": low, "high": high, "readings": 34}


def class_leak(attack, layer, ami, macro, message="embedding"):
    one = leak(attack, layer, None, message=message)
    figures = {"ami": ami, "macro_auc": macro, "accuracy": 0.1}
    return one | {"classes": {name: {"mean": value, "low": value, "high": value} for name, value in figures.items()}}


def run(folder, worst, *, leaks=None, levels=None, **more):
    verdict = {"worst": worst, "levels": levels or {}, "on_changed": {}, "references": {}, "falls": None, "changed": []}
    return read_run(write_run(folder, verdict=verdict, leaks=leaks, **{"test_auc": 0.79, **more}))


def test_the_strongest_message_stands_first_beside_a_coin_the_others_and_the_model(tmp_path):
    leaks = [
        leak("norm", "f2", 0.912),
        leak("spectral", "f2", 0.21, message="embedding"),
        leak("norm", "h1", 1.0, visible=False),
    ]
    assert short_sentence([run(tmp_path / "run", reading(), leaks=leaks)]) == (
        "Gradients at the cut give 91 % of label pairs away (AUC 0.91; a coin 0.50); embeddings 79 %; the model itself 0.79 "
        "on new rows."
    )


KNOWN = {"known_rows": 100, "level": "known labels", "seat": "non-label party", "knows": []}


def test_other_messages_are_read_by_attacks_that_know_no_more_than_the_worst(tmp_path):
    leaks = [leak("norm", "f2", 0.912), leak("spectral", "f2", 0.6, message="embedding")]
    leaks.append(leak("completion", "f2", 0.8, message="embedding"))
    facts = {"threats": {"completion": KNOWN}}
    of_norm = run(tmp_path / "norm", reading(), leaks=leaks, facts=facts)
    assert "; embeddings 60 %; the model" in short_sentence([of_norm])
    known = run(tmp_path / "known", reading("completion"), leaks=leaks, facts=facts)
    assert "; embeddings 80 % with 100 known labels; the model" in short_sentence([known])
    spectral = run(tmp_path / "spectral", reading("completion"), leaks=leaks[:2], facts=facts)
    assert "; embeddings 60 % without labels; the model" in short_sentence([spectral])
    alone = run(tmp_path / "alone", reading(), leaks=[leaks[0], leaks[2]], facts=facts)
    assert "embeddings" not in short_sentence([alone])


def test_the_party_of_other_messages_is_named_where_it_is_another(tmp_path):
    facts = {"cut_layers": {"a": ["f2"], "b": ["f2"]}}
    leaks = [leak("spectral", "f2", value, message="embedding", party=party) for party, value in (("a", 0.7), ("b", 0.6))]
    other = run(tmp_path / "other", reading(party="b"), leaks=leaks, facts=facts)
    assert "; embeddings of party a 70 %; the model" in short_sentence([other])
    same = run(tmp_path / "same", reading(party="a"), leaks=leaks, facts=facts)
    assert "; embeddings 70 %; the model" in short_sentence([same])


def test_a_reference_counts_for_no_message(tmp_path):
    leaks = [leak("norm", "f2", 0.9), leak("probe", "f2", 1.0, message="embedding"), leak("norm (own columns)", "f2", 1.0)]
    assert "embeddings" not in short_sentence([run(tmp_path / "run", reading(), leaks=leaks)])


@pytest.mark.parametrize("cut", [0.908, 0.85, None])
def test_the_cut_is_not_named_for_a_value_of_another_layer(tmp_path, cut):
    leaks = [leak("norm", "f1", 0.912), *([leak("norm", "f2", cut)] if cut else [])]
    made = run(tmp_path / "run", reading(layer="f1"), leaks=leaks)
    assert short_sentence([made]).startswith("Gradients give 91 % of label pairs away")
    assert message_at(reading(layer="f1"), made) == "gradients at layer f1"
    assert at_the_cut(reading(layer="f1"), made) == (("f2", cut) if cut else ("", pytest.approx(NAN, nan_ok=True)))


def test_another_attack_that_reads_as_much_at_the_cut_does_not_lend_its_place(tmp_path):
    leaks = [leak("norm", "f1", 0.912), leak("direct", "f2", 0.912)]
    assert short_sentence([run(tmp_path / "run", reading(layer="f1"), leaks=leaks)]).startswith("Gradients give 91 %")


def test_of_several_parties_the_one_that_reads_most_is_named(tmp_path):
    facts = {"cut_layers": {"a": ["f2"], "b": ["f2"]}}
    assert short_sentence([run(tmp_path / "run", reading(party="b"), facts=facts)]).startswith(
        "Gradients at party b's cut give"
    )


def test_what_the_attacker_knows_and_reads_from_its_own_columns_stands_beside_the_auc(tmp_path):
    threats = {"completion": {"known_rows": 100, "level": "known labels", "seat": "non-label party", "knows": []}}
    worst = reading("completion", message="embedding")
    levels = {"known labels": worst | {"own_columns": 0.84}}
    text = short_sentence([run(tmp_path / "run", worst, levels=levels, facts={"threats": threats})])
    assert "(AUC 0.91 with 100 known labels; a coin 0.50; own columns alone 0.84)" in text


def test_a_party_that_cheats_is_named_first(tmp_path):
    facts = {"adversary": {"hijack": {"party": "label", "text": ""}}}
    assert short_sentence([run(tmp_path / "run", reading(), facts=facts)]).startswith(
        "With party label cheating (hijack), gradients at the cut give"
    )


def test_what_a_coin_may_have_read_is_not_called_a_leak(tmp_path):
    text = short_sentence([run(tmp_path / "run", reading(value=0.58, low=0.5, high=0.75))])
    assert text == (
        "No attack that ran ranks the labels significantly better than a coin: the strongest, norm on gradients at the cut, "
        "reads AUC 0.58 (the worst of all: 0.50 to 0.75; a coin 0.50); the model itself 0.79 on new rows."
    )


def test_a_single_batch_is_said_to_be_one(tmp_path):
    text = short_sentence([run(tmp_path / "run", reading(low=None, high=None))])
    assert "(AUC 0.91, from a single batch; a coin 0.50)" in text


def test_three_classes_have_the_auc_of_each_class_against_the_rest(tmp_path):
    leaks = [class_leak("completion", "f2", 0.87, 0.99), class_leak("mixture", "f2", 0.4, 0.2, message="gradient")]
    worst = reading("completion", 0.9896, figure="macro AUC", message="embedding")
    assert short_sentence([run(tmp_path / "run", worst, leaks=leaks)]) == (
        "Embeddings at the cut give 99 % of label pairs away, each class against the rest (macro AUC 0.99; a coin 0.50); "
        "gradients 80 %; the model itself 0.79 on new rows."
    )


def test_clusters_of_three_classes_have_their_mutual_information(tmp_path):
    leaks = [class_leak("kmeans", "f2", 0.57, 0.5)]
    worst = reading("kmeans", 0.57, low=0.4, high=0.7, figure="AMI", message="embedding")
    text = short_sentence([run(tmp_path / "run", worst, leaks=leaks, test_accuracy=0.953)])
    assert text == (
        "Embeddings at the cut give 57 % of the information on classes away (AMI 0.57; a coin 0); the model itself "
        "classifies 95 % of new rows correctly."
    )
    none = short_sentence([run(tmp_path / "b", worst | {"value": 0.02, "low": -0.01, "high": 0.05}, leaks=leaks)])
    assert none.startswith(
        "No attack that ran distinguishes the classes significantly better than a coin: the strongest, kmeans on"
    )


def test_seeds_of_one_setting_are_averaged(tmp_path):
    runs = [
        run(tmp_path / str(n), reading(value=value), seed=n, test_auc=auc)
        for n, (value, auc) in enumerate(((0.9, 0.7), (0.8, 0.8)))
    ]
    text = short_sentence(runs)
    assert "give 85 % of label pairs away (AUC 0.85; a coin 0.50)" in text
    assert text.endswith("the model itself 0.75 on new rows (mean of 2 seeds).")


def seeds(folder, *worsts):
    return [run(folder / str(n), worst, seed=n) for n, worst in enumerate(worsts)]


def test_places_that_differ_between_seeds_are_all_named_and_the_interval_is_that_of_the_verdict_table(tmp_path):
    """Norm at f1 in two seeds and spectral at the cut in one: no mean of the three is `norm at the cut`."""
    places = [(0.64, 0.45, 0.79), (0.62, 0.52, 0.77)]
    worsts = [reading(value=value, low=low, high=high, layer="f1") for value, low, high in places]
    runs = seeds(tmp_path, *worsts, reading("spectral", 0.57, low=0.5, high=0.9, message="embedding"))
    assert short_sentence(runs) == (
        "No attack that ran ranks the labels significantly better than a coin in more than 1 of 3 seeds: the strongest of "
        "each seed, norm on gradients at layer f1 and spectral on embeddings at the cut, reads AUC 0.61 (the worst of all: "
        "0.45 to 0.90; a coin 0.50); the model itself 0.79 on new rows (mean of 3 seeds)."
    )
    over = over_seeds([*worsts, runs[2].summary["verdict"]["worst"]])
    assert (over.mean, over.low, over.high) == (pytest.approx(0.61), 0.45, 0.9)


def test_no_place_is_named_where_it_differs_between_seeds(tmp_path):
    text = short_sentence(seeds(tmp_path, reading(value=0.9), reading(value=0.8, layer="f1")))
    assert text.startswith("Gradients give 85 % of label pairs away (AUC 0.85; a coin 0.50); ")


def test_of_messages_that_differ_between_seeds_each_kind_is_told(tmp_path):
    leaks = [leak("norm", "f2", 0.9), leak("spectral", "f2", 0.8, message="embedding")]
    worsts = [reading(), reading("completion", message="embedding")]
    threats = {"completion": {"known_rows": 100, "level": "known labels", "seat": "non-label party", "knows": []}}
    runs = [run(tmp_path / str(n), worst, seed=n, leaks=leaks, facts={"threats": threats}) for n, worst in enumerate(worsts)]
    text = short_sentence(runs)
    assert text.startswith("Gradients and embeddings at the cut, the worst of each seed, give 91 %")
    assert "without labels or with 100 known labels" in text
    assert "; gradients 90 % without labels; embeddings 80 % without labels; " in text


def test_an_audit_without_a_model_says_nothing_of_one(tmp_path):
    assert short_sentence([run(tmp_path / "run", reading(), test_auc=None)]).endswith("(AUC 0.91; a coin 0.50).")


def test_without_an_attack_nothing_is_claimed(tmp_path):
    nothing = short_sentence([run(tmp_path / "run", None, leaks=[])])
    assert nothing == "No attack on messages was chosen, so this run says nothing about what they give away."
    skipped = run(tmp_path / "b", None, leaks=[], facts={**FACTS, "skipped": {"norm": "no gradients"}})
    assert short_sentence([skipped]).startswith("No attack on messages could be scored, so")


def test_a_run_of_an_older_version_has_no_sentence(tmp_path):
    assert short_sentence([read_run(write_run(tmp_path / "run"))]) == short_sentence([]) == ""


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.912, "91 %"),
        (1.0, "100 %"),
        (0.9996, "99.96 %"),
        (0.0, "0 %"),
        (0.0004, "0.04 %"),
        (NAN, "unknown"),
        (0.004, "0.4 %"),
    ],
)
def test_a_share_never_looks_like_all_or_none_that_is_not(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.912, "0.91"), (1.0, "1.00"), (0.9968, "0.997"), (0.99996, "1.00"), (NAN, "undefined")]
)
def test_an_auc_below_one_has_digits_that_show_it(value, text):
    assert auc_text(value) == text


def test_a_mean_is_of_what_is_defined():
    assert mean([0.5, NAN, 1.0]) == 0.75
    assert mean([NAN]) != mean([NAN])
