"""The worst reading of a run's verdict: where it is, what its attacker knows, and how leaks compare with it."""

import math
from collections.abc import Mapping
from typing import Any

from vflbench.results import quantity
from vflbench.results.levels import LEVELS, knowledge
from vflbench.results.runs import Run

WORST_OF_ALL = "the worst of all:"
"""Before the interval of a verdict: it belongs to the worst reading, whichever it is, not to the attack that is named."""
WHAT = ("attack", "message", "party")
COIN = {"AUC": 0.5, "macro AUC": 0.5, "AMI": 0.0}
FIGURES = {"AUC": "leak_auc", "macro AUC": "leak_macro_auc", "AMI": "leak_ami"}


def worst_of(run: Run) -> Mapping[str, Any]:
    worst: Mapping[str, Any] = verdict_of(run)["worst"]
    return worst


def verdict_of(run: Run) -> Mapping[str, Any]:
    verdict: Mapping[str, Any] = run.summary["verdict"]
    return verdict


def message_at(worst: Mapping[str, Any], run: Run) -> str:
    """`gradients at the cut`; the party is named where several might have read it."""
    return f"{worst['message']}s {place_of(worst, run)}"


def at_the_cut(worst: Mapping[str, Any], run: Run) -> tuple[str, float]:
    """(the cut layer, what the same attack reads of the same messages there), where it reads most; nan if it wasn't read."""
    cut = run.layers.cut.get(str(worst["party"]), ())
    there = [
        (read_by(leak, worst["figure"]), str(leak["layer"]))
        for leak in quantity.leaks(run)
        if leak["layer"] in cut and all(leak.get(key) == worst[key] for key in WHAT)
    ]
    value, layer = max((one for one in there if not math.isnan(one[0])), default=(math.nan, ""))
    return layer, value


def read_by(leak: Mapping[str, Any], figure: str) -> float:
    """What a leak comes to in terms of a figure of the verdict; nan where it is not defined."""
    return _folded(quantity.leak_value(leak, FIGURES[figure]), figure)


def says_nothing(figure: str, low: float, high: float) -> bool:
    """Whether an interval holds every value that the figure can have."""
    return low <= COIN[figure] and high >= 1.0


def knows_words(attack: str, run: Run) -> str:
    """What an attack knows of the labels beside the messages, for a parenthesis: `with 100 known labels`, or empty."""
    text = knowledge(attack, run.threats)
    return "" if text == "without labels" else text.replace("actively", "by cheating")


def place_of(worst: Mapping[str, Any], run: Run) -> str:
    party, layer = str(worst["party"]), str(worst["layer"])
    whose = f"party {party}'s " if len(run.layers.cut) > 1 else ""
    return f"at {whose or 'the '}cut" if layer in run.layers.cut.get(party, ()) else f"at {whose}layer {layer}"


def counts(leak: Mapping[str, Any], run: Run) -> bool:
    return bool(leak.get("visible")) and leak["message"] != quantity.NO_MESSAGE and quantity.level(leak, run) in LEVELS


def _folded(value: float, figure: str) -> float:
    return max(value, 1 - value) if figure == "macro AUC" and not math.isnan(value) else value
