"""A run in a few words: leak and test AUC, or what was rebuilt."""

import pytest

from vflbench.report.run_line import run_line

WORST = {"figure": "AUC", "value": 0.9123, "attack": "norm", "layer": "f4"}


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        ({"verdict": {"worst": WORST}, "test_auc": 0.788}, "leak AUC 0.912 (norm at layer f4), test AUC 0.788"),
        (
            {"verdict": {"worst": WORST | {"value": 0.99996}}, "test_auc": 1.0},
            "leak AUC 1.00 (norm at layer f4), test AUC 1.00",
        ),
        (
            {"verdict": {"worst": WORST | {"figure": "AMI"}}, "test_auc": None},
            "leak AMI 0.912 (norm at layer f4), test AUC undefined",
        ),
        (
            {"verdict": {"worst": WORST | {"party": "b"}}, "leaks": [{"party": p, "visible": True} for p in "ab"]},
            "leak AUC 0.912 (norm at party b's layer f4), test AUC undefined",
        ),
        (
            {"verdict": {"worst": WORST}, "leaks": [{"party": "a", "visible": True}, {"party": "label", "visible": False}]},
            "leak AUC 0.912 (norm at layer f4), test AUC undefined",
        ),
        ({"test_auc": 0.75}, "test AUC 0.750"),
        ({"verdict": None, "reconstructions": None, "test_auc": 0.75}, "test AUC 0.750"),
    ],
)
def test_leak_and_test_auc_stand_side_by_side(summary, text):
    assert run_line(summary) == text


def test_what_was_rebuilt_is_that_of_messages_and_the_strongest():
    def entry(attack, message, **figures):
        return {"attack": attack, "message": message, "figures": {name: {"mean": value} for name, value in figures.items()}}

    entries = [
        entry("a", "update", entries_right=0.5),
        entry("b", "update", entries_right=1.0),
        entry("a", "none", entries_right=0.99),
    ]
    assert run_line({"reconstructions": entries, "test_auc": 0.9}) == "100 % of the entries rebuilt (b), test AUC 0.900"
