"""The charts of a section: plane, sweeps, layers; those along the epochs are in `curves`."""

import math
from collections.abc import Sequence
from dataclasses import replace

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.epoch_plots import epoch_plots
from vflbench.report.extra_plots import extra_plots
from vflbench.report.figure import Figure
from vflbench.report.groups import Group, flatten
from vflbench.report.option_words import in_words, shown
from vflbench.report.palette import UTILITY
from vflbench.report.plot import Axis, Level, Plot, Point, Series, exact, is_drawn
from vflbench.report.plot_figure import figure_of
from vflbench.report.run_plots import run_plots
from vflbench.report.score import pareto
from vflbench.report.sections import MOST_LINES, Section, chosen, sweeps
from vflbench.results import quantity
from vflbench.results.layers import marked, merged_order
from vflbench.results.table_formats import slugged, text_of

MOST_ATTACKS = 4
MOST_SWEEPS = 4
_OF_REFERENCES = (
    " References are no attacks: the probe reads all messages and is trained on the labels of half of the rows, own columns "
    "are read without any message."
)
_TAG = 34
"""The most letters beside a mark."""
_APART = 0.04
"""Between the intervals of two lines of a sweep, whose values are 1 apart."""


def charts(section: Section) -> list[Figure]:
    """Those with at least one point."""
    runs = section.runs
    of_runs = run_plots(runs[0], section.slug) if len(runs) == 1 else [*layer_plots(section), *epoch_plots(section)]
    made = [plane(section), *sweep_plots(section), *extra_plots(section), *of_runs]
    return [figure_of(plot) for plot in made if plot is not None and any(map(is_drawn, plot.points()))]


def plane(section: Section) -> Plot | None:
    """Utility against leak: a mark per group, and the Pareto front through the groups that no other dominates."""
    x, y, layer = section.x, section.y, section.layer
    places = [(group, group.interval(x, layer), group.interval(y, layer)) for group in section.groups]
    places = [(g, a, b) for g, a, b in places if math.isfinite(a.mean + b.mean)]
    if not places:
        return None
    low = {"x_low": quantity.is_better_low(x), "y_low": quantity.is_better_low(y)}
    front = pareto([(a.mean, b.mean) for _, a, b in places], **low)
    defenses = list(dict.fromkeys(g.defense for g, _, _ in places))
    series = []
    if len(front) > 1:
        line = tuple(Point(exact(places[i][1].mean), exact(places[i][2].mean)) for i in front)
        series.append(Series("Pareto front", line, look=-1, line="dashed", marks=False))
    for look, defense in enumerate(defenses):
        points = []
        for place, (g, a, b) in enumerate(places):
            if g.defense == defense:
                attack = g.worst_attack(y, layer)
                leak = f"{section.titled(y)} {text_of(b)}{f', {attack}' if attack else ''}"
                tag = _tag(g, [other for other, _, _ in places]) if place in front or len(places) <= 10 else ""
                points.append(Point(a, b, f"{g.name}\n{quantity.title(x)} {text_of(a)}\n{leak}\n{g.count}", tag))
        series.append(Series(defense, tuple(points), look=look, line="none"))
    levels = (Level(0.5, "0.5, a coin"),) if y in ("leak_auc", "leak_two_sided", "leak_oriented", "leak_raw") else ()
    better = f"{'left' if low['x_low'] else 'right'} and {'low' if low['y_low'] else 'high'}"
    note = (
        f"Each mark is one setting: mean over its seeds with 95 % t-interval. The leak is that {section.where}, of the "
        f"attack with the largest mean. {better.capitalize()} is better. Hover over a mark for its name."
    )
    axes = Axis(section.titled(x)), Axis(section.titled(y))
    return Plot(f"{section.slug}_plane", "Privacy and utility", *axes, tuple(series), levels, note)


