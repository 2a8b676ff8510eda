"""Results in words: each number is of the right attack and place, and nothing is claimed that was not measured."""

import re
from pathlib import Path

import pytest
from support.outputs_tree import interval, leak, marvell, reading, verdict, write_run
from support.outputs_tree import rebuilt as answer

from vflbench.report import words
from vflbench.report.group import sections
from vflbench.report.words import as_share, checked_text, in_words, line, number, rebuilt, verdict_text
from vflbench.results.runs import Run, read_tree
from vflbench.results.schema import Manifest, Privacy, Summary

NAN = float("nan")
LABELS = {"completion": {"known_rows": 100, "level": "known labels", "role": "non-label party"}}
TWO = {"cut_layers": {"a": ["f2"], "b": ["f2"]}}
LEARNED = {"test_auc": 0.79, "test_auc_low": 0.77, "test_auc_high": 0.81, "test_positives": 300, "test_negatives": 700}


def batch(**figures):
    usual = {"labels_right": 1.0, "guess_labels_right": 0.55, "guess_entries_right": 0.5, "matched_guess_right": 0.64}
    return answer("theta", "batch_reconstruction", message="update", **(usual | figures))


def run_of(worst=None, *, facts=None, levels=None, changed=(), **summary):
    """A run with that worst reading. facts: of its manifest."""
    verdict = {"worst": worst, "levels": levels or {}, "changed": list(changed)}
    manifest = {"cut_layers": {"a": ["f2"]}, "layers": {"a": ["f1", "f2"], "label": ["h1"]}} | (facts or {})
    known = Summary.model_validate({"epochs": 2, "verdict": verdict} | LEARNED | summary)
    return Run(Path("run"), {}, known, Manifest.model_validate(manifest))


READ = [leak("norm", "f2", 0.912), leak("norm", "h1", 1.0, visible=False)]
READ += [leak("spectral", "f2", 0.21, message="embedding") | {"net": {"mean": 0.6}}]
KNOWN = {"levels": {"known labels": reading("completion", features_only=0.84)}, "facts": {"threats": LABELS}}
NOTHING = "No attack on messages could be scored, so this audit says nothing about what they give away."
SENTENCES = {
    "a leak, a coin, other messages by attacks of no more knowledge, the model": (
        {"worst": reading(), "leaks": READ},
        "Gradients at the cut give 91 % of label pairs away (AUC 0.91; a coin 0.50); embeddings 79 %; the model itself 0.79 "
        "on new rows.",
    ),
    "known labels, and what own columns read alone": (
        {"worst": reading("completion", message="embedding"), "leaks": [leak("spectral", "f2", 0.6)], **KNOWN},
        "Embeddings at the cut give 91 % of label pairs away (AUC 0.91 with 100 known labels; a coin 0.50; own columns "
        "alone 0.84); gradients 60 %; the model itself 0.79 on new rows.",
    ),
    "three classes": (
        {
            "worst": reading("completion", 0.9896, figure="macro AUC", message="embedding"),
            "leaks": [leak("kmeans", "f2", None) | {"classes": {"ami": interval(0.4), "macro_auc": interval(0.2)}}],
        },
        "Embeddings at the cut give 99 % of label pairs away, each class against the rest (macro AUC 0.99; a coin 0.50); "
        "gradients 80 %; the model itself 0.79 on new rows.",
    ),
    "no score": ({"unscored": {"norm": "one class"}, "facts": {"kind": "audit"}}, NOTHING),
    "a model that learned nothing is said first": (
        {"worst": reading(value=0.53, low=0.5, high=0.58), "leaks": [leak("spectral", "f2", 0.52, message="embedding")]}
        | {"test_auc": 0.45, "test_auc_low": 0.37, "test_auc_high": 0.52},
        "The model learned nothing (test AUC 0.45, 0.37 to 0.52; a coin 0.50): a low leak is no protection here. No attack "
        "that ran ranks the labels significantly better than a coin: the strongest, norm on gradients at the cut, reads AUC "
        "0.53 (the worst of all: 0.50 to 0.58; a coin 0.50).",
    ),
    "what was rebuilt where no label is read": (
        {"reconstructions": [batch(exact=1.0, entries_right=1.0)]},
        "Updates give the private batches of party a away: batch_reconstruction rebuilds 100 % of the entries (a "
        "guess 64 %), 100 % of the labels (a guess 55 %), 100 % of the batches exactly.",
    ),
}


