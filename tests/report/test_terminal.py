"""What a command prints of a result: a sentence and at most six lines of 80 columns, whatever the run was."""

import re
import shutil

import pytest
from support.outputs_tree import leak, marvell, reading, rebuilt, verdict, write_run

from vflbench.report.group import sections
from vflbench.report.tables import cost
from vflbench.report.terminal import MOST, final_table, result_text
from vflbench.results.runs import read_tree

LONG = "party " + "a long reason of another hand, " * 20


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """What is printed of a run that reads as `reading` says. how: options of `result_text`."""
    monkeypatch.chdir(tmp_path)

    def text_of(how=None, **given):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return result_text(write_run(tmp_path / "run", **{"verdict": verdict(reading()), **given}), **(how or {}))

    return text_of


def rest(text):
    """The lines after the sentence and the outcomes of thresholds."""
    return text.split("\n\n", 1)[1].splitlines()


def test_the_result_is_a_sentence_and_lines_that_say_who_what_and_where_next(shown):
    ends = {"test_auc_low": 0.77, "test_auc_high": 0.8, "test_positives": 250, "test_negatives": 750}
    assert shown(test_auc=0.788, test_accuracy=0.79, test_calibration=1.02, **ends) == (
        "Gradients at the cut give 91 % of label pairs away (AUC 0.91; a coin 0.50); the\n"
        "model itself 0.79 on new rows.\n"
        "\n"
        "attack   norm on gradients at the cut, AUC 0.912 (the worst of all: 0.90 to\n"
        "         0.93); needs no label\n"
        "model    test AUC 0.788 (0.77 to 0.80), train 0.788, accuracy 0.790, calibration\n"
        "         1.020; 2 epochs\n"
        "details  run/table.txt\n"
        "next     vflbench report run --open"
    )


def test_table_txt_holds_cpu_seconds_against_those_of_training_and_a_page_has_them_too(tmp_path):
    spent = {"audit": 3.0, "train": 2.0, "audit/norm": 1.0}
    folder = write_run(tmp_path / "run", cpu_seconds=spent)
    lines = [line.split() for line in final_table(folder).splitlines() if line.startswith(("train ", "audit"))]
    assert lines == [["audit", "3.000", "1.500"], ["train", "2.000", "1.000"], ["audit/norm", "1.000", "0.500"]]
    (section,) = sections(read_tree([tmp_path]).runs)
    assert list(cost(section).frame["of the CPU"]) == ["audit 3, train 2, audit/norm 1"]


