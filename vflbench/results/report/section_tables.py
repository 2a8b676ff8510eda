"""The tables of a section: its headline numbers, its settings, and what sets them apart."""

import math

from vflbench.numerics.interval import Interval, mean_interval
from vflbench.results.report import quantity
from vflbench.results.report.charts import ceiling
from vflbench.results.report.detail_tables import details, finite
from vflbench.results.report.groups import Group, bounded, paired
from vflbench.results.report.score import BEARABLE, BETA, COIN, dcs_of, utility_at_bearable_leak
from vflbench.results.report.sections import Section
from vflbench.results.report.tables import Table


def tables(section: Section) -> list[Table]:
    """Those that have rows."""
    made = (headlines(section), settings(section), differences(section), attacks(section), *details(section))
    return [table for table in made if table.rows]


def headlines(section: Section) -> Table:
    """One line a defense, and one for all."""
    x, y, layer = section.utility, section.leak, section.layer
    by_defense: dict[str, list[Group]] = {}
    for group in section.groups:
        by_defense.setdefault(group.defense, []).append(group)
    rows = []
    for defense, groups in by_defense.items():
        best = None if y != "leak_auc" else utility_at_bearable_leak(groups, x, y, layer)
        leaks = [(g.interval(y, layer), g.worst_attack(y, layer)) for g in groups]
        leaks = [pair for pair in leaks if not math.isnan(pair[0].mean)]
        worst = max(leaks, key=lambda pair: pair[0].mean, default=None)
        scores = [(_dcs(section, g), g) for g in groups]
        scores = [(score, g) for (score, _), g in scores if not math.isnan(score.mean)]
        top = max(scores, key=lambda pair: pair[0].mean, default=None)
        of_auc = y == "leak_auc"
        bearable = [None, "no setting" if of_auc else "no leak AUC", None]
        if best:
            bearable = [best.utility, best.group.name, "yes" if best.surely else "no"]
        learnt = [worst[1], worst[0]] if worst else [None, None]
        scored = [top[0], top[1].name] if top else [None, "no undefended run beside it" if of_auc else None]
        rows.append([defense, len(groups), sum(len(g.runs) for g in groups), *bearable, *learnt, *scored])
    columns = (
        *("defense", "settings", "runs", f"{quantity.title(x)} at leak <= {BEARABLE}", "with"),
        *("leak surely below", "worst attack", "its leak", f"best DCS (beta {BETA})", "with "),
    )
    note = (
        f"The best mean utility among settings whose mean leak to the worst attack {section.where} is {BEARABLE} at most; "
        "surely: the upper end of its interval is as well. The worst attack is the one with the largest mean leak in any "
        "setting of the defense; attacks that look at no message are a reference, and don't count."
    )
    return Table(f"{section.slug}_headlines", "Headline numbers", columns, rows, note)


def settings(section: Section) -> Table:
    """One line a setting."""
    x, y, layer = section.x, section.y, section.layer
    rows = []
    for g in section.groups:
        score, pairs = _dcs(section, g)
        interval, attack = g.interval(y, layer), g.worst_attack(y, layer)
        ends = [ceiling(g, "one_message"), ceiling(g, "all_messages")]
        values = [quantity.value(run, f"leak_distance:{attack}", layer) for run in g.runs] if attack else []
        distance = bounded("leak_distance", mean_interval(finite(values)))
        rows.append([g.name, len(g.runs), g.interval(x, layer), interval, attack or None, distance, *ends, score, pairs])
    columns = (
        *("setting", "runs", quantity.title(x), quantity.title(y).replace(", worst attack", ""), "worst attack"),
        *("|leak AUC - 0.5|", "ceiling, one message", "ceiling, all messages", f"DCS (beta {BETA})", "runs in DCS"),
    )
    note = f"Leaks {section.where}: mean (95 % t-interval over seeds). One run has no interval. Ceilings hold for one run."
    return Table(f"{section.slug}_settings", "Settings", columns, rows, note)


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
    columns = ("setting", "beside", "pairs", f"change of {quantity.title(section.x)}", "pairs ", "change of the worst leak")
    note = (
        "Setting minus undefended run with the same seed and all else equal: mean (95 % t-interval over pairs). Undefended: "
        "no defense, or one that changes nothing (alpha_d = 0, sumKL = inf)."
    )
    return Table(f"{section.slug}_differences", "Beside the undefended run with the same seed", columns, rows, note)


def attacks(section: Section) -> Table:
    """Every attack's leak where the plane looks, in every setting."""
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
    columns = ("setting", "runs", *names, *(f"{name}, reference" for name in references))
    what = quantity.title(head).replace(", worst attack", "").replace(" of the worst attack", "")
    note = f"{what} {section.where}. Reference: what a party's own columns tell, with no message read." * bool(rows)
    return Table(f"{section.slug}_attacks", f"Every attack: {what}", columns, rows, note)


def _dcs(section: Section, group: Group) -> tuple[Interval, int]:
    """Of a leak AUC only: of other leaks nobody said what a coin reaches."""
    baseline = section.baseline(group) if section.leak == "leak_auc" else None
    return dcs_of(group, baseline, section.utility, section.leak, section.layer)


def dcs_sentence() -> str:
    return (
        f"DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)² + beta (MP - MP*)²)) with beta = {BETA}, after VFLAIR (Zou et al., "
        f"ICLR 2024). Our reading: AP is the two-sided leak AUC of the worst attack, AP* = {COIN}, a coin, MP the test AUC "
        "and MP* that of the undefended run with the same seed; 1 is a defense that stops the attack and costs nothing. The "
        "distance is taken as printed there: a model better than the undefended one is not at MP*."
    )


def _mean(group: Group, name: str, section: Section) -> Interval:
    values = [quantity.value(run, name, section.layer) for run in group.runs]
    return bounded(name, mean_interval(finite(values)))


def _references(section: Section) -> list[str]:
    return list(dict.fromkeys(a for r in section.runs for a in quantity.by_attack(r, reference=True)))
