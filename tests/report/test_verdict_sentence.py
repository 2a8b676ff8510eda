"""The first line of a result: what can be read, beside a coin and the model, and what the attacker needs."""

import re

import pytest
from outputs_tree import FACTS, marvell, write_run

from vflbench.report.site import write_report
from vflbench.report.table import final_table
from vflbench.report.verdict_sentence import needs, sentence, verdict_block
from vflbench.results import load
from vflbench.results.runs import read_run

CUT = {"cut_layers": {"media": ["f2"]}, "layers": {"media": ["f1", "f2"]}}


def worst(attack="norm", *, value=0.912, low=0.9, high=0.93, figure="AUC", message="gradient", layer="f2"):
    place = {"attack": attack, "message": message, "party": "media", "layer": layer, "figure": figure}
    return place | {"value": value, "low": low, "high": high, "readings": 34}


def verdict(one):
    return {"worst": one, "levels": {}, "on_changed": {}, "references": {}, "falls": None, "changed": []}


def run_with(tmp_path, one, *, facts=CUT, **summary):
    return read_run(write_run(tmp_path / "run", test_auc=0.79, verdict=verdict(one), facts=facts, **summary))


def audit_facts(**facts):
    known = {"kind": "audit", "source": {"path": "/data/partner/recorded"}, "threats": FACTS["threats"], **CUT}
    return known | {"data": {"train_rows": 900, "classes": 2, "train_class_ratios": [0.5, 0.5]}, **facts}


def test_the_sentence_says_what_is_read_beside_a_coin_and_the_model(tmp_path):
    assert sentence(run_with(tmp_path, worst())) == (
        "From what party media received, labels can be ranked with AUC 0.91 (0.90 to 0.93); a coin has 0.50, the model "
        "itself 0.79 on new rows. Worst attack: norm on gradients at the cut; it needs no label."
    )


def test_a_layer_below_the_cut_is_named_and_own_values_are_seen_rather_than_received(tmp_path):
    text = sentence(run_with(tmp_path, worst("spectral", message="embedding", layer="f1")))
    assert text.startswith("From what party media sees, ")
    assert "Worst attack: spectral on embeddings at layer f1; it needs no label." in text


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        ({"known_rows": 20, "level": "known labels"}, "it knows the labels of 20 rows"),
        ({"hints": 1, "level": "known labels"}, "it knows 1 positive of each batch"),
        ({"hints": 3, "level": "known labels"}, "it knows 3 positives of each batch"),
        (
            {"known_rows": 5, "hints": 2, "level": "known labels"},
            "it knows the labels of 5 rows and 2 positives of each batch",
        ),
        ({"knows": ["one known row of each class in each batch"]}, "it knows one known row of each class in each batch"),
        ({"level": "active", "active": True}, "it deviates from the protocol"),
        ({"level": "active", "known_rows": 4}, "it deviates from the protocol, and it knows the labels of 4 rows"),
        ({"level": "messages only"}, "it needs no label"),
    ],
)
def test_what_the_attacker_needs_comes_from_its_threat(tmp_path, threat, words):
    run = run_with(tmp_path, worst(), facts={**CUT, "threats": {"norm": threat}})
    assert needs("norm", run) == needs("norm (epoch)", run) == words


def test_a_single_batch_has_no_interval_and_says_so(tmp_path):
    lines = verdict_block(run_with(tmp_path, worst(low=None, high=None)))
    assert "AUC 0.91 (from a single batch: no interval); a coin" in lines[0]
    assert "interval:" not in lines[1]


def test_the_interval_is_explained(tmp_path):
    assert verdict_block(run_with(tmp_path, worst()))[1].endswith(
        "Interval: 95 % for the worst of all 34 readings, whichever it is (Bonferroni): from their highest low end to their "
        "highest high end. The named attack alone has the interval of its row."
    )


def test_what_is_no_better_than_a_coin_is_not_called_a_leak(tmp_path):
    text = sentence(run_with(tmp_path, worst(value=0.55, low=0.5, high=0.61)))
    assert (
        "no attack that was run ranks the labels significantly better than a coin: the worst reads AUC 0.55 (0.50 to 0.61)"
        in text
    )


