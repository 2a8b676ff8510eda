"""Which defenses lower the leak of an undefended setting, whether their models are of use, and what to do next."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vflbench.report.groups import Group, settings_name
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.runs import Run

MOST_NAMED = 6
_COIN, _USEFUL = 0.5, 0.55
"""Test AUC of a coin, and from which on a model is called better than one."""
_PAGE = 'the how-to "Which defense should I use?"'
_OF_TRAINING = ("gradient", "embedding")
"""Messages that `defense=label_gdp` changes."""


def lowering(section: Section) -> list[str]:
    """A line for each undefended setting: the defenses with all else equal, that with the lowest reading first.

    Readings are of the worst attack at any layer that an attacker sees, means over seeds. Nothing where no defense was
    measured beside an undefended run of the same options and data.
    """
    lines = []
    for base, beside in _compared(section):
        without = f"{base.name}: {_words(base)}"
        lower = _lower(base, beside)
        higher = len(beside) - len(lower)
        if not lower:
            lines.append(f"None of the {len(beside)} settings of defenses that were measured here lowers it ({without}).")
            continue
        named = "; ".join(f"{name}: {_words(g)}" for name, g in zip(_names(lower), lower[:MOST_NAMED], strict=False))
        more = f"; {len(lower) - MOST_NAMED} more are in the table" if len(lower) > MOST_NAMED else ""
        rest = f". {higher} of {len(beside)} measured settings {'does' if higher == 1 else 'do'} not" if higher else ""
        lines.append(f"What lowers it, as measured here on the same data: {named}{more}. Without: {without}{rest}.")
    return lines


def next_step(section: Section) -> list[str]:
    """A line on what to try, where an undefended setting leaks and no measured defense lowers that with a useful model."""
    bases = [g for g in section.groups if (g.undefended or all(run.is_audit for run in g.runs)) and _leaks(g)]
    if not bases:
        return []
    if all(run.is_audit for g in bases for run in g.runs):
        return [
            "What to do next: messages that were recorded can't be defended afterwards. Train again with a defense, record "
            f"and audit that training, and compare both audits on a page of vflbench report. {_PAGE[:1].upper()}{_PAGE[1:]} "
            "says which to try first: of a model that vflbench trains, defense=label_gdp."
        ]
    compared = list(_compared(section))
    if any(_is_useful(g) for base, beside in compared for g in _lower(base, beside)):
        return []
    tried = {name for g in section.groups for name in g.config.get("defense") or {}}
    how = f"{_PAGE} compares the defenses"
    try_it = ""
    if "label_gdp" not in tried and all(_worst(run)["message"] in _OF_TRAINING for g in bases for run in g.runs):
        try_it = "; to try one, add defense=label_gdp to the command of this run"
    why = "no defense was tried here"
    if tried:
        why = "no defense that was tried here is compared with an undefended run of the same options"
    if compared:
        lowers = any(_lower(base, beside) for base, beside in compared)
        why = "no defense that lowers it here keeps a useful model" if lowers else "no defense that was tried here lowers it"
    return [f"What to do next: {why}; {how}{try_it}."]


def _compared(section: Section) -> Iterator[tuple[Group, list[Group]]]:
    """Each undefended setting with the defended ones of the same data and options, if there are any."""
    for base in section.groups:
        if base.undefended and _is_auc(base):
            beside = [g for g in section.groups if g is not base and _is_auc(g) and section.baseline(g) is base]
            beside = [g for g in beside if not g.undefended and _data(g) == _data(base)]
            if beside:
                yield base, beside


def _names(groups: list[Group]) -> list[str]:
    """Their defenses with options: all else is as in the setting that they are compared with. In full where that is not."""
    names = [settings_name(g, {k: v for k, v in g.options.items() if k.startswith("defense")}) for g in groups]
    return names if len(set(names)) == len(names) else [g.name for g in groups]


def _lower(base: Group, beside: list[Group]) -> list[Group]:
    return sorted((g for g in beside if _reading(g) < _reading(base)), key=_reading)


def _leaks(group: Group) -> bool:
    """Whether an attack reads more than a coin in each run, as far as its interval says."""
    coins = {"AUC": 0.5, "macro AUC": 0.5, "AMI": 0.0}
    worsts = [_worst(run) for run in group.runs]
    return all(w and not quantity.number(w.get("low")) <= coins.get(str(w.get("figure")), 0.5) for w in worsts)


def _is_useful(group: Group) -> bool:
    """Whether its model is not known to be as bad as a coin."""
    return not group.interval("test_auc").mean < _USEFUL


def _words(group: Group) -> str:
    """`AUC 0.60 with test AUC 0.70`, or that the model behind it is no better than a coin."""
    auc, text = group.interval("test_auc"), f"AUC {_reading(group):.2f}"
    if math.isnan(auc.mean):
        return text
    if auc.mean < _USEFUL:
        how = "hardly" if auc.low > _COIN else "no"
        return f"{text}, but its model is {how} better than a coin (test AUC {auc.mean:.2f})"
    if auc.low <= _COIN:
        between = f"{auc.low:.2f} to {auc.high:.2f}"
        return f"{text}, but its model may be no better than a coin (test AUC {auc.mean:.2f}, {between})"
    return f"{text} with test AUC {auc.mean:.2f}"


def _worst(run: Run) -> Mapping[str, Any]:
    verdict = run.summary.get("verdict")
    return (verdict.get("worst") if isinstance(verdict, Mapping) else None) or {}


def _is_auc(group: Group) -> bool:
    return all(_worst(run).get("figure") == "AUC" for run in group.runs)


def _reading(group: Group) -> float:
    return math.fsum(_worst(run)["value"] for run in group.runs) / len(group.runs)


def _data(group: Group) -> set[str]:
    return {str((run.manifest.get("data") or {}).get("fingerprint")) for run in group.runs}
