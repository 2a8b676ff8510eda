"""The pictures of a section: plane, sweeps, layers; the epochs are in `curves`."""

import math
from collections.abc import Sequence

from vflbench.numerics.interval import Interval, mean_interval
from vflbench.results.report import quantity
from vflbench.results.report.chart import Chart, Level, Point, Series, exact
from vflbench.results.report.curves import epoch_charts
from vflbench.results.report.figures import layer_order
from vflbench.results.report.groups import Group, bounded, flatten, short, shown
from vflbench.results.report.score import pareto
from vflbench.results.report.sections import MOST_LINES, Section, chosen, sweeps
from vflbench.results.report.tables import slugged, told

MOST_ATTACKS = 4
MOST_SWEEPS = 4


def charts(section: Section) -> list[Chart]:
    """All that there is something to show of."""
    found = [plane(section), *sweep_charts(section), *layer_charts(section), *epoch_charts(section)]
    return [chart for chart in found if chart is not None and any(_is_drawn(p) for p in chart.points())]


def _is_drawn(point: Point) -> bool:
    return math.isfinite(point.x.mean + point.y.mean)


def plane(section: Section) -> Chart | None:
    """Utility against leak, a mark a group, the Pareto front through those that no other one beats."""
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
                leak = f"{quantity.title(y)} {told(b)}{f', {attack}' if attack else ''}"
                tag = _tag(g, [other for other, _, _ in places]) if place in front or len(places) <= 10 else ""
                points.append(Point(a, b, f"{g.name}\n{quantity.title(x)} {told(a)}\n{leak}\n{g.count}", tag))
        series.append(Series(defense, tuple(points), look=look, line="none"))
    levels = (Level(0.5, "0.5, a coin"),) if y in ("leak_auc", "leak_two_sided", "leak_oriented", "leak_raw") else ()
    note = (
        f"Each mark is one setting: mean over its seeds with 95 % t-interval; the leak {section.where}, of the attack that "
        "gains most on average. Right and low is good. Point at a mark for its name."
    )
    title, axes = "Privacy and utility", (quantity.title(x), quantity.title(y))
    return Chart(f"{section.slug}_plane", title, *axes, tuple(series), levels, note=note)


def _tag(group: Group, others: Sequence[Group]) -> str:
    """What tells it from the others with the same defense, which the legend names."""
    same = [flatten(g.config) for g in others if g.defense == group.defense]
    keys = [k for k in group.told if not k.startswith("attack") and len({str(leaves.get(k)) for leaves in same}) > 1]
    parts = [f"{short(key)} {shown(group.told[key])}" for key in keys]
    whole = ", ".join(parts)
    return whole if len(whole) <= 34 or not parts else parts[0]


def sweep_charts(section: Section) -> list[Chart]:
    found = sweeps(section)[:MOST_SWEEPS]
    several = len({key for key, _, _ in found}) < len(found)
    return [
        _sweep(section, key, rest if several else "", members, place) for place, (key, rest, members) in enumerate(found)
    ]


def _sweep(section: Section, key: str, rest: str, members: Sequence[Group], place: int) -> Chart:
    """Utility and every attack's leak along one option, with the ceilings that are promised."""
    option = key.rsplit(".", 1)[-1]
    values = [shown(_option(g, key)) for g in members]
    head = section.y if section.y in quantity.LEAKS else "leak_auc"
    attacks = list(dict.fromkeys(a for g in members for a in g.attacks()))[:MOST_LINES]
    lines = [(quantity.title(section.x), section.x, -1)] + [(a, f"{head}:{a}", i) for i, a in enumerate(attacks)]
    references = dict.fromkeys(a for g in members for r in g.runs for a in quantity.by_attack(r, head, reference=True))
    lines += [(f"{a} (own columns)", f"{head}:{a}", 5) for a in references]
    series = []
    for label, name, look in lines:
        points = []
        for at, g in enumerate(members):
            interval = _of(g, name, section.layer)
            points.append(Point(exact(at), interval, f"{label}, {option} {values[at]}: {told(interval)}\n{g.count}"))
        series.append(
            Series(label, tuple(points), look=look, line="dashed" if look < 0 else "solid", hollow="own col" in label)
        )
    for messages, style in (("one_message", "dotted"), ("all_messages", "dashed")):
        heights = [ceiling(g, messages) for g in members]
        if not all(map(math.isnan, heights)):
            text = f"certified ceiling, {messages.replace('_', ' ')}" + (" of a run" if messages == "all_messages" else "")
            points = tuple(
                Point(exact(i), exact(h), f"{text}, {option} {values[i]}: {told(h)}") for i, h in enumerate(heights)
            )
            series.append(Series(text, points, look=6, line=style, marks=True, hollow=True))
    ticks = tuple((float(i), value) for i, value in enumerate(values))
    slug = f"{section.slug}_along_{slugged(option)}" + (f"_{place + 1}" if rest else "")
    note = "Means over seeds with 95 % t-intervals. The ceilings are what the defenses promise; they hold for one run."
    note += f" Here: {rest}." * bool(rest)
    title = f"Along {option}" + (f": {rest}" if rest else "")
    title = title if len(title) <= 62 else f"{title[:60]}..."
    levels = (Level(0.5, "0.5, a coin"),) if "auc" in head else ()
    return Chart(slug, title, key, "AUC" if "auc" in head else "share", tuple(series), levels, ticks, note)


