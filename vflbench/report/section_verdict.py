"""The first lines of a section of a page: a sentence on each defense, and what the reader of an audit must know."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.groups import Group
from vflbench.report.lowering import lowering, next_step
from vflbench.report.sections import Section
from vflbench.report.short_sentence import short_sentence
from vflbench.report.verdict_sentence import legend, verdict_block
from vflbench.results import quantity
from vflbench.results.runs import AS_RECORDED, Run

MOST_DEFENSES, MOST_BASES = 8, 3
NOBODY = "Without a defense"
_NAMES = {"none": NOBODY, AS_RECORDED: AS_RECORDED.capitalize()}


def defense_sentences(section: Section) -> list[tuple[str, str]]:
    """(defense, sentence), the undefended first, then the lowest leak first.

    Of the settings of a defense the one that leaks least is named, and how much all of them leak; without a defense the one
    that leaks most. Empty if the runs are of an older version, which records no worst attack.
    """
    by_defense: dict[str, list[Group]] = {}
    for group in section.groups:
        if short_sentence(group.runs):
            by_defense.setdefault(_title(group), []).append(group)
    chosen = [(name, groups, _chosen(groups, section)) for name, groups in by_defense.items()]
    chosen.sort(key=lambda one: (not one[0].startswith(NOBODY), _leak(one[2], section)))
    made = []
    for name, groups, group in chosen[:MOST_DEFENSES]:
        several = len(groups) > 1
        setting = f"{name}{group.name.removeprefix(group.defense)}" if several else name
        made.append((setting, f"{short_sentence(group.runs)}{_among(groups, name, section) if several else ''}"))
    if len(chosen) > MOST_DEFENSES:
        made.append((f"{len(chosen) - MOST_DEFENSES} more defenses", "they are in the tables below."))
    return made


def remarks(section: Section) -> list[str]:
    """Which defenses lower the leak; of one run or audit what was rebuilt, what was not run, notes; the next step."""
    then = next_step(section)
    if len(section.runs) > 1:
        lines = lowering(section)
        more = [f"{len(lines) - MOST_BASES} more undefended settings have defenses beside them: see the tables."]
        return [*lines[:MOST_BASES], *more * (len(lines) > MOST_BASES), *then]
    run = section.runs[0]
    worst = _worst(run)
    return [*(line for line in verdict_block(run)[1:] if not worst or line != legend(worst)), *then]


def _title(group: Group) -> str:
    name = _NAMES.get(group.defense, group.defense)
    return name if group.adversary == "none" else f"{name}, adversary {group.adversary}"


def _chosen(groups: Sequence[Group], section: Section) -> Group:
    known = [group for group in groups if not math.isnan(_leak(group, section))] or groups
    pick = max if all(group.defense == "none" for group in groups) else min
    return pick(known, key=lambda group: _leak(group, section))


def _among(groups: Sequence[Group], name: str, section: Section) -> str:
    """What all settings of the defense leak."""
    leaks = [f"{leak:.2f}" for leak in sorted(_leak(group, section) for group in groups) if not math.isnan(leak)]
    if not leaks:
        return ""
    what = _figure(groups) or quantity.title(section.leak).replace(", worst attack", "")
    where = name.lower() if name.startswith((NOBODY, _NAMES[AS_RECORDED])) else f"of {name}"
    is_all = len(leaks) == len(groups)
    some = (
        f"All {len(groups)} settings {where}" if is_all else f"{len(leaks)} of {len(groups)} settings {where} were attacked"
    )
    return f" {some}: {what} {' to '.join(dict.fromkeys((leaks[0], leaks[-1])))}."


def _worst(run: Run) -> Mapping[str, Any]:
    verdict = run.summary.get("verdict")
    return (verdict.get("worst") if isinstance(verdict, Mapping) else None) or {}


def _figure(groups: Sequence[Group]) -> str:
    """The figure of the worst attacks, if it is the same in all runs."""
    figures = {str(_worst(run).get("figure", "")) for group in groups for run in group.runs}
    return figures.pop() if len(figures) == 1 else ""


def _leak(group: Group, section: Section) -> float:
    """What the worst attack of any kind reads, mean over seeds; of runs without one, the leak of the section."""
    values = [quantity.number(_worst(run).get("value")) for run in group.runs]
    mean = math.fsum(values) / len(values)
    return group.interval(section.leak, section.layer).mean if math.isnan(mean) else mean
