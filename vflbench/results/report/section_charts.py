"""The charts of a section: plane, sweeps, layers; those along the epochs are in `curves`."""

import math
from collections.abc import Sequence

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.results.layers import merged_order
from vflbench.results.report import quantity
from vflbench.results.report.chart import Chart, Level, Point, Series, exact
from vflbench.results.report.curves import epoch_charts
from vflbench.results.report.groups import Group, flatten, short, shown
from vflbench.results.report.score import pareto
from vflbench.results.report.sections import MOST_LINES, Section, chosen, sweeps
from vflbench.results.report.table_formats import slugged, text_of

MOST_ATTACKS = 4
MOST_SWEEPS = 4


def charts(section: Section) -> list[Chart]:
    """Those with at least one point."""
    made = [plane(section), *sweep_charts(section), *layer_charts(section), *epoch_charts(section)]
    return [chart for chart in made if chart is not None and any(_is_drawn(p) for p in chart.points())]


def _is_drawn(point: Point) -> bool:
    return math.isfinite(point.x.mean + point.y.mean)


def plane(section: Section) -> Chart | None:
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
                leak = f"{quantity.title(y)} {text_of(b)}{f', {attack}' if attack else ''}"
                tag = _tag(g, [other for other, _, _ in places]) if place in front or len(places) <= 10 else ""
                points.append(Point(a, b, f"{g.name}\n{quantity.title(x)} {text_of(a)}\n{leak}\n{g.count}", tag))
        series.append(Series(defense, tuple(points), look=look, line="none"))
    levels = (Level(0.5, "0.5, a coin"),) if y in ("leak_auc", "leak_two_sided", "leak_oriented", "leak_raw") else ()
    better = f"{'left' if low['x_low'] else 'right'} and {'low' if low['y_low'] else 'high'}"
    note = (
        f"Each mark is one setting: mean over its seeds with 95 % t-interval. The leak is that {section.where}, of the "
        f"attack with the largest mean. {better.capitalize()} is better. Hover over a mark for its name."
    )
    title, axes = "Privacy and utility", (quantity.title(x), quantity.title(y))
    return Chart(f"{section.slug}_plane", title, *axes, tuple(series), levels, note=note)


def _tag(group: Group, others: Sequence[Group]) -> str:
    """The options that distinguish it from the other groups with the same defense, which the legend names."""
    same = [flatten(g.config) for g in others if g.defense == group.defense]
    keys = [k for k in group.options if not k.startswith("attack") and len({str(leaves.get(k)) for leaves in same}) > 1]
    parts = [f"{short(key)} {shown(group.options[key])}" for key in keys if not key.startswith("adversary")]
    if group.adversary != "none":
        parts.insert(0, f"adversary {group.adversary}")
    whole = ", ".join(parts)
    return whole if len(whole) <= 34 or not parts else parts[0]


def sweep_charts(section: Section) -> list[Chart]:
    families = sweeps(section)[:MOST_SWEEPS]
    several = len({key for key, _, _ in families}) < len(families)
    return [
        _sweep(section, key, rest if several else "", members, place) for place, (key, rest, members) in enumerate(families)
    ]


def _sweep(section: Section, key: str, rest: str, members: Sequence[Group], place: int) -> Chart:
    """Utility and every attack's leak along one option, with the promised ceilings."""
    option = key.rsplit(".", 1)[-1]
    values = [shown(g.runs[0].option(key)) for g in members]
    head = section.y if section.y in quantity.LEAKS else "leak_auc"
    attacks = strongest(members, head, section.layer)[:MOST_LINES]
    lines = [(quantity.title(section.x), section.x, -1)] + [(a, f"{head}:{a}", i) for i, a in enumerate(attacks)]
    references = dict.fromkeys(a for g in members for r in g.runs for a in quantity.by_attack(r, head, reference=True))
    lines += [(f"{a} (own columns)", f"{head}:{a}", 5) for a in references]
    series = []
    for label, name, look in lines:
        points = []
        for at, g in enumerate(members):
            interval = _of(g, name, section.layer)
            points.append(Point(exact(at), interval, f"{label}, {option} {values[at]}: {text_of(interval)}\n{g.count}"))
        series.append(
            Series(label, tuple(points), look=look, line="dashed" if look < 0 else "solid", hollow="own col" in label)
        )
    for messages, style in (("one_message", "dotted"), ("all_messages", "dashed")):
        heights = [ceiling(g, messages) for g in members]
        if not all(map(math.isnan, heights)):
            text = f"certified ceiling, {messages.replace('_', ' ')}" + (" of a run" if messages == "all_messages" else "")
            points = [
                Point(exact(i), exact(h), f"{text}, {option} {values[i]}: {text_of(h)}") for i, h in enumerate(heights)
            ]
            series.append(Series(text, tuple(points), look=6, line=style, marks=True, hollow=True))
    ticks = tuple((float(i), value) for i, value in enumerate(values))
    slug = f"{section.slug}_along_{slugged(option)}" + (f"_{place + 1}" if rest else "")
    note = "Means over seeds with 95 % t-intervals. Ceilings are what the defenses promise for one run."
    note += quantity.assumptions(run for g in members for run in g.runs)
    note += f" Here: {rest}." * bool(rest)
    title = f"Along {option}" + (f": {rest}" if rest else "")
    title = title if len(title) <= 62 else f"{title[:60]}..."
    levels = (Level(0.5, "0.5, a coin"),) if "auc" in head else ()
    return Chart(slug, title, key, "AUC" if "auc" in head else "share", tuple(series), levels, ticks, note)


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


def layer_charts(section: Section) -> list[Chart]:
    """For each attack its leak at every layer, a line per setting."""
    figure = section.y if section.y in quantity.LEAKS else "leak_auc"
    shown_groups, left_out = chosen(section)
    made = []
    for attack in strongest(section.groups, figure, section.layer)[:MOST_ATTACKS]:
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
                series.append(
                    Series("" if points[True] else group.name, tuple(points[False]), look=look, line="dotted", hollow=True)
                )
        not_cut = {name for run in section.runs for name in run.layers.order if name not in run.layers.crossing}
        ticks = tuple((float(i), layer if layer in not_cut else f"{layer} (cut)") for i, layer in enumerate(layers))
        slug = f"{section.slug}_layers_{slugged(attack)}"
        hidden = "Hollow: layers of the label party, which no attacker sees." * any(s.hollow for s in series)
        note = f"{hidden}{left_out}".strip()
        levels = (Level(0.5, "0.5, a coin"),) if "auc" in figure else ()
        title = f"Leak at every layer: {attack}"
        axes = ("layer, input to output", quantity.plain_title(figure))
        made.append(Chart(slug, title, *axes, tuple(series), levels, ticks, note))
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