def _tag(group: Group, others: Sequence[Group]) -> str:
    """The options that distinguish it from the other groups with the same defense, which the legend names.

    Where they are too long, those with the most values come first, and as many as there is room for.
    """
    same = [flatten(g.config) for g in others if g.defense == group.defense]
    values = {key: len({str(leaves.get(key)) for leaves in same}) for key in group.options}
    keys = [key for key in group.options if values[key] > 1 and not key.startswith(("attack", "adversary"))]
    adversary = [f"adversary {group.adversary}"] if group.adversary != "none" else []
    parts = [*adversary, *in_words({key: group.options[key] for key in keys})]
    if len(", ".join(parts)) <= _TAG:
        return ", ".join(parts)
    keys.sort(key=lambda key: -values[key])
    parts = [*adversary, *in_words({key: group.options[key] for key in keys})]
    fitting = (", ".join(parts[:count]) for count in range(len(parts), 1, -1))
    return next((tag for tag in fitting if len(tag) <= _TAG), parts[0])


def sweep_plots(section: Section) -> list[Plot]:
    families = sweeps(section)[:MOST_SWEEPS]
    several = len({key for key, _, _ in families}) < len(families)
    return [
        _sweep(section, key, rest if several else "", members, place) for place, (key, rest, members) in enumerate(families)
    ]


def _sweep(section: Section, key: str, rest: str, members: Sequence[Group], place: int) -> Plot:
    """Utility and every attack's leak along one option, with the promised ceilings."""
    option = key.rsplit(".", 1)[-1]
    values = [shown(g.runs[0].option(key)) for g in members]
    head = section.y if section.y in quantity.LEAKS else "leak_auc"
    every = strongest(members, head, section.layer)
    attacks = every[:MOST_LINES]
    lines = [(quantity.title(section.x), section.x, -1)] + [(a, f"{head}:{a}", i) for i, a in enumerate(attacks)]
    references = dict.fromkeys(a for g in members for r in g.runs for a in quantity.by_attack(r, head, reference=True))
    lines += [(f"{a}, reference", f"{head}:{a}", 5) for a in references]
    series = []
    for label, name, look in lines:
        points = []
        for at, g in enumerate(members):
            interval = _of(g, name, section.layer)
            points.append(Point(exact(at), interval, f"{label}, {option} {values[at]}: {text_of(interval)}\n{g.count}"))
        is_reference = label.endswith(", reference")
        series.append(Series(label, tuple(points), look=look, line="dashed" if look < 0 else "solid", hollow=is_reference))
    series = [replace(one, shift=_APART * (i - (len(series) - 1) / 2)) for i, one in enumerate(series)]
    series += _ceilings(members, [f"{option} {value}" for value in values])
    ticks = tuple((float(i), value) for i, value in enumerate(values))
    slug = f"{section.slug}_along_{slugged(option)}" + (f"_{place + 1}" if rest else "")
    note = (
        f"Leaks {section.where}: means over seeds with 95 % t-intervals. Ceilings are what the defenses promise for one run."
    )
    note += _OF_REFERENCES * bool(references) + quantity.assumptions(run for g in members for run in g.runs)
    note += _of_all(attacks, every)
    note += f" Here: {rest}." * bool(rest)
    title = f"Along {option}" + (f": {rest}" if rest else "")
    title = title if len(title) <= 62 else f"{title[:60]}..."
    levels = (Level(0.5, "0.5, a coin"),) if "auc" in head else ()
    axes = Axis(key, ticks), Axis(f"{'AUC' if 'auc' in head else 'share'}, leaks {section.place}")
    return Plot(slug, title, *axes, tuple(series), levels, note)


def _of_all(drawn: Sequence[str], every: Sequence[str]) -> str:
    """How many attacks have no line or figure; nothing where all have one."""
    return f" Drawn are {len(drawn)} of {len(every)} attacks, those with the largest leaks." * (len(drawn) < len(every))


def _ceilings(members: Sequence[Group], places: Sequence[str]) -> list[Series]:
    """What the defenses promise, one line where one message and all have the same ceiling.

    The label says in how many runs what the ceiling assumes was found not to hold.
    """
    promises = [[p for p in (run.summary.get("guarantees") or {}).values() if p] for g in members for run in g.runs]
    promises = [those for those in promises if those]
    fails = sum(any(p.get("assumption_holds") is False for p in those) for those in promises)
    failed = f" (assumption fails in {fails} of {len(promises)} runs)" if fails else ""
    one, every = ([ceiling(g, messages) for g in members] for messages in ("one_message", "all_messages"))
    lines = [("one message", one, 7, "dotted"), ("all messages of a run", every, 6, "dashed")]
    if all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, every, strict=True)):
        lines = [("one message and all of a run", every, 6, "dashed")]
    made = []
    for what, heights, look, line in lines:
        label = f"promised ceiling, {what}{failed}"
        points = [Point(exact(i), exact(h), f"{label}, {places[i]}: {text_of(h)}") for i, h in enumerate(heights)]
        if not all(map(math.isnan, heights)):
            made.append(Series(label, tuple(points), look=look, line=line, hollow=True, colour=UTILITY))
    return made


