"""A threshold on what attacks read: the largest value decides, and nothing undefined passes in silence."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from vflbench.errors import UserError
from vflbench.report.words import threshold
from vflbench.results.gate import KEYS, Gate, distinct_rounding, judge, judged, leak_rows
from vflbench.results.schema import MetricRow, Reading, ThreatRecord

CUT = {"media": ["f2"]}
THREATS = dict.fromkeys(("norm", "spectral"), ThreatRecord(level="messages only")) | {
    "cosine": ThreatRecord(level="known labels")
}


def row(attack, value, *, metric="leak_auc_two_sided", epoch=1, layer="f2", half=0.02, visible=True, message="gradient"):
    return MetricRow(epoch, "train", "media", layer, message, attack, metric, value, value - half, value + half, visible)


def outcome(text, *rows, worst=None):
    return judge(Gate.parse(text), rows, THREATS, CUT, worst)


def test_the_largest_value_of_any_attack_layer_and_epoch_decides():
    rows = [row("norm", 0.58), row("spectral", 0.55), row("norm", 0.7, layer="f1", epoch=0)]
    failed = outcome("leak_auc_two_sided=0.6", *rows)
    assert not failed.passed
    assert threshold(failed) == (
        "FAIL: leak_auc_two_sided is 0.700, 0.100 above 0.6 (norm, gradients, media f1, epoch 0); "
        "its own 95 % interval is 0.680 to 0.720: all of it above"
    )
    passed = outcome("leak_auc_two_sided=0.6", *rows[:2])
    assert passed.passed
    assert threshold(passed) == (
        "PASS: leak_auc_two_sided is 0.580, 0.020 below 0.6 (norm, gradients, media f2, the cut); "
        "its own 95 % interval is 0.560 to 0.600: not above"
    )


def test_the_value_itself_passes_and_the_least_more_fails():
    assert outcome("leak_auc_two_sided=0.6", row("norm", 0.6)).passed
    above = threshold(outcome("leak_auc_two_sided=0.6", row("norm", math.nextafter(0.6, 1))))
    assert above.startswith("FAIL: leak_auc_two_sided is 0.600, 1.1e-16 above 0.6 (")  # the gap is seen
    assert "partly above" in above


def test_references_and_layers_that_nobody_sees_do_not_count():
    hidden = [row("spectral", 1.0, layer="h1", visible=False)]
    references = [row("probe", 1.0, message="none"), row("cosine (own columns)", 1.0, message="none")]
    assert outcome("leak_auc_two_sided=0.6", row("norm", 0.5), *hidden, *references).row.value == 0.5
    for others in ([*hidden, *references], [row("norm", math.nan)]):
        with pytest.raises(UserError, match="no attack on messages was scored"):
            outcome("leak_auc_two_sided=0.6", *others)


def test_no_undefined_value_passes_in_silence_nor_a_one_sided_one_that_leaks_turned_around():
    undefined = threshold(outcome("leak_auc_two_sided=0.6", row("norm", math.nan), row("spectral", 0.52)))
    assert undefined.startswith("PASS")
    assert undefined.endswith("without a value, so not judged: norm")
    rows = [row("norm", 0.02, metric="leak_auc"), row("spectral", 0.5, metric="leak_auc")]
    line = threshold(outcome("leak_auc=0.6", *rows))
    assert line.startswith("PASS")
    assert "another reading is 0.020: turned around, that is 0.980, above 0.6" in line
    assert "turned around" not in threshold(outcome("leak_auc=0.6", rows[1]))


def test_macro_auc_is_folded_as_the_names_of_classes_are_arbitrary():
    folded = outcome("leak_macro_auc=0.6", row("norm", 0.1, metric="leak_macro_auc"))
    assert (folded.row.value, folded.passed) == (0.9, False)
    assert (round(folded.row.ci_low, 6), round(folded.row.ci_high, 6)) == (0.88, 0.92)


def test_of_equal_values_the_cut_of_the_last_epoch_and_the_attack_that_knows_less_are_named():
    rows = [row("cosine", 1.0), row("norm", 1.0, epoch=0), row("norm", 1.0, layer="f1"), row("norm", 1.0)]
    named = outcome("leak_auc_two_sided=0.6", *rows).row
    assert (named.attack, named.layer, named.epoch) == ("norm", "f2", 1)


def test_worst_is_the_larger_of_two_sided_and_net_with_the_interval_of_the_verdict():
    net = replace(row("norm", 0.66), metric="leak_auc_net")
    rows = [row("norm", 0.52), net, row("spectral", 0.6), replace(row("spectral", 0.5), metric="leak_auc_net")]
    worst = Reading(attack="norm", message="gradient", party="media", layer="f2", value=0.66, low=0.61, high=0.7)
    one = outcome("leak_auc_worst=0.6", *rows, worst=worst)
    assert (one.row.value, one.row.ci_low, one.row.ci_high, one.of_all) == (0.66, 0.61, 0.7, True)
    assert "; the 95 % interval of the worst of all readings is 0.610 to 0.700: all of it above" in threshold(one)
    early = outcome("leak_auc_worst=0.6", *rows, row("norm", 0.9, epoch=0), worst=worst)
    assert (early.row.value, early.of_all) == (0.9, False)


def test_a_leak_counts_as_two_sided_or_net_whichever_is_larger():
    two_sided = [row("norm", value, layer=layer) for layer, value in (("f1", 0.51), ("f2", 0.8), ("f3", 0.6))]
    net = [row("norm", value, layer=layer, metric="leak_auc_net") for layer, value in (("f1", 0.59), ("f2", 0.79))]
    rows = [*two_sided, *net, row("norm", 0.49, metric="leak_auc", layer="f1")]
    assert [(one.layer, one.value) for one in leak_rows(rows)] == [("f1", 0.59), ("f2", 0.8), ("f3", 0.6)]


@pytest.mark.parametrize(
    ("value", "half", "passed"),
    [
        (0.55, 0.02, True),  # above a coin, below the threshold
        (0.52, 0.05, True),  # holds a coin, ends below the threshold
        (0.58, 0.06, True),  # above a coin: it is this leak that was measured, though its interval ends above
        (0.52, 0.20, None),  # holds a coin and leaks that are not tolerated
        (0.52, math.nan, None),  # a single batch
        (0.70, 0.30, False),  # the value decides
    ],
)
def test_what_too_few_batches_read_is_not_kept(value, half, passed):
    one = outcome("leak_auc_two_sided=0.6", row("norm", value, half=half))
    assert one.passed is passed
    assert threshold(one).startswith({True: "PASS: ", False: "FAIL: ", None: "NOT JUDGED: "}[passed])
    assert ("too few audited batches to judge: audit.batches=all" in threshold(one)) is (passed is None)


def test_the_interval_says_whether_a_leak_was_seen_or_ruled_out():
    auc = {(0.51, 0.53): "leak", (0.5, 0.59): "none", (0.5, 0.6): "unknown", (0.7, math.nan): "unknown"}
    assert {ends: judged("AUC", *ends) for ends in auc} == auc
    assert (judged("AMI", -0.01, 0.19), judged("macro AUC", 0.5, 1.0)) == ("none", "unknown")


@pytest.mark.parametrize("text", ["", "leak_auc", "leak_auc=", "leak=0.5", "leak_auc=x", "leak_auc=nan", "leak_auc=1.1"])
def test_what_is_no_threshold_is_refused_in_a_line(text):
    with pytest.raises(UserError, match=r"^--fail-above.*\Z"):
        Gate.parse(text)


def test_the_documentation_has_every_key():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "audit.md").read_text()
    assert all(f"`{key}`" in page for key in KEYS)


def test_as_many_digits_as_show_which_is_larger():
    pairs = {(0.95, 0.746): ("0.950", "0.746"), (0.6, 0.7): ("0.600", "0.700"), (0.7, 0.7): ("0.700", "0.700")}
    pairs |= {(1.0, 0.9999): ("1.0000", "0.9999"), (1.0, 1 - 7.7e-13): ("1", "1 - 7.7e-13")}
    assert {pair: distinct_rounding(*pair) for pair in pairs} == pairs