def test_an_attack_of_ones_own_has_a_line_where_another_one_reads_more(shown):
    leaks = [leak("norm", "f2", 0.912), *(leak("loudest", layer, value) for layer, value in (("f1", 0.7), ("f2", 0.8)))]
    config = {"attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}, "loudest": {"_target_": "loudest.Loudest"}}}
    ours = {"leaks": leaks, "config": config, "facts": {"plugins": [{"folder": "mine", "files": {}}]}}
    assert "own      loudest on gradients at the cut, AUC 0.800" in rest(shown(**ours))
    assert "\nown" not in shown(verdict=verdict(reading("loudest")), **ours)


def promise(**more):
    numbers = {"leak_auc_one_message": 0.6, "leak_auc_all_messages": 0.68}
    return {"claim": "sumKL", "bounds": "the leak", "messages": 4, "assumption_holds": None} | numbers | more


LABELS = "what the messages add about one row, given everything else"
PRIVACY = {"epsilon": 1.0, "epsilon_low": 0.338, "canaries": 270, "delta": 1e-6}
EXCEEDED = [reading("remainder", 0.9999, ceiling=0.68, level="messages only")]
FALLS = {"verdict": verdict(reading(), falls=reading(because=LONG)), "guarantees": {"marvell": promise()}}
CASES = {
    "many skipped": {"skipped": {f"attack_{i}": LONG for i in range(30)}},
    "failed": {"failed": f"the promise was violated. {LONG}"},
    "falls": {**marvell(4), **FALLS},
    "alarm": {**marvell(4), "guarantees": {"marvell": promise(exceeded=EXCEEDED, assumption="x", assumption_holds=False)}},
    "label privacy": {"guarantees": {"label_dp": promise(bounds=LABELS)}, "privacy": PRIVACY},
    "long names": {"verdict": verdict(reading("an_attack_of_" + "the_users_" * 5 + "own"))},
}


@pytest.mark.parametrize("case", CASES)
def test_there_are_at_most_six_lines_of_80_columns_and_the_last_two_say_where_to_look(shown, case):
    text = shown(test_auc=0.788, test_accuracy=0.79, **CASES[case])
    assert 2 <= len(rest(text)) <= MOST, text
    assert max(map(len, text.splitlines())) <= 80, text
    assert rest(text)[-2:] == ["details  run/table.txt", "next     vflbench report run --open"]


def test_alarms_come_first_and_are_red_on_a_terminal_alone(shown):
    alarm = "ALARM    remainder, without labels, reads AUC 0.9999 of gradients at a f2, at"
    assert rest(plain := shown(**CASES["alarm"]))[0].startswith(alarm)
    assert "\033" not in plain
    coloured = shown({"colour": True}, **CASES["alarm"])
    assert coloured.startswith("\033[1mWith marvell: gradients at the cut give")
    assert rest(coloured)[0].startswith("\033[1;31mALARM")


def test_label_privacy_says_what_was_spent_and_what_canaries_prove(shown):
    for changed, text in (
        ({}, "privacy  label DP with eps = 1; 270 canaries prove eps at least 0.338\n"),
        ({"violated": True, "epsilon_low": 1.7}, "prove eps at least 1.7: VIOLATED"),
        ({"canaries": 0, "epsilon_low": None}, "not checked, as there are no canaries"),
    ):
        assert text in shown(**CASES["label privacy"] | {"privacy": PRIVACY | changed})


def test_an_auc_above_the_ceiling_of_label_privacy_is_said_to_be_no_alarm(shown, tmp_path):
    above = promise(bounds=LABELS, leak_auc_all_messages=0.746, exceeded=[reading(value=0.76, low=0.75, ceiling=0.746)])
    lines = rest(shown({"colour": True}, privacy=PRIVACY, guarantees={"label_gdp": above}))
    ceiling = "ceiling  norm, without labels, reads AUC 0.760 of gradients at a f2, at least"
    assert any(line.startswith(ceiling) for line in lines)
    why = f"the ceiling is on {LABELS}, and features predict labels as well; canaries measure what it bounds"
    assert f"This breaks no promise: {why}" in " ".join(final_table(tmp_path / "run").split())
    below = promise(bounds=LABELS, leak_auc_all_messages=0.746)
    assert "\nceiling" not in shown(guarantees={"label_gdp": below})


def test_thresholds_follow_the_sentence_and_all_of_them_are_shown(shown):
    gates = [f"{'FAIL' if i % 2 else 'PASS'}: figure_{i} is 0.912 of norm\033[2J; its interval is {LONG}" for i in range(9)]
    text = shown({"gates": gates, "colour": True})
    assert "norm\\x1b[2J" in text, "what a terminal would obey is escaped"
    lines = text.splitlines()
    assert sum("\033[1;31mFAIL" in line for line in lines) == 4
    assert sum("\033[1;32mPASS" in line for line in lines) == 5
    assert max(len(re.sub("\033.*?m", "", line)) for line in lines) <= 80


def test_the_honest_run_stands_beside_one_with_an_adversary(shown, tmp_path):
    facts = {"adversary": {"fsha": {"party": "label", "text": "cheats"}}}
    honest = {"test_auc": 0.75, "leak_auc_two_sided": {"norm": {"gradient": {"f2": 0.6123}}}}
    model = "model    test AUC 0.500, without the adversary 0.750"
    assert model in shown(test_auc=0.5, facts=facts, honest=honest)
    table = final_table(tmp_path / "run")
    assert model in table
    rows = [line.split() for line in table.splitlines() if line.startswith("norm ")]
    assert ["0.612" in row for row in rows] == [True, False, False]


def test_a_table_keeps_to_120_characters_whatever_its_cells_hold(tmp_path):
    figures = [{"party": "a", "layer": "f2", "message": "embedding", "figure": "kept", "value": 1613}]
    long = [leak("x" * 60, "l" * 60, 0.9, party="p" * 60), leak("norm", "f2", 0.8, message="embedding")]
    answers = [rebuilt(f"f{k}", "mine", psnr=12.5 + k) for k in range(34)]
    adversary = {"y" * 60: {"party": "label", "text": "it cheats " * 30}}
    given = {"figures": figures, "leaks": long, "reconstructions": answers, "facts": {"adversary": adversary}}
    text = final_table(write_run(tmp_path / "run", **given, skipped={f"attack_{k}": "no labels" for k in range(40)}))
    assert max(map(len, text.splitlines())) <= 120
    assert "1,613" in text
    assert all(f"{12.5 + k:.1f}" in text for k in range(34))


def test_the_table_begins_with_what_breaks_a_ceiling_and_the_worst_attack_of_each_level(tmp_path):
    doubt = {"assumption": "the classes are normal", "assumption_holds": False, "message": "gradient"}
    doubt["tested"] = [{"party": "a", "layer": "f2", "anisotropy": 812.0, "effective_dimension_0": 3.1}]
    best = reading("remainder", 0.9999, 0.99, 0.9999)
    levels = {"messages only": best}
    levels["known labels"] = reading("completion", 0.8, 0.78, 0.82, message="embedding", features_only=0.65)
    more = {"on_changed": {"known labels": reading("completion", 0.7, 0.68, 0.72)}, "levels": levels}
    more["references"] = {"probe": reading("probe", 0.99, 0.985, 0.995)}
    more["falls"] = reading("remainder", 0.9999, because="above the ceiling of 0.680", level="messages only")
    exceeded = [reading("remainder", 0.9999, 0.9989, 0.9999, ceiling=0.68, level="messages only")]
    given = marvell(4) | {"guarantees": {"marvell": promise(exceeded=exceeded, **doubt)}, "verdict": verdict(best, **more)}
    facts = {"threats": {"remainder": {"knows": ["gradients"], "level": "messages only"}}}
    text = final_table(write_run(tmp_path / "run", facts=facts, **given))
    sentence, lines, levels = (part.splitlines() for part in text.split("\n\n")[:3])
    assert sentence[0].startswith("With marvell: gradients")
    assert max(map(len, text.splitlines())) <= 120
    alarm = "at least 0.999, above the ceiling of marvell, 0.680; its assumption does not hold here: the classes are normal"
    assert alarm in " ".join(" ".join(lines).split())
    assert "defense  marvell falls to remainder (AUC 0.9999): above the ceiling of 0.680" in lines
    changed = ["gradient", "a", "f2", "AUC", "0.700", "0.680", "0.720", "-"]
    assert [re.split("  +", line) for line in levels[-5:] if line != "changes"] == [
        ["messages only", "remainder", "gradient", "a", "f2", "AUC", "0.9999", "0.990", "0.9999", "-"],
        ["known labels", "completion", "embedding", "a", "f2", "AUC", "0.800", "0.780", "0.820", "0.650"],
        ["known labels, of what the defense", "completion", *changed],
        ["reference: probe", "probe", *["gradient", "a", "f2", "AUC", "0.990", "0.985", "0.995", "-"]],
    ]
    facts = [re.split("  +", line) for line in text.splitlines()]
    assert ["assumption holds", "no"] in facts
    assert ["tested", "party a, layer f2, anisotropy 812.0, effective dimension 0 3.100"] in facts


def test_the_table_has_every_leak_once_the_worst_first_and_the_reason_for_each_attack_without_a_result(tmp_path):
    leaks = [leak(name, f"f{layer}", 0.5 + 0.04 * layer) for name in ("norm", "mine") for layer in range(1, 30)]
    reference, hidden = leak("norm", "f1", 0.9, message="none"), leak("norm", "h1", 1.0, visible=False)
    reasons = {"skipped": {"hints": "no labels", "direct": "no labels"}, "unscored": {"averaging": "no positives"}}
    text = final_table(write_run(tmp_path / "run", leaks=[hidden, reference, *leaks], test_auc=None, **reasons))
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["norm"], ["mine"])]
    worst_first = [*sorted(leaks, key=lambda one: -one["raw"]["mean"]), reference, hidden]
    assert [(row[0], row[3]) for row in rows] == [(one["attack"], one["layer"]) for one in worst_first]
    assert [row[-1] for row in rows].count("hidden") == 1
    assert "\nNot run: hints, direct: no labels.\nNot scored: averaging: no positives.\n" in text
    assert "test AUC undefined" in text