def ceiling(group: Group, messages: str) -> float:
    """The least leak AUC that any defense promises; of the runs of a group the highest; nan for no promise."""
    heights = []
    for run in group.runs:
        promises = (p for p in (run.summary.get("guarantees") or {}).values() if p)
        heights.append(min((quantity.number(p.get(f"leak_auc_{messages}")) for p in promises), default=math.nan))
    return max((h for h in heights if not math.isnan(h)), default=math.nan)


def layer_charts(section: Section) -> list[Chart]:
    """For each attack its leak at every layer, a line a setting."""
    figure = section.y if section.y in quantity.LEAKS else "leak_auc"
    shown_groups, left_out = chosen(section)
    found = []
    for attack in section.attacks()[:MOST_ATTACKS]:
        series, layers = [], _layers(section, attack)
        if len(layers) < 2:
            continue
        for look, group in enumerate(shown_groups):
            points = {True: [], False: []}
            for at, layer in enumerate(layers):
                interval, visible = _at_layer(group, attack, figure, layer)
                if not math.isnan(interval.mean):
                    seen = "" if visible else ", which no attacker sees"
                    name = f"{group.name}\n{attack} at {layer}{seen}: {told(interval)}\n{group.count}"
                    points[visible].append(Point(exact(at), interval, name))
            if points[True]:
                series.append(Series(group.name, tuple(points[True]), look=look))
            if points[False]:
                series.append(
                    Series("" if points[True] else group.name, tuple(points[False]), look=look, line="dotted", hollow=True)
                )
        cuts = {quantity.cut(run) for run in section.runs}
        ticks = tuple((float(i), f"{layer} (cut)" if cuts == {layer} else layer) for i, layer in enumerate(layers))
        slug = f"{section.slug}_layers_{slugged(attack)}"
        hidden = "Hollow: layers of the label party, which no attacker sees." * any(s.hollow for s in series)
        note = f"{hidden}{left_out}".strip()
        levels = (Level(0.5, "0.5, a coin"),) if "auc" in figure else ()
        title = f"Leak at every layer: {attack}"
        y_title = quantity.title(figure).replace(", worst attack", "").replace(" of the worst attack", "")
        found.append(Chart(slug, title, "layer, input to output", y_title, tuple(series), levels, ticks, note))
    return found


def _option(group: Group, key: str) -> object:
    return group.runs[0].option(key)


def _of(group: Group, name: str, layer: str | None) -> Interval:
    values = [quantity.value(run, name, layer) for run in group.runs]
    return bounded(name, mean_interval([v for v in values if not math.isnan(v)]))


def _layers(section: Section, attack: str) -> list[str]:
    found = {leak["layer"] for run in section.runs for leak in quantity.leaks(run) if quantity.label(leak) == attack}
    return sorted(found, key=layer_order)


def _at_layer(group: Group, attack: str, figure: str, layer: str) -> tuple[Interval, bool]:
    """Over the runs, of the party that learns most; what an attacker sees goes before what none does."""
    values, visible = [], False
    for run in group.runs:
        own = [leak for leak in quantity.leaks(run) if quantity.label(leak) == attack and leak["layer"] == layer]
        seen = [leak for leak in own if leak.get("visible")]
        visible = visible or bool(seen)
        best = max((v for v in (quantity.leak_value(k, figure) for k in seen or own) if not math.isnan(v)), default=math.nan)
        values += [] if math.isnan(best) else [best]
    return bounded(figure, mean_interval(values)), visible