SEEDS = {
    "means": (
        [{"worst": reading(value=0.9)}, {"worst": reading(value=0.8), "test_auc": 0.71}],
        "Gradients at the cut give 85 % of label pairs away (AUC 0.85; a coin 0.50); the model itself 0.75 on new rows "
        "(mean of 2 seeds).",
    ),
    "each place where too little was read": (
        [
            {"worst": reading(value=0.64, low=0.45, high=0.79, layer="f1")},
            {"worst": reading(value=0.62, low=0.52, high=0.77, layer="f1")},
            {"worst": reading("spectral", 0.57, 0.5, 0.9, message="embedding")},
        ],
        "Too few audited batches to judge in 2 of 3 seeds (AUC 0.61 by norm on gradients at layer f1 and spectral on "
        "embeddings at the cut; the worst of all: 0.45 to 0.90; a coin 0.50); audit.batches=all, or more rows, would tell; "
        "the model itself 0.79 on new rows (mean of 3 seeds).",
    ),
}


ATTACKS = {
    "at another layer": (
        {"worst": reading(layer="f1"), "leaks": [leak("norm", "f1", 0.912), leak("norm", "f2", 0.907)]},
        "norm on gradients at layer f1, AUC 0.912 (the worst of all: 0.90 to 0.93); at the cut, f2, 0.907; needs no label",
    ),
    "one batch": (
        {"worst": reading(low=None, high=None)},
        "norm on gradients at the cut, AUC 0.912 (one batch, no interval); needs no label",
    ),
}


def attack_words(given):
    run = run_of(**given)
    return words.attack_text(run, run.summary.verdict.worst)


ANSWERS = [
    *(batch(entries_right=0.5), answer("theta", "b", message="update", entries_right=1.0)),
    answer(message="none", entries_right=0.9),
]
LINES = {
    "several parties, of a model that learned nothing": (
        {"worst": reading(party="b"), "facts": TWO, "test_auc": 0.45, "test_auc_low": 0.38, "test_auc_high": 0.52},
        "the model learned nothing (test AUC 0.45, 0.38 to 0.52; a coin 0.50), "
        "leak AUC 0.912 (norm on gradients at party b's cut)",
    ),
    "rebuilt": ({"reconstructions": ANSWERS}, "100 % of the entries rebuilt (b), test AUC 0.790"),
}


GUESSES = (
    answer(layer="class_mean", message="none", recognised=1.0, identified=0.06),
    answer(layer="random_row", message="none", recognised=0.1, identified=0.05),
    answer(layer="chance", message="none", identified=0.05),
)
PICTURES = (
    "the pictures of party a away: inversion rebuilds 94 % of the pictures recognisably (class mean 100 %), "
    "50 % of the rows distinguishably from others of their class (class mean 6 %)"
)
BEATEN = {"beats_every_guess": False, "beats_guesses": {"mean": {"beats": True}, "class_mean": {"beats": False}}}
REBUILT = {
    "a guess is no leak": (
        [batch(exact=0.0, entries_right=0.65, labels_right=0.55)],
        "Updates do not clearly give the private batches of party a away: batch_reconstruction rebuilds 65 % of the entries "
        "(a guess 64 %), 55 % of the labels (a guess 55 %), 0 % of the batches exactly.",
    ),
    "pictures": ([answer(recognised=0.94, identified=0.5), *GUESSES], f"Embeddings at the cut give {PICTURES}."),
    "no better than guesses": (
        [answer(recognised=0.94, identified=0.5) | BEATEN, *GUESSES],
        f"Embeddings at the cut do not clearly give {PICTURES}; not surely better than every guess without messages.",
    ),
    "a column that is no label": (
        [answer("C3", "attribute", attribute_auc=0.8, attribute_gain=0.2)],
        "Embeddings give the column C3 of party a away: attribute rebuilds 80 % of the order of pairs of rows "
        "(a guess 60 %).",
    ),
    "the strongest answer, read by another party": (
        [answer(r2=0.2), answer(party="b by c", r2=0.7), answer(layer="mean", message="none", r2=0.9)],
        "Embeddings at the cut, read by party c, give the columns of party b away: inversion rebuilds 70 % of the variance.",
    ),
}