def strongest(groups: Sequence[Group], figure: str, layer: str | None) -> list[str]:
    """The attacks on messages, the one with the largest leak in any setting first."""
    largest: dict[str, float] = {}
    for group in groups:
        for attack in group.attacks():
            value = group.interval(f"{figure}:{attack}", layer).mean
            largest[attack] = max(largest.get(attack, -math.inf), -math.inf if math.isnan(value) else value)
    return sorted(largest, key=lambda attack: -largest[attack])


def ceiling(group: Group, messages: str) -> float:
    """The highest `quantity.ceiling` among the runs of a group; nan without a promise."""
    heights = [quantity.ceiling(run, messages) for run in group.runs]
    return max((h for h in heights if not math.isnan(h)), default=math.nan)


def layer_plots(section: Section) -> list[Plot]:
    """For each attack its leak at every layer, a line per setting."""
    figure = section.y if section.y in quantity.LEAKS else "leak_auc"
    shown_groups, left_out = chosen(section)
    made = []
    every = strongest(section.groups, figure, section.layer)
    for attack in every[:MOST_ATTACKS]:
        series, layers = [], _layers(section, attack)
        if len(layers) < 2:
            continue
        for look, group in enumerate(shown_groups):
            points: dict[bool, list[Point]] = {True: [], False: []}
            for at, layer in enumerate(layers):
                interval, visible = _at_layer(group, attack, figure, layer)
                if not math.isnan(interval.mean):
                    seen = "" if visible else ", which no attacker sees"
                    name = f"{group.name}\n{attack} at {layer}{seen}: {text_of(interval)}\n{group.count}"
                    points[visible].append(Point(exact(at), interval, name))
            if points[True]:
                series.append(Series(group.name, tuple(points[True]), look=look))
            if points[False]:
                series.append(Series(group.name, tuple(points[False]), look=look, line="dotted", hollow=True))
        not_cut = {name for run in section.runs for name in run.layers.order if name not in run.layers.crossing}
        ticks = tuple((float(i), marked(layer, layer not in not_cut)) for i, layer in enumerate(layers))
        slug = f"{section.slug}_layers_{slugged(attack)}"
        hidden = "Hollow: layers of the label party, which no attacker sees." * any(s.hollow for s in series)
        note = f"{hidden}{left_out}{_of_all(every[:MOST_ATTACKS], every)}".strip()
        levels = (Level(0.5, "0.5, a coin"),) if "auc" in figure else ()
        title = f"Leak at every layer: {attack}"
        axes = Axis("layer, input to output", ticks), Axis(quantity.plain_title(figure))
        made.append(Plot(slug, title, *axes, tuple(series), levels, note))
    return made


def _of(group: Group, name: str, layer: str | None) -> OverRuns:
    values = [quantity.value(run, name, layer) for run in group.runs]
    return over_runs(values, range_of(name))


def _layers(section: Section, attack: str) -> list[str]:
    layers = {leak["layer"] for run in section.runs for leak in quantity.leaks(run) if quantity.label(leak) == attack}
    return [layer for layer in merged_order(run.layers for run in section.runs) if layer in layers]


def _at_layer(group: Group, attack: str, figure: str, layer: str) -> tuple[OverRuns, bool]:
    """The leak over the runs, at the party where it is largest, and whether it is visible; visible ones take precedence."""
    values, visible = [], False
    for run in group.runs:
        leaks = quantity.leaks_of(run, attack, layer)
        seen = [leak for leak in leaks if leak.get("visible")]
        visible = visible or bool(seen)
        numbers = [quantity.leak_value(leak, figure) for leak in seen or leaks]
        worst = max((v for v in numbers if not math.isnan(v)), default=math.nan)
        values += [] if math.isnan(worst) else [worst]
    return over_runs(values, range_of(figure)), visible
