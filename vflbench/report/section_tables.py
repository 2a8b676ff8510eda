"""The open tables of a section: headline numbers, settings, and comparisons with undefended and honest runs."""

import math
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.by import by_tables
from vflbench.report.detail_tables import details
from vflbench.report.extras import extra_tables
from vflbench.report.groups import Group, paired
from vflbench.report.score import BETA, COIN, TOLERABLE, dcs_of, utility_at_tolerable_leak
from vflbench.report.sections import Section
from vflbench.report.verdict_table import verdicts
from vflbench.results import quantity
from vflbench.results.table_formats import Table


def tables(section: Section, *published: Table) -> list[Table]:
    """Those that have rows. published: tables of published values, which follow the comparisons."""
    first = [verdicts(section)]
    if not all(run.is_audit for run in section.runs):  # audits have no utility to weigh a leak against
        first += [headlines(section), settings(section), honest(section), differences(section)]
    made = (*first, *by_tables(section), *extra_tables(section), *published, attacks(section))
    return [table for table in (*made, *details(section)) if table.rows]


def headlines(section: Section) -> Table:
    """One line per defense, and per adversary that it faces, if an attack was scored."""
    x, y, layer = section.utility, section.leak, section.layer
    by_defense: dict[str, list[Group]] = {}
    for group in section.groups:
        name = group.defense if group.adversary == "none" else f"{group.defense}, adversary {group.adversary}"
        by_defense.setdefault(name, []).append(group)
    rows = []
    for defense, groups in by_defense.items():
        of_auc = y == "leak_auc"
        best = utility_at_tolerable_leak(groups, x, y, layer) if of_auc else None
        leaks = [(g.interval(y, layer), g.worst_attack(y, layer)) for g in groups]
        leaks = [pair for pair in leaks if not math.isnan(pair[0].mean)]
        worst = max(leaks, key=lambda pair: pair[0].mean, default=None)
        scores = [(_dcs(section, g)[0], g) for g in groups]
        scores = [pair for pair in scores if not math.isnan(pair[0].mean)]
        top = max(scores, key=lambda pair: pair[0].mean, default=None)
        tolerable: list[Any] = [None, "no setting" if of_auc else None, None]
        if best:
            tolerable = [best.utility, best.group.name, "yes" if best.surely else "no"]
        leak = [worst[1] or None, worst[0]] if worst else [None, None]
        scored = [top[0], top[1].name] if top else [None, "no undefended run to compare" if of_auc else None]
        if worst or top:
            rows.append([defense, len(groups), sum(len(g.runs) for g in groups), *tolerable, *leak, *scored])
    columns = (
        *("defense", "settings", "runs", f"{quantity.title(x)} at leak <= {TOLERABLE}", f"setting with leak <= {TOLERABLE}"),
        *(
            "leak surely below",
            "worst attack",
            f"its {section.titled(y, plain=True)}",
            f"best DCS (beta {BETA})",
            "setting with best DCS",
        ),
    )
    note = (
        f"The largest mean utility among the settings whose mean leak to the worst attack, {section.where}, is at most "
        f"{TOLERABLE}. Surely: the upper end of the leak's interval is at most {TOLERABLE} as well. The worst attack is the "
        "one with the largest mean leak in any setting of the defense. References do not count. "
        "The levels of knowledge are kept apart in the table above."
    )
    return Table(f"{section.slug}_headlines", "Headline numbers", columns, rows, note)


def settings(section: Section) -> Table:
    """One line per setting."""
    x, y, layer = section.x, section.y, section.layer
    rows = []
    for g in section.groups:
        score, pairs = _dcs(section, g)
        interval, attack = g.interval(y, layer), g.worst_attack(y, layer)
        ends = [ceiling(g, "one_message"), ceiling(g, "all_messages")]
        values = [quantity.value(run, f"leak_distance:{attack}", layer) for run in g.runs] if attack else []
        distance = over_runs(values, range_of("leak_distance"))
        rows.append([g.name, len(g.runs), g.interval(x, layer), interval, attack or None, distance, *ends])
        rows[-1] += [score, pairs or None]
    columns = (
        *("setting", "runs", quantity.title(x), section.titled(y, plain=True), "worst attack"),
        *("|leak AUC - 0.5|", "ceiling, one message", "ceiling, all messages", f"DCS (beta {BETA})", "runs in DCS"),
    )
    note = (
        f"Leaks {section.where}: mean (95 % t-interval over seeds). Fewer than three runs have no interval. A ceiling is "
        f"what a defense promises for one run.{quantity.assumptions(section.runs)}"
    )
    old = sum(not run.layers.recorded for run in section.runs)
    if old and layer is None:
        note += (
            f" {old} of {len(section.runs)} runs were made by an older version, which does not record the cut layers: for "
            "these it is the last layer that an attacker sees."
        )
    return Table(f"{section.slug}_settings", "Settings", columns, rows, note)


