"""The verdict of a section of a page: the sentence on its worst run, and which of the measured defenses lower it."""

import math
from collections.abc import Mapping
from typing import Any

from vflbench.results.report import quantity
from vflbench.results.report.groups import Group
from vflbench.results.report.sections import Section
from vflbench.results.report.verdict_sentence import verdict_block
from vflbench.results.runs import Run

MOST_DEFENSES = 6


def section_verdict(section: Section) -> list[str]:
    """The first lines of a section. Empty if its runs are of an older version, which records no worst attack."""
    runs = [run for run in section.runs if verdict_block(run)]
    if not runs:
        return []
    first = max(runs, key=_strength)
    sentence, *rest = verdict_block(first)
    if len(section.runs) > 1:
        group = next(group for group in section.groups if any(run is first for run in group.runs))
        sentence = f"{sentence} That is the worst of {len(runs)} runs: {group.name}, seed {first.seed}."
    return [sentence, *lowering(section), *rest]


def lowering(section: Section) -> list[str]:
    """A line for each undefended setting: the defenses with all else equal, that with the lowest reading first.

    Readings are of the worst attack at any layer that an attacker sees, means over seeds. Nothing where no defense was
    measured beside an undefended run of the same options and data.
    """
    lines = []
    for base in section.groups:
        if not base.undefended or not _is_auc(base):
            continue
        beside = [g for g in section.groups if g is not base and _is_auc(g) and section.baseline(g) is base]
        beside = [g for g in beside if not g.undefended and _data(g) == _data(base)]
        if not beside:
            continue
        before, without = _reading(base), f"{base.name}: {_words(base)}"
        lower = sorted((g for g in beside if _reading(g) < before), key=_reading)
        higher = len(beside) - len(lower)
        if not lower:
            lines.append(f"None of the {len(beside)} settings of defenses that were measured here lowers it ({without}).")
            continue
        named = "; ".join(f"{g.name}: {_words(g)}" for g in lower[:MOST_DEFENSES])
        more = f"; {len(lower) - MOST_DEFENSES} more are in the table" if len(lower) > MOST_DEFENSES else ""
        rest = f". {higher} of {len(beside)} measured settings {'does' if higher == 1 else 'do'} not" if higher else ""
        lines.append(f"What lowers it, as measured here on the same data: {named}{more}. Without: {without}{rest}.")
    return lines


def _words(group: Group) -> str:
    auc = group.interval("test_auc").mean
    beside = "" if math.isnan(auc) else f" with test AUC {auc:.2f}"
    return f"AUC {_reading(group):.2f}{beside}"


def _worst(run: Run) -> Mapping[str, Any]:
    verdict = run.summary.get("verdict")
    return (verdict.get("worst") if isinstance(verdict, Mapping) else None) or {}


def _is_auc(group: Group) -> bool:
    return all(_worst(run).get("figure") == "AUC" for run in group.runs)


def _reading(group: Group) -> float:
    return math.fsum(_worst(run)["value"] for run in group.runs) / len(group.runs)


def _data(group: Group) -> set[str]:
    return {str((run.manifest.get("data") or {}).get("fingerprint")) for run in group.runs}


def _strength(run: Run) -> float:
    """How much its worst attack reads: 0 for a coin, 1 for the labels; -1 without one."""
    worst = _worst(run)
    value = quantity.number(worst.get("value"))
    if math.isnan(value):
        return -1.0
    return value if worst["figure"] == "AMI" else 2 * value - 1