def test_more_than_two_classes_are_told_apart(tmp_path):
    ami = run_with(tmp_path, worst(figure="AMI", value=0.57, low=0.4, high=0.7), test_accuracy=0.95)
    assert "classes can be distinguished with adjusted mutual information 0.57 (0.40 to 0.70); a coin has 0" in sentence(ami)
    assert "The model itself classifies 95% of new rows correctly." in sentence(ami)
    macro = read_run(write_run(tmp_path / "b", verdict=verdict(worst(figure="macro AUC")), test_auc=None))
    assert "classes can be distinguished with macro AUC 0.91 (0.90 to 0.93); a coin has 0.50. Worst" in sentence(macro)


def test_without_attacks_nothing_is_claimed(tmp_path):
    none = run_with(tmp_path, None, leaks=[])
    assert sentence(none) == "No attack on messages was chosen, so this run says nothing about what they give away."
    skipped = read_run(
        write_run(tmp_path / "b", verdict=verdict(None), leaks=[], facts={"skipped": {"norm": "no gradients"}})
    )
    assert sentence(skipped).startswith("No attack on messages could be scored")


def test_rebuilt_data_have_a_sentence_of_their_own(tmp_path):
    place = {"attack": "batch_reconstruction", "message": "update", "party": "a", "layer": "theta", "visible": True}
    shares = {"labels_right": 0.73, "guess_labels_right": 0.52, "entries_right": 0.82, "guess_entries_right": 0.5}
    figures = {name: {"mean": value, "low": value, "high": value} for name, value in shares.items()}
    facts = {"threats": {"batch_reconstruction": {"seat": "participant", "knows": ["updates"]}}}
    entry = {**place, "figures": figures, "batches": 2, "notes": {}}
    run = run_with(tmp_path, None, leaks=[], reconstructions=[entry], facts=facts)
    assert sentence(run) == (
        "From what a participant received, batch_reconstruction rebuilds data of party a: 73% of the labels (a guess: 52%), "
        "82% of the entries (a guess: 50%)."
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"beats_every_guess": True}, " It beats every guess without messages."),
        ({"beats_every_guess": None}, ""),
        (
            {"beats_every_guess": False, "beats_guesses": {"mean": {"beats": True}, "class_mean": {"beats": False}}},
            " It does not significantly beat every guess without messages: class mean.",
        ),
        (
            {"beats_every_guess": False, "beats_guesses": {"mean": {"beats": True}}, "told_apart": False},
            " It beats the error of every guess, but rows are not distinguished from others of their class: "
            "no message was read.",
        ),
    ],
)
def test_what_is_recognised_stands_beside_guesses_that_need_no_message(tmp_path, answer, words):
    def entry(layer, message="none", **figures):
        place = {"attack": "inversion", "message": message, "party": "all", "layer": layer, "visible": True, "batches": 1}
        return place | {"figures": {name: {"mean": value, "low": None, "high": None} for name, value in figures.items()}}

    entries = [
        entry("f2", "embedding", recognised=0.94, identified=0.5) | answer,
        entry("class_mean", recognised=1.0, identified=0.06),
        entry("random_row", recognised=0.1, identified=0.05),
        entry("chance", identified=0.05),
    ]
    facts = {"threats": {"inversion": {"seat": "label party", "knows": ["embeddings"]}}}
    run = run_with(tmp_path, None, leaks=[], reconstructions=entries, facts=facts)
    assert sentence(run) == (
        "From what the label party received, inversion rebuilds data of party all: 94% of the pictures recognised (a row by "
        "chance: 10%, the class mean: 100%), 50% identified among rows of their class (by chance: 5%)." + words
    )


def test_a_run_of_an_older_version_has_no_sentence(tmp_path):
    folder = write_run(tmp_path / "run")
    assert verdict_block(read_run(folder)) == []
    assert final_table(folder).startswith("after 2 epochs: test AUC 0.7600")