def honest(section: Section) -> Table:
    """Settings with an adversary beside the honest runs that they keep."""
    x, y, layer = section.x, section.y, section.layer
    rows = []
    for g in section.groups:
        if g.adversary == "none":
            continue
        beside = g.honest or Group((), "")
        values = [beside.interval(x, layer), beside.interval(y, layer)] if beside.runs else [None, None]
        attacks = [g.worst_attack(y, layer) or None, (beside.worst_attack(y, layer) or None) if beside.runs else None]
        changes = [paired(g, beside, name, layer) if beside.runs else (None, 0) for name in (x, y)]
        row = [g.name, g.adversary, max(pairs for _, pairs in changes), g.interval(x, layer), values[0], changes[0][0]]
        rows.append([*row, g.interval(y, layer), attacks[0], values[1], attacks[1], changes[1][0]])
    utility, leak = quantity.title(x), section.titled(y, plain=True)
    columns = (
        *("setting", "adversary", "pairs", utility, f"{utility}, honest", f"change of {utility}"),
        *(leak, "worst attack", f"{leak}, honest", "worst attack, honest", "change of the leak"),
    )
    note = (
        f"Leaks {section.where}. An adversary deviates from the protocol; the honest run has the same options and seed "
        "without it. Change: run with the adversary minus honest run, mean (95 % t-interval over pairs)."
    )
    return Table(f"{section.slug}_honest", "Adversaries beside honest runs", columns, rows, note)


def differences(section: Section) -> Table:
    """Paired with the undefended run of the same seed."""
    rows = []
    for g in section.groups:
        baseline = section.baseline(g)
        if baseline is None or baseline is g:
            continue
        utility, pairs = paired(g, baseline, section.x, section.layer)
        leak, leak_pairs = paired(g, baseline, section.y, section.layer)
        if pairs or leak_pairs:
            rows.append([g.name, baseline.name, pairs, utility, leak_pairs, leak])
    change = f"change of {quantity.title(section.x)}"
    columns = ("setting", "beside", "pairs", change, "pairs with a leak", "change of the worst leak")
    note = (
        "Setting minus undefended run with the same seed and all other options equal: mean (95 % t-interval over pairs). "
        "Undefended: no defense, or one that changes nothing (alpha_d = 0, sumKL = inf)."
    )
    return Table(f"{section.slug}_differences", "Beside the undefended run with the same seed", columns, rows, note)


def attacks(section: Section) -> Table:
    """Every attack's leak in every setting, at the layer of the plane."""
    names = section.attacks()
    references = [a for a in _references(section) if a not in names]
    head = section.y if section.y in quantity.LEAKS else "leak_auc"
    if not [*names, *references] or all(
        math.isnan(_mean(g, f"{head}:{a}", section).mean) for g in section.groups for a in names
    ):
        return Table(f"{section.slug}_attacks", "", (), [])
    rows = [
        [g.name, len(g.runs), *(_mean(g, f"{head}:{a}", section) for a in (*names, *references))] for g in section.groups
    ]
    levels = _levels(section)
    columns = (
        *("setting", "runs", *(f"{name}, {levels[name]}" if name in levels else name for name in names)),
        *(f"{name}, reference" for name in references),
    )
    what = quantity.plain_title(head)
    note = f"{what} {section.where}. Reference: the probe, and attacks on a party's own columns." * bool(rows)
    return Table(f"{section.slug}_attacks", f"Every attack: {what}", columns, rows, note)


def _dcs(section: Section, group: Group) -> tuple[OverRuns, int]:
    """Only of leak AUC: for other leaks it is not defined what an attack that guesses reaches."""
    baseline = section.baseline(group) if section.leak == "leak_auc" else None
    return dcs_of(group, baseline, section.utility, section.leak, section.layer)


def dcs_sentence() -> str:
    return (
        f"DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)² + beta (MP - MP*)²)) with beta = {BETA}, after VFLAIR (Zou et al., "
        f"ICLR 2024). Here AP is the leak AUC that the worst attack reads, AP* = {COIN} that of a coin, MP the test AUC, "
        "and MP* the test AUC of the undefended run with the same seed. A defense that stops the attack and costs nothing "
        "has DCS = 1. As in the paper, the distance has no sign: a model better than the undefended one has DCS < 1 too."
    )


def _mean(group: Group, name: str, section: Section) -> OverRuns:
    values = [quantity.value(run, name, section.layer) for run in group.runs]
    return over_runs(values, range_of(name))


def _levels(section: Section) -> dict[str, str]:
    """Label of an attack -> its level, of runs that record it."""
    runs = [run for run in section.runs if run.threats]
    return {quantity.label(leak): quantity.level(leak, run) for run in runs for leak in quantity.leaks(run)}


def _references(section: Section) -> list[str]:
    return list(dict.fromkeys(a for r in section.runs for a in quantity.by_attack(r, reference=True)))


def ceiling(group: Group, messages: str) -> float:
    """The highest `quantity.ceiling` among the runs of a group; nan without a promise."""
    heights = [quantity.ceiling(run, messages) for run in group.runs]
    return max((h for h in heights if not math.isnan(h)), default=math.nan)