SAID = {
    "sentence": (SENTENCES, lambda given: verdict_text([run_of(**given)])),
    "sentence over seeds": (SEEDS, lambda given: verdict_text([run_of(**one) for one in given])),
    "attack": (ATTACKS, attack_words),
    "line of a sweep": (LINES, lambda given: line(run_of(**given))),
    "rebuilt": (REBUILT, lambda given: " ".join(rebuilt([run_of(reconstructions=given)]))),
}
"""What is worded -> its cases, and by what."""


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, (cases, _) in SAID.items() for case in cases])
def test_what_is_said(kind, case):
    cases, words_of = SAID[kind]
    given, text = cases[case]
    assert words_of(given) == text


def test_a_number_or_share_never_looks_like_all_or_none_that_is_not():
    assert [number(value) for value in (0.912, 0.9968, NAN)] == ["0.91", "0.997", "undefined"]
    assert number(0.9996, 3) == "0.9996"
    shares = {0.912: "91 %", 1.0: "100 %", 0.9996: "99.96 %", 0.0: "0 %", 0.0004: "0.04 %", NAN: "undefined"}
    assert list(map(as_share, shares)) == list(shares.values())


def privacy(canaries=200, *, violated=False, probability=0.023, **more):
    powers = [
        {"times": 1.5, "probability": probability, "wanted": 0.8, "canaries_needed": None},
        {"times": 2, "probability": 0.48, "wanted": 0.8, "canaries_needed": 280},
    ]
    return Privacy.model_validate({"epsilon": 1.0, "canaries": canaries, "violated": violated, "power": powers} | more)


CAUGHT = "not violated, which does not verify it; caught at best: 1.5 times too weak with probability "


def test_not_violated_is_never_verified_and_a_setting_has_the_least_power_of_its_runs():
    least = f"{CAUGHT}0.023, 2 times too weak with probability 0.480"
    assert checked_text([privacy(probability=0.5), privacy()]) == least
    assert checked_text([privacy(power=[])]) == "not violated, which does not verify it"
    assert checked_text([privacy(0, mu=2.0, epsilon=None)]) == "not checked: no canaries (audit.canaries)"
    assert checked_text([privacy(), privacy(violated=True)]) == "violated"


def test_two_keys_of_one_last_part_have_one_part_more():
    given = {"audit.epochs": "last", "epochs": 3, "defense.label_gdp.mu": 1.0}
    assert in_words(given) == ["audit.epochs last", "epochs 3", "mu 1"]
    assert in_words({"attack.a.rows": 3, "attack.b.rows": 4, "epochs": None}) == ["a.rows 3", "b.rows 4"]


def leaks_of(value, **more):
    return LEARNED | {"norm": value, "verdict": verdict(reading(value=value, low=value - 0.03, high=value + 0.03), **more)}


STEPS = {
    "one helps": ([0.9, 0.7], "marvell leaks least of what can be judged; attack=strongest tries it harder"),
    "no defense": ([0.9], "the how-to"),
    "none helps": ([0.7, 0.9], "the how-to"),
    "nothing leaks": ([0.5, 0.5], None),
    "it falls": ([0.9, 0.88], "the how-to"),
    "it learned nothing": ([0.9, 0.51], "the how-to.*; more rows or epochs for marvell: a low leak is no protection there"),
    "it can't be judged": ([0.9, 0.7], "the how-to.*; audit.batches=all, or more rows, to judge marvell"),
}


@pytest.mark.parametrize("case", STEPS)
def test_the_next_step_never_leads_to_what_is_not_known_to_help(case, tmp_path):
    given, text = STEPS[case]
    more = {"falls": reading(because="it is as good as the model")} if case == "it falls" else {}
    defended = leaks_of(given[-1], **more)
    if case == "it learned nothing":
        defended |= {"test_auc": 0.5, "test_auc_low": 0.45, "test_auc_high": 0.55}
    if case == "it can't be judged":
        defended["verdict"] = verdict(reading(value=0.7, low=0.5, high=1.0))
    write_run(tmp_path / "none", **leaks_of(given[0]))
    if len(given) > 1:
        write_run(tmp_path / "marvell", **marvell(0.16, None), **defended)
    (section,) = sections(read_tree([tmp_path]).runs)
    steps = [line for line in words.remarks(section) if line.startswith("What to do next: ")]
    assert [bool(re.search(str(text), line)) for line in steps] == [True] * (text is not None)
    assert any("leaks least" in line for line in steps) == (case == "one helps")