def test_attacks_of_an_audit_that_were_not_run_are_grouped_by_reason(tmp_path):
    reasons = {"completion": "no network", "norm": "no gradients", "direct": "no gradients"}
    facts = audit_facts(skipped=reasons, unscored={"kmeans": "one class only"}, notes=["half precision"])
    folder = write_run(tmp_path / "run", test_auc=None, verdict=verdict(worst()), facts=facts)
    lines = verdict_block(read_run(folder), gates=["PASS: all is well"])
    assert lines[1] == "PASS: all is well"
    assert lines[-4:] == [
        "Not run: norm, direct: no gradients.",
        "Not run: completion: no network.",
        "Not scored: kmeans: one class only.",
        "Half precision.",
    ]
    table = final_table(folder, gates=["PASS: all is well"])
    assert table.count("no gradients") == 1
    assert "\nrecording partner/recorded: 2 epochs, 900 training rows, test log loss 0.5000\n" in table
    assert "test AUC" not in table


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.read_text()))


@pytest.mark.slow
def test_an_audit_stands_on_a_page_and_in_a_table_next_to_training_runs(tmp_path):
    write_run(tmp_path / "out" / "trained", verdict=verdict(worst()))
    config = {
        "dataset": None,
        "model": None,
        "defense": None,
        "epochs": None,
        "seed": None,
        "recording": "/data/partner/recorded",
    }
    write_run(
        tmp_path / "out" / "audited",
        test_auc=None,
        config=config,
        verdict=verdict(worst(value=0.7, low=0.6, high=0.8)),
        facts=audit_facts(seed=5),
    )
    audited = read_run(tmp_path / "out" / "audited")
    assert (audited.dataset, audited.defense, audited.seed) == ("recording partner/recorded", "as recorded", 5)
    page = text_of(write_report([tmp_path / "out"], tmp_path / "page"))
    assert "Runs on recording partner/recorded" in page
    assert "Gradients at the cut give 70 % of label pairs away (AUC 0.70; a coin 0.50)" in page
    assert "Gradients give 91 % of label pairs away (AUC 0.91; a coin 0.50); the model itself 0.76" in page
    table = load(tmp_path / "out")
    assert set(table["defense"].to_pylist()) == {"none", "as recorded"}
    assert set(table["dataset"].to_pylist()) == {"criteo", "recording partner/recorded"}


@pytest.mark.slow
def test_a_page_says_which_measured_defenses_lower_it(tmp_path):
    write_run(tmp_path / "out" / "none", test_auc=0.79, verdict=verdict(worst()))
    for sumkl, value, auc in ((0.04, 0.6, 0.7), (0.16, 0.8, 0.75), (64.0, 0.95, 0.78)):
        one = verdict(worst(value=value, low=value - 0.01, high=value + 0.01))
        write_run(tmp_path / "out" / f"m{sumkl}", test_auc=auc, verdict=one, **marvell(sumkl))
    page = text_of(write_report([tmp_path / "out"], tmp_path / "page"))
    expected = (
        "What lowers it, as measured here on the same data: marvell, sumkl 0.04: AUC 0.60 with test AUC 0.70; marvell, "
        "sumkl 0.16: AUC 0.80 with test AUC 0.75. Without: none: AUC 0.91 with test AUC 0.79. 1 of 3 measured settings does "
        "not."
    )
    assert expected in page
    assert "All 3 settings of marvell: AUC 0.60 to 0.95." in page


@pytest.mark.slow
def test_a_page_without_an_undefended_run_says_nothing_of_what_lowers_it(tmp_path):
    for sumkl in (0.04, 0.16):
        write_run(tmp_path / "out" / f"m{sumkl}", verdict=verdict(worst()), **marvell(sumkl))
    assert "lowers it" not in text_of(write_report([tmp_path / "out"], tmp_path / "page"))


@pytest.mark.slow
def test_a_page_shows_names_from_a_recording_as_text(tmp_path):
    name = "<script>alert(1)</script>"
    facts = audit_facts(source={"path": "/x/<b>&"}, cut_layers={"media": ["f2"], name: ["f2"]})
    write_run(tmp_path / "out" / "run", verdict=verdict(worst() | {"party": name}), facts=facts, test_auc=None)
    page = write_report([tmp_path / "out"], tmp_path / "page").read_text()
    assert "<script>alert" not in page
    assert "party &lt;script&gt;alert(1)&lt;/script&gt;&#39;s cut" in page
