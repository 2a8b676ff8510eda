"""The first table of a section: per setting test AUC, the worst attack at each level, and what references read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.groups import Group, options_key
from vflbench.report.sections import Section
from vflbench.report.words import LABEL_PRIVACY, exceeded, over_seeds
from vflbench.results import quantity
from vflbench.results.levels import LEVELS, PROBE
from vflbench.results.provenance import apart, rounding
from vflbench.results.runs import Run
from vflbench.results.schema import Reading
from vflbench.results.table_formats import Table

_LEVEL_TITLES = dict(zip(LEVELS, ("without labels", "with known labels", "active"), strict=True))
_REFERENCES = {PROBE: "probe, reference", "own columns": "own columns, reference"}


def verdicts(section: Section) -> Table:
    """One line a setting. Leaks of all layers that an attacker sees."""
    levels = [level for level in LEVELS if any(level_reading(run, level) for run in section.runs)]
    references = [name for name in _REFERENCES if any(_reference(run, name) for run in section.runs)]
    if not levels:
        return Table(f"{section.slug}_verdicts", "", (), [])
    beside = [level for level in levels if any(leaves_the_worst(run, level) for run in section.runs)]
    fallen = any(_falls(run) for run in section.runs)
    is_known = any(group.values(section.utility, section.layer) for group in section.groups)
    rows = []
    for group in section.groups:
        cells: list[Any] = [group.name, len(group.runs)]
        cells += [group.interval(section.utility, section.layer)] if is_known else []
        cells += [_fall(group)] if fallen else []
        for level in levels:
            cells += _worst([level_reading(run, level) for run in group.runs])
        cells += [over_seeds([_reference(run, name) for run in group.runs]) for name in references]
        for level in beside:
            cells += _worst([reading_of_changed(run, level) for run in group.runs])
        rows.append(cells)
    columns = ["setting", "runs", *([quantity.title(section.utility)] if is_known else [])]
    columns += ["falls to"] if fallen else []
    for level in levels:
        knows = _LEVEL_TITLES[level]
        columns += [f"worst attack, {knows}", f"its leak AUC, {knows}"]
    columns += [_REFERENCES[name] for name in references]
    for level in beside:
        knows = _LEVEL_TITLES[level]
        columns += [f"worst attack on changed messages, {knows}", f"its leak AUC on changed messages, {knows}"]
    note = (
        "Its leak at any layer that an attacker sees; of several seeds the mean of each seed's worst. Leak AUC: max(a, 1 - "
        "a) of the mean over batches or, if larger, what an attack reaches if it knows in each batch which end is "
        "positive, less what a coin reaches. Changed messages: those that the defense changes, where a run's worst attack "
        "reads others; if it reads these, it is the worst here too. The interval is that of the worst of all attacks, "
        "layers and directions, whichever it is (95 %, Bonferroni): from the highest low end to the highest high end of "
        "all of them. It is not that of the named attack alone, which table.txt of a run has; over several seeds it "
        "reaches from the lowest low end to the highest high end. References are no attacks: the probe is trained on the "
        "labels of half of the rows, own columns are read without any message. A defense falls where a leak is surely "
        "above the ceiling that it promises or, without a ceiling, where an attack on messages that it changes is surely "
        "as good as the model: within 0.05 of its test AUC, and above 0.55."
    )
    return Table(
        f"{section.slug}_verdicts", "Verdict: the worst attack at each level of knowledge", tuple(columns), rows, note
    )


def not_averaged(groups: Sequence[Group]) -> list[str]:
    """A sentence on rows that have the same options and yet are several, and one on rows that average over versions."""
    by_options: dict[str, list[Group]] = {}
    for g in groups:
        by_options.setdefault(options_key(g.config, ("seed",)), []).append(g)
    made = [
        f"{those[0].name.removesuffix(f', {those[0].made_by}')}: its runs are in {len(those)} rows, not averaged, as they "
        f"differ in {apart([g.runs[0] for g in those])}."
        for those in by_options.values()
        if len(those) > 1
    ]
    averaged = [(g.name, rounding(g.runs)) for g in groups]
    return made + [
        f"{name}: averaged over {versions}, which may round differently." for name, versions in averaged if versions
    ]


def alarms(section: Section) -> list[tuple[str, bool]]:
    """(sentence, whether it is an alarm): rows of several versions; leaks above a defense's ceiling, the strongest run's."""
    made = [(line, False) for line in not_averaged(section.groups)]
    for group in section.groups:
        worst: dict[str, tuple[float, str, bool]] = {}
        for run in group.runs:
            for name, promise in (run.summary.get("guarantees") or {}).items():
                if promise and promise.get("exceeded"):
                    value = promise["exceeded"][0]["value"]
                    line = f"{group.name}: {exceeded(name, promise, run)}."
                    worst[name] = max(worst.get(name, (-1.0, "", False)), (value, line, promise["bounds"] != LABEL_PRIVACY))
        made += [(line, is_alarm) for _, line, is_alarm in worst.values()]
    return made


def _reference(run: Run, name: str) -> Reading | None:
    return run.summary.verdict.references.get(name)


def _worst(readings: list[Mapping[str, Any] | None]) -> list[Any]:
    """The attacks by their names, and what they read."""
    given = [one for one in readings if one]
    names = Counter(quantity.label(one) + (f" ({one['figure']})" if one["figure"] != "AUC" else "") for one in given)
    return [", ".join(name for name, _ in names.most_common()) or None, over_seeds(readings)]


def _falls(run: Run) -> Mapping[str, Any] | None:
    verdict = run.summary.get("verdict")
    return verdict.get("falls") if isinstance(verdict, Mapping) else None


def _fall(group: Group) -> str | None:
    falls = [fall for fall in map(_falls, group.runs) if fall]
    if not falls:
        return None
    names = Counter(quantity.label(fall) for fall in falls)
    often = f" ({len(falls)} of {len(group.runs)} runs)" if len(falls) < len(group.runs) else ""
    return ", ".join(name for name, _ in names.most_common()) + often


def level_reading(run: Run, level: str) -> Reading | None:
    """The worst attack of a run at a level."""
    return run.summary.verdict.levels.get(level)


def leaves_the_worst(run: Run, level: str) -> bool:
    """Whether the worst attack of a level reads messages that the defense leaves as they are."""
    return level in run.summary.verdict.on_changed


def reading_of_changed(run: Run, level: str) -> Reading | None:
    """The worst attack of a level on messages that the defense changes: the worst of all where that reads such messages.

    None where no attack of the level read such messages.
    """
    verdict = run.summary.verdict
    worst = verdict.levels.get(level)
    if worst is None or level in verdict.on_changed:
        return verdict.on_changed.get(level)
    return worst if worst.message in verdict.changed else None
