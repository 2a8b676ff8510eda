"""The terminal's lines on attacks: the worst, where it is above a ceiling that does not bound it, those of a plug-in."""

import math
from collections.abc import Mapping
from typing import Any

from vflbench.report.plain_numbers import auc_text
from vflbench.report.verdict_lines import LABEL_PRIVACY
from vflbench.report.verdict_sentence import needs
from vflbench.report.worst_reading import WORST_OF_ALL, at_the_cut, message_at, read_by, says_nothing
from vflbench.results import quantity
from vflbench.results.levels import base_name
from vflbench.results.read import read_config
from vflbench.results.runs import Run


def attack_line(worst: Mapping[str, Any], run: Run) -> str:
    """`norm on gradients at layer f4, AUC 0.912 (the worst of all: 0.89 to 0.93); at the cut, f5, 0.907; needs no label`.

    The interval holds for the worst of all readings, whichever it is (`metrics.verdict.worst`), not for this attack alone.
    """
    low, high = worst.get("low"), worst.get("high")
    ends = "one batch, no interval" if low is None or high is None else f"{WORST_OF_ALL} {low:.2f} to {high:.2f}"
    if low is not None and high is not None and says_nothing(worst["figure"], low, high):
        ends = "too few batches for an interval"
    cut, there = at_the_cut(worst, run)
    named = "the cut" if cut == "cut" else f"the cut, {cut}"
    beside = f"; at {named}, {three(there)}" if cut not in ("", worst["layer"]) else ""
    return f"{worst['attack']} on {message_at(worst, run)}, {figure_text(worst)} ({ends}){beside}; {_needs(worst, run)}"


def _needs(worst: Mapping[str, Any], run: Run) -> str:
    """`needs no label`, `knows 100 labels`."""
    text = needs(str(worst["attack"]), run).removeprefix("it ")
    threat = run.threats.get(str(worst["attack"])) or run.threats.get(base_name(str(worst["attack"]))) or {}
    rows = threat.get("known_rows") or 0
    return text.replace(f"the labels of {rows} rows", f"{rows} labels")


def above_label_privacy(worst: Mapping[str, Any], run: Run) -> list[str]:
    """That an AUC above the ceiling of label privacy is no alarm: it bounds what messages add, and features tell labels too.

    Empty where the AUC does not look higher than the lowest such ceiling for all messages.
    """
    promises = {name: one for name, one in (run.summary.get("guarantees") or {}).items() if one}
    heights = {
        name: quantity.number(one.get("leak_auc_all_messages"))
        for name, one in promises.items()
        if one.get("bounds") == LABEL_PRIVACY
    }
    known = {name: height for name, height in heights.items() if not math.isnan(height)}
    if worst["figure"] != "AUC" or not known:
        return []
    name = min(known, key=known.__getitem__)
    read = quantity.number(worst["value"])
    value, ceiling = three(read), f"{known[name]:.3f}"
    if math.isnan(read) or not float(value) > float(ceiling):
        return []
    return [f"{value} is above {name}'s {ceiling}: no alarm, as features tell labels too"]


def own_lines(run: Run, worst: Mapping[str, Any]) -> list[str]:
    """`loudest on gradients at the cut, AUC 0.874`: where each attack of a plug-in reads most, but for the worst of all."""
    if not run.manifest.get("plugins"):
        return []
    attacks = (run.config or read_config(run.folder)).get("attack") or {}
    targets = {name: str((options or {}).get("_target_", "")) for name, options in attacks.items()}
    found: dict[str, dict[str, Any]] = {}
    for leak in quantity.leaks(run):
        name, value = str(leak["attack"]), read_by(leak, worst["figure"])
        is_own = name != worst["attack"] and not targets.get(name, "vflbench.").startswith("vflbench.")
        if is_own and leak.get("visible") and value > found.get(name, {"value": -math.inf})["value"]:
            found[name] = {**leak, "figure": worst["figure"], "value": value}
    return [f"{name} on {message_at(one, run)}, {figure_text(one)}" for name, one in found.items()]


def figure_text(one: Mapping[str, Any]) -> str:
    """`AUC 0.912`."""
    return f"{one['figure']} {three(quantity.number(one['value']))}"


def three(value: float) -> str:
    """Three digits; more where the value would look like 1.00 without being 1."""
    return f"{value:.3f}" if value <= 0.9995 else auc_text(value)
