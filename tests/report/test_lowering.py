"""What lowers a leak: whether the model behind it is of use, and what to do next."""

import pytest
from outputs_tree import FACTS, leak, marvell, write_run

from vflbench.report.lowering import lowering, next_step
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree

HOW = 'the how-to "Which defense should I use?"'


def verdict(value, low=None, message="gradient"):
    worst = {"attack": "norm", "message": message, "party": "a", "layer": "f2", "figure": "AUC", "readings": 34}
    worst |= {"value": value, "low": value - 0.02 if low is None else low, "high": value + 0.02}
    return {"worst": worst, "levels": {"messages only": worst}, "references": {}, "falls": None, "changed": []}


def section(root):
    (made,) = sections(read_tree([root]).runs, Wishes())
    return made


def gdp(**more):
    return {"defense": {"label_gdp": {"_target_": "vflbench.defenses.label_gdp.LabelGdp", "mu": 1.0, **more}}}


def test_a_defense_whose_model_is_a_coin_is_said_to_be_one(tmp_path):
    write_run(tmp_path / "none", test_auc=0.79, verdict=verdict(0.94))
    write_run(tmp_path / "gdp", test_auc=0.48, verdict=verdict(0.75), **gdp())
    (line,) = lowering(section(tmp_path))
    assert "label_gdp: AUC 0.75, but its model is no better than a coin (test AUC 0.48). Without: none: AUC 0.94 " in line
    assert next_step(section(tmp_path)) == [
        f"What to do next: no defense that lowers it here keeps a useful model; {HOW} compares the defenses."
    ]


@pytest.mark.parametrize(
    ("aucs", "words"),
    [
        ((0.521, 0.522, 0.523), ", but its model is hardly better than a coin (test AUC 0.52)"),
        ((0.45, 0.50, 0.55), ", but its model is no better than a coin (test AUC 0.50)"),
        ((0.50, 0.60, 0.70), ", but its model may be no better than a coin (test AUC 0.60, 0.35 to 0.85)"),
        ((0.69, 0.70, 0.71), " with test AUC 0.70"),
    ],
)
def test_the_interval_over_seeds_decides_what_is_said_of_the_model(tmp_path, aucs, words):
    for seed, auc in enumerate(aucs):
        write_run(tmp_path / f"none{seed}", seed=seed, test_auc=0.79, verdict=verdict(0.94))
        write_run(tmp_path / f"gdp{seed}", seed=seed, test_auc=auc, verdict=verdict(0.75), **gdp())
    (line,) = lowering(section(tmp_path))
    assert f"label_gdp: AUC 0.75{words}. Without: none: AUC 0.94 with test AUC 0.79." in line


def test_where_a_defense_lowers_it_with_a_useful_model_nothing_more_is_said(tmp_path):
    write_run(tmp_path / "none", test_auc=0.79, verdict=verdict(0.94))
    write_run(tmp_path / "m", test_auc=0.7, verdict=verdict(0.75), **marvell(0.04))
    assert next_step(section(tmp_path)) == []


def test_where_nothing_lowers_it_or_nothing_was_tried_the_reader_learns_what_to_try(tmp_path):
    end = f"{HOW} compares the defenses; to try one, add defense=label_gdp to the command of this run."
    write_run(tmp_path / "none", test_auc=0.79, verdict=verdict(0.94))
    assert next_step(section(tmp_path)) == [f"What to do next: no defense was tried here; {end}"]
    write_run(tmp_path / "m", test_auc=0.7, verdict=verdict(0.96), **marvell(0.04))
    assert next_step(section(tmp_path)) == [f"What to do next: no defense that was tried here lowers it; {end}"]


def test_other_messages_are_not_said_to_be_defended_by_label_gdp(tmp_path):
    write_run(tmp_path / "none", test_auc=0.79, verdict=verdict(0.94, message="update"))
    assert next_step(section(tmp_path)) == [f"What to do next: no defense was tried here; {HOW} compares the defenses."]


def test_a_run_that_is_not_surely_read_asks_for_nothing(tmp_path):
    write_run(tmp_path / "none", test_auc=0.79, verdict=verdict(0.52, low=0.49))
    write_run(tmp_path / "old", test_auc=0.79, seed=1, leaks=[leak("norm", "f2", 0.9)])
    assert next_step(section(tmp_path)) == []


def test_an_audit_says_that_a_new_training_needs_the_defense(tmp_path):
    facts = {**FACTS, "kind": "audit", "source": {"path": "/data/partner/recorded"}}
    write_run(tmp_path / "audit", test_auc=None, verdict=verdict(0.94), facts=facts)
    (line,) = next_step(section(tmp_path))
    assert "can't be defended afterwards" in line
    assert f"T{HOW[1:]} says which to try first: of a model that vflbench trains, defense=label_gdp." in line


def test_what_is_the_same_in_all_compared_settings_is_named_once(tmp_path):
    for epochs in (2, 3):
        write_run(tmp_path / f"none{epochs}", test_auc=0.79, verdict=verdict(0.94), config={"epochs": epochs})
        write_run(tmp_path / f"m{epochs}", test_auc=0.7, verdict=verdict(0.75), config={"epochs": epochs}, **marvell(0.04))
        write_run(tmp_path / f"n{epochs}", test_auc=0.7, verdict=verdict(0.7), config={"epochs": epochs}, **marvell(0.02))
    assert lowering(section(tmp_path))[0] == (
        "What lowers it, as measured here on the same data: marvell, sumkl 0.02: AUC 0.70 with test AUC 0.70; marvell, "
        "sumkl 0.04: AUC 0.75 with test AUC 0.70. Without: none, epochs 2: AUC 0.94 with test AUC 0.79."
    )
