"""Figures of a report, by Altair: each is one function of a section, whose frames are long and whose styles are the page's.

A figure is one Vega-Lite specification, of which a page, SVG, PNG and PDF are made without a network and without a browser.
Texts of runs are values of data under fixed field names, or plain titles. None is part of an expression or of a field's
name, so that no name of a run is ever computed with.
"""

import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.interval import Interval
from vflbench.report.group import LEAKS, Section, attack_on, flattened, slugged
from vflbench.report.tables import assumptions, largest_values
from vflbench.report.words import in_words, text_of, within
from vflbench.report.words import shown_text as in_short
from vflbench.results.folder import cleaned
from vflbench.results.runs import Run
from vflbench.results.schema import COLUMNS, PROBE, LeakRecord, base_name

Styles = Mapping[str, tuple[str, str]]
"""Label of a setting or an attack -> its colour and its mark, the same in all figures of a page."""
_Words = Mapping[tuple[str, tuple[str, str]], str]
"""(row, (group, column)) of a heat map -> what its cell says."""
_WIDTH = 560
"""Pixels of a figure in a file; on a page it is as wide as its place."""
FORMATS = ("svg", "png", "pdf")
MOST_LINES, MOST_ATTACKS, MOST_SWEEPS = 7, 4, 4  # lines of a figure; figures of layers; figures of sweeps
GREY, UTILITY = "#777777", "#6e6e6e"
ChartLine = tuple[str, float, str, str]
"""A line across a figure: its label, place, kind of line, and the name of its style."""
_COIN: ChartLine = ("0.5, a coin", 0.5, "dashed", "")
_COLUMNS = "own columns"
_STAR = "M0,.5L.6,.8L.5,.1L1,-.3L.3,-.4L0,-1L-.3,-.4L-1,-.3L-.5,.1L-.6,.8Z"
FIXED: Styles = {
    "test AUC": (UTILITY, _STAR),
    "train AUC": (UTILITY, _STAR),
    PROBE: ("#9b59ab", "M-.5,-.9H.5L1,0L.5,.9H-.5L-1,0Z"),
    _COLUMNS: ("#8c564b", "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"),
}
"""Styles of what is no setting and no attack, with marks that none of these has: a star, a hexagon and a cross."""
INK, SOFT, RULE, PAPER = (
    {"expr": f"dark ? '{dark}' : '{light}'"}
    for dark, light in (("#ececec", "#1c1c1c"), ("#b4b9bf", "#55595e"), ("#3a3e44", "#e2e4e7"), ("#16181b", "#ffffff"))
)
_CONFIG = {
    "aria": False,
    "background": PAPER,
    "font": "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, Arial, DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    "text": {"color": INK, "fontSize": 12},
    "title": {"color": INK, "fontSize": 15, "fontWeight": 600, "anchor": "start", "offset": 12},
    "legend": {"orient": "bottom", "direction": "horizontal", "offset": 12, "rowPadding": 4, "symbolSize": 80}
    | {"labelColor": INK, "labelFontSize": 12, "symbolStrokeWidth": 1.8},
    "axis": {"labelColor": INK, "titleColor": INK, "domainColor": SOFT, "tickColor": SOFT, "gridColor": RULE}
    | {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal", "titlePadding": 8, "titleLimit": 300}
    | {"labelOverlap": "greedy"},
}
"""How all figures look. Colours follow the parameter `dark`, which a page sets."""
_LINES = {
    "solid": ([1, 0], "M-1.6,0H1.6"),
    "dashed": ([7, 4], "M-1.6,0h1.2m.8,0h1.2"),
    "dotted": ([2, 3], "M-1.6,0h.4m.67,0h.4m.67,0h.4m.67,0h.4"),
    "dashdot": ([8, 3, 2, 3], "M-1.6,0h1.3m.5,0h.4m.5,0h.5"),
}
"""Kinds of lines: their dashes, and their symbol in a legend, in a square from -1 to 1."""
_LETTER = 6.7  # pixels: the mean width of a letter
_READINGS = ("leak_auc_two_sided", "leak_auc_net")
"""What a leak counts as in metrics.csv: the larger of them."""
_OF_REFERENCES = (
    " References are no attacks: the probe reads all messages and is trained on the labels of half of the rows, own columns "
    "are read without any message."
)
_OVER_SEEDS = "Means over seeds with 95 % t-intervals."
_LOWER_IS_BETTER = ("loss", "seconds", "bytes", "leak", "error", "rebuilt")
_MOST_POINTS, _MOST_ENTRIES = 5_000, 30
_OF_ONE_VALUE = "datum.value % 1 && indexof(datum.label, '.') < 0 ? format(datum.value, '.3~g') : datum.label"
"""Where all points have one place, Vega rounds its label to a whole number."""
_VEGA_LITE = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
_OF_EVERY_OBJECT = re.compile(r"__\w+__|constructor|[a-z]+([A-Z][a-z]*)+")


@dataclass(frozen=True)
class Figure:
    """slug: the name of its files. note: sentences below it.

    spec: Vega-Lite, its data in `datasets`. Its width is `container` or fixed; its `description` is for those who can't see
    it. A page sets its parameters `dark`, and `across`, the pixels that there are for the whole figure. Its `usermeta` is
    what a page's script and template read: titles of axes, whether it is a heat map, and whether it needs a line of the page
    for itself (is_wide).
    """

    slug: str
    title: str
    note: str
    spec: Mapping[str, Any]


def finished_chart(
    chart: Any, data: Mapping[str, pd.DataFrame], slug: str, title: str, note: str, alt_text: str, **meta: Any
) -> Figure:
    """The figure of a chart. data: its named data sets. meta: its `usermeta`."""
    spec = chart.to_dict(validate=False)  # a test validates one
    spec["params"] = [*spec.get("params", ()), {"name": "dark", "value": False}, {"name": "across", "value": _WIDTH}]
    spec["datasets"] = {name: json.loads(of.to_json(orient="records", double_precision=8)) for name, of in data.items()}
    spec |= {"config": _CONFIG, "usermeta": meta}  # late: a chart copies all it has
    spec["description"] = text(f"{title}. {alt_text}", 500)
    spec["title"] = {"text": text(title), "limit": spec.get("width") if isinstance(spec.get("width"), int) else _WIDTH}
    return Figure(slug, title, note, spec)


def curves(
    points: pd.DataFrame,
    styles: Styles,
    x: Any,
    y: Any,
    slug: str,
    title: str,
    note: str = "",
    levels: Sequence[ChartLine] = (),
) -> Figure:
    """Marks with intervals and lines, a legend that filters, and axes that zoom.

    points: a line each. label: its name in the legend; x, y: its place, numbers, names or `Interval`s. What may be missing:
    style: its name in `styles`, else the label; more: what else the hover says; line: solid | dashed | dotted | dashdot |
    none; mark, hollow: whether there is a mark, and whether it is hollow. Points of one label and kind of line are joined.
    x, y: Altair's channels of these fields (`numbers`, `names_axis`). levels: lines across; upright ones if y has names.
    """
    titles = {"x": x.to_dict().get("title"), "y": y.to_dict().get("title")}
    is_wide = y.shorthand == "y:N"
    points = _cleaned(points, levels, "x" if is_wide else "y", titles)
    looks = _looks(points, {**styles, **FIXED})
    is_level = points.x.isna() | points.y.isna()
    labels = list(dict.fromkeys(points.label[~is_level]))
    legend = _legend(list(looks), points.y[~is_level] if is_wide else [])

    def look(channel: Any, part: int, **more: Any) -> Any:
        scale = alt.Scale(domain=list(looks), range=[of[part] for of in looks.values()])
        return channel("label:N", scale=scale, legend=legend, **more)

    stroke, shape = look(alt.Stroke, 0), look(alt.Shape, 2)
    fill = look(alt.Fill, 1, condition={"test": "datum.hollow", "value": PAPER})
    dashes = alt.Scale(domain=list(_LINES), range=[dash for dash, _ in _LINES.values()])
    dash = alt.StrokeDash("line:N", scale=dashes, legend=None)
    chosen = alt.selection_point(name="legend", fields=["label"], bind="legend", toggle="true")
    every = alt.Chart(alt.NamedData("points")).transform_filter(chosen)
    base = every.transform_filter("isValid(datum.x) && isValid(datum.y)").encode(x=x, y=y)
    offset = {"field": "label", "type": "nominal", "scale": {"domain": labels}}  # marks of several labels at one name
    named = [way for way in (x, y) if way.shorthand.endswith(":N") and len(labels) > 1]
    base = base.encode(**{f"{way.shorthand[0]}Offset": offset for way in named})
    layers = []
    if is_level.any():
        rules = every.transform_filter("!isValid(datum.x) || !isValid(datum.y)").mark_rule(clip=True, strokeWidth=1.5)
        layers.append(rules.encode(alt.X("x:Q") if is_wide else alt.Y("y:Q"), stroke=stroke, strokeDash=dash))
    if (points.line[~is_level] != "none").any():
        lines = base.transform_filter("datum.line != 'none'").mark_line(clip=True, strokeWidth=2)
        layers.append(lines.encode(stroke=stroke, strokeDash=dash, order=alt.OrderValue(0)))
    for low, end, high in (("low", alt.Y, alt.Y2("high")), ("x_low", alt.X, alt.X2("x_high"))):
        if points[low].notna().any():
            bars = base.transform_filter(f"datum.mark && isValid(datum.{low})").mark_rule(clip=True, strokeWidth=1.4)
            layers.append(bars.encode(end(f"{low}:Q"), high, stroke=stroke))
    marks = base.transform_filter("datum.mark").mark_point(clip=True, opacity=1, size=80 if len(points) <= 60 else 40)
    zoom = alt.selection_interval(
        name="zoom",
        bind="scales",
        encodings=[way.shorthand[0] for way in (x, y) if way.shorthand.endswith(":Q")],
        zoom="wheel![event.ctrlKey || event.metaKey]",
        translate="[mousedown, window:mouseup] > window:mousemove!",
    )
    marks = marks.encode(stroke=stroke, fill=fill, shape=shape, tooltip=alt.Tooltip("hover:N"))
    height = max(120, 28 * points.y[~is_level].nunique()) if is_wide else 300
    chart = alt.layer(*layers, marks.add_params(chosen, zoom), width="container", height=height)
    note += f" The legend names {_MOST_ENTRIES} of {len(looks)}." * (len(looks) > _MOST_ENTRIES)
    described = f"{(~is_level).sum()} points of {', '.join(labels[:8])}{', ...' * (len(labels) > 8)}."
    return finished_chart(chart, {"points": points}, slug, title, note.strip(), described, is_wide=is_wide, titles=titles)


def _cleaned(points: pd.DataFrame, levels: Sequence[ChartLine], way: str, titles: Mapping[str, str]) -> pd.DataFrame:
    """The columns that are drawn, without points that have no finite place; texts on one line. First the levels.

    way: the field of a level's place. Its other place is missing.
    """
    columns = ["label", "x", "y", "style", "line", "mark", "hollow", "more"]
    points = points.reindex(columns=columns).astype(object).reset_index(drop=True)
    hover = points.label.map(text)
    for name, low, high in (("x", "x_low", "x_high"), ("y", "low", "high")):
        values = points[name]
        hover += "\n" + f"{titles[name]}: " * bool(titles[name].strip()) + values.map(text_of)
        points[low], points[high] = ([getattr(value, end, None) for value in values] for end in ("low", "high"))
        points[name] = [text(value) if isinstance(value, str) else getattr(value, "mean", value) for value in values]
    hover += ("\n" + points.pop("more")).fillna("")
    points["hover"] = hover.map(lambda said: "\n".join(text(line, 1000) for line in said.strip("\n").split("\n")))
    points = points.replace([math.inf, -math.inf], math.nan).dropna(subset=["x", "y"])[:_MOST_POINTS]
    across = pd.DataFrame(levels, columns=["label", way, "line", "style"]).astype(object)
    across = across[across[way].map(math.isfinite)].assign(mark=False)
    points = pd.concat([across, points], ignore_index=True)
    points["label"] = points.label.map(text)
    points["style"] = points["style"].fillna(points.label)
    return points.assign(line=points.line.fillna("solid"), mark=points["mark"].ne(False), hollow=points.hollow.eq(True))


def _looks(points: pd.DataFrame, styles: Styles) -> dict[str, tuple[str, str, str]]:
    """Label -> colour, fill and symbol. What is hollow everywhere, or has no mark, is so in the legend."""
    looks = {}
    for label, of in points.groupby("label", sort=False):
        colour, mark = styles.get(of["style"].iloc[0], (GREY, "circle"))
        symbol = mark if of.mark.any() else _LINES[of.line.iloc[0]][1]
        looks[label] = (colour, colour if of.mark.any() and not of.hollow.all() else "transparent", symbol)
    return looks


def _legend(names: Sequence[str], labels: Iterable[str]) -> alt.Legend:
    """In as many columns as there is room for. labels: the names beside the vertical axis."""
    taken = min(_LETTER * max(map(len, labels), default=4) + 40, 440)
    room = f"(across - min({taken:.0f}, across < 460 ? 190 : 440))"
    widest = _LETTER * max(map(len, names), default=1) + 40
    columns = alt.expr(f"max(1, min({min(len(names), 4)}, floor({room} / {widest:.0f})))")
    limit = alt.expr(f"{room} - 20")
    return alt.Legend(values=list(names)[:_MOST_ENTRIES], columns=columns, labelLimit=limit, symbolLimit=0, title=None)


def numbers(channel: Any, title: str, *, log: int = 0, whole: int = 0) -> Any:
    """The axis of the field x or y for numbers. channel: alt.X or alt.Y. whole: of whole numbers up to this one."""
    which = "x" if channel is alt.X else "y"
    kind: dict[str, Any] = {"type": "log", "base": log} if log else {"zero": False}
    axis: dict[str, Any] = {"format": "d"} if whole else {"format": "~g"} if log else {"labelExpr": _OF_ONE_VALUE}
    count = alt.expr(f"min({whole or 99}, across / 90)") if which == "x" else 6
    scale = alt.Scale(padding=12, nice=False, **kind)
    return channel(f"{which}:Q", title=text(title), scale=scale, axis=alt.Axis(tickCount=count, **axis))


def names_axis(channel: Any, title: str, order: Iterable[str]) -> Any:
    """The axis of the field x or y for names, in this order; turned below it where they need more than their place."""
    order = [text(name) for name in order]
    room = len(order) * (_LETTER * max((min(len(name), 26) for name in order), default=1) + 8)
    narrow = f"across < {room + 70:.0f} ?" if channel is alt.X else "across < 460 ?"
    axis: dict[str, Any] = {
        "labelAngle": alt.expr(f"{narrow} -38 : 0"),
        "labelAlign": alt.expr(f"{narrow} 'right' : 'center'"),
        "labelBaseline": alt.expr(f"{narrow} 'middle' : 'top'"),
        "labelLimit": 170,
        "labelOverlap": False if len(order) <= 24 else "greedy",
    }
    if channel is alt.Y:
        axis = {
            "labelExpr": f"{narrow} split(datum.label, ', ') : datum.label",  # a line for each option where it is narrow
            "labelLimit": alt.expr(f"{narrow} 150 : 400"),
            "labelFontSize": alt.expr(f"{narrow} 10 : 12"),
            "labelLineHeight": 10,
        }
    which = "x" if channel is alt.X else "y"
    scale = alt.Scale(type="band", paddingInner=0.6, paddingOuter=0.3)
    return channel(f"{which}:N", title=text(title), sort=order, scale=scale, axis=alt.Axis(grid=False, **axis))


def text(value: Any, most: int = 300) -> str:
    """A text of others on one line, without characters that can't be printed.

    Vega looks names up in objects, and finds there what every object of JavaScript has, as `toString`: a name that looks
    like one gets a space.
    """
    line = cleaned(value, most) or " "
    return f"{line} " if _OF_EVERY_OBJECT.fullmatch(line) else line


def heat_map(table: pd.DataFrame, slug: str, title: str, note: str, words: _Words | None = None) -> Figure:
    """A table of values as colours, white at 0.5 and dark red at 1, with each value in its cell.

    table: rows by (group, column); cells are numbers, `Interval`s or texts. words: what is written in place of a value. A
    group without a name has no colours: facts on the rows. On a narrow page the script of
    the page shows a table in place of the figure.
    """
    lines = []
    for part, (group, of_group) in enumerate(table.T.groupby(level=0, sort=False)):
        for (_, column), of in of_group.iterrows():
            for row, cell in of.items():
                value = math.nan if isinstance(cell, str) or not group else float(getattr(cell, "mean", cell))
                instead = (words or {}).get((row, (group, column)), "")
                said = instead or ("" if group and math.isnan(value) else f"{value:.2f}" if group else text_of(cell))
                full = ", ".join(filter(None, [text_of(cell), instead]))
                place = 2 * value - 1  # below 0.805 black letters have a contrast of 4.5, above it white ones
                line = [part, *map(text, (group, column, row)), value, text(said, 32), _shade(place) if group else ""]
                lines.append([*line, place > 0.805, f"{text(row)}\n{text(column)}: {full}"])
    cells = pd.DataFrame(lines, columns=["part", "group", "column", "row", "value", "words", "shade", "dark", "hover"])
    bare: dict[str, Any] = {"domain": False, "ticks": False}
    axis: alt.Axis | None = alt.Axis(labelLimit=320, labelPadding=8, **bare)
    extent = min(_LETTER * cells.column.str.len().max() + 6, 206)
    head = alt.Axis(orient="top", labelAngle=-90, labelLimit=200, minExtent=extent, titleAnchor="start", **bare)
    charts = []
    for part, of in cells.groupby("part"):
        across = alt.Scale(type="band", paddingInner=0.02, paddingOuter=0)
        x = alt.X("column:N", axis=head, scale=across, title=of.group.iloc[0], sort=list(dict.fromkeys(of.column)))
        order = list(dict.fromkeys(cells.row))
        y = alt.Y("row:N", sort=order, title=None, axis=axis, scale=alt.Scale(type="band", padding=0.02))
        wide = alt.Step(max(42.0, _LETTER * of.words.str.len().max() + 10))
        base = alt.Chart(alt.NamedData("cells"), width=wide, height=alt.Step(23)).encode(x=x, y=y)
        base = base.transform_filter(f"datum.part == {part}")
        colour = alt.when("datum.dark").then(alt.value("#ffffff")).when("datum.shade").then(alt.value("#000000"))
        texts = base.mark_text(fontSize=11).encode(text="words:N", color=colour.otherwise(alt.value(INK)))
        boxes = base.transform_filter("datum.shade").mark_rect()
        boxes = boxes.encode(color=alt.Color("shade:N", scale=None), tooltip=alt.Tooltip("hover:N"))
        charts.append(alt.layer(boxes, texts))
        axis = None  # of the first part alone
    known = cells.value.dropna()
    spread = f" Values from {known.min():.3g} to {known.max():.3g}." if len(known) else ""
    described = f"{cells.row.nunique()} rows by {cells[cells.shade != ''].column.nunique()} columns.{spread}"
    whole = alt.hconcat(*charts, spacing=14)
    return finished_chart(whole, {"cells": cells}, slug, title, note, described, is_wide=True, heat=True)


def _shade(place: float) -> str:
    """From white at 0 to dark red at 1; grey for nan."""
    shades = ((255, 253, 239, 165), (255, 219, 122, 0), (255, 160, 74, 38))  # of red, green and blue
    parts = [np.interp(place, (0, 1 / 3, 2 / 3, 1), shade) if place == place else 228 for shade in shades]
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def charts(section: Section) -> list[Figure]:
    """The figures of a section that show leaks and utility."""
    return [*plane(section), *sweeps(section), *epochs(section), *_layers(section)]


def plane(section: Section) -> Iterator[Figure]:
    """Utility against leak: a mark per setting, and the front through those of `Section.front` that none dominates."""
    points = pd.DataFrame({"x": section.over_seeds(section.x), "y": section.over_seeds(section.y)})
    means = points.map(lambda value: value.mean).dropna()
    if len(section.settings) < 2 or means.empty:
        return
    front, left_out = section.front
    low = [any(word in name for word in _LOWER_IS_BETTER) for name in (section.x, section.y)]
    best = means[means.index.isin(front)].sort_values(["x", "y"], ascending=[low[0], low[1]])
    best = best[best.y == (best.y.cummin() if low[1] else best.y.cummax())].drop_duplicates("y")
    points = points.loc[means.index].rename_axis("label").reset_index()
    points = points.assign(hollow=~points.label.isin(front), more=points.label.map(left_out), line="none")
    line = best.assign(label="Pareto front", line="dashed", mark=False)
    note = (
        f"Each mark is one setting: mean over its seeds with 95 % t-interval. The leak is taken {section.where}, of the "
        f"attack that reads most. {'Left' if low[0] else 'Right'} and {'low' if low[1] else 'high'} is better."
    )
    hollow = " Hollow: on no front with the others, for other attacks, rows or epochs, or as the model learned nothing."
    axes = numbers(alt.X, section.titled(section.x)), numbers(alt.Y, section.titled(section.y))
    slug, note = f"{section.slug}_plane", note + hollow * bool(left_out)
    points = pd.concat([line] * (len(line) > 1) + [points])
    yield curves(points, section.styles, *axes, slug, "Privacy and utility", note, levels=_coin(section.y))


def sweeps(section: Section) -> Iterator[Figure]:
    """Utility, every attack's leak and the promised ceilings along each option that varies as a number."""
    points = []
    options = section.settings.options
    leaves = {one.name: flattened(one.runs[0].config) for one in section.groups}
    for key in dict.fromkeys(section.by or (key for of in options for key in of)):
        for name, of in leaves.items():
            if isinstance(of.get(key), int | float) and not isinstance(of[key], bool) and of[key] == of[key]:
                rest = in_words({other: of.get(other) for other in options[name] if other != key})
                points.append((key, ", ".join([section.settings.defense[name], *rest]), name, of[key]))
    frame = pd.DataFrame(points, columns=["key", "rest", "setting", "value"])
    families = [one for one in frame.groupby(["key", "rest"], sort=False) if one[1].value.nunique() > 1]
    families = sorted(families, key=lambda one: -len(one[1]))[:MOST_SWEEPS]
    several = len({key for (key, _), _ in families}) < len(families)
    for place, ((key, rest), of) in enumerate(families, 1):
        yield _sweep(section, key, rest, of.set_index("setting").value, place * several)


def _sweep(section: Section, key: str, rest: str, values: pd.Series, place: int) -> Figure:
    """values: setting -> value. place: counted where an option has several sweeps, whose titles say what stays the same."""
    option, head = key.rsplit(".", 1)[-1], section.leak_column
    leaks = section.leaks[section.leaks.counts & section.leaks.setting.isin(values.index)]
    attacks, drawn = _strongest(section, leaks, head, MOST_LINES)
    leaks = leaks[leaks.is_reference | leaks.attack.isin(attacks)].rename(columns={"is_reference": "hollow"})
    of_references = np.where(leaks.attack.str.startswith(PROBE), PROBE, _COLUMNS)
    leaks = leaks.assign(
        label=leaks.attack + np.where(leaks.hollow, ", reference", ""),
        style=np.where(leaks.hollow, of_references, leaks.attack),
    )
    points = _largest(leaks, ["label", "style", "setting", "hollow"], head)
    utility = section.over_seeds(section.x)[values.index].rename_axis("setting").rename("y").reset_index()
    utility = utility.assign(label=section.titled(section.x), line="dashed")
    runs = section.runs[section.runs.setting.isin(values.index)]
    note = (
        f"Leaks {section.where}: means over seeds with 95 % t-intervals. Ceilings are what the defenses promise for one run."
        f"{_OF_REFERENCES * bool(points.hollow.any())}{assumptions(runs.run)}{drawn}{f' Here: {rest}.' * bool(place)}"
    )
    points = pd.concat([utility, points, *_ceilings(runs)])
    points = points.assign(value=points.setting.map(values)).sort_values("value", kind="stable")
    points["x"] = points.value.map(in_short)
    title = within(f"Along {option}{f': {rest}' * bool(place)}", 62)
    what = f"{'AUC' if 'auc' in head else 'share'}, leaks {section.where}"
    axes = names_axis(alt.X, key, points.x.unique()), numbers(alt.Y, what)
    slug = f"{section.slug}_along_{slugged(option)}{f'_{place}' * bool(place)}"
    return curves(points, section.styles, *axes, slug, title, note, levels=_coin(head))


def _ceilings(runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What the defenses promise, one line where one message and all have the same ceiling.

    The label says in how many runs what the ceiling assumes was found not to hold.
    """
    promises = [[promise for promise in run.summary.guarantees.values() if promise is not None] for run in runs.run]
    failed = [any(promise.assumption_holds is False for promise in of) for of in promises if of]
    said = f" (assumption fails in {sum(failed)} of {len(failed)} runs)" if any(failed) else ""
    heights = runs.groupby("setting", sort=False)[["ceiling.one_message", "ceiling.all_messages"]].max()
    one, every = (heights[name].dropna() for name in heights)
    lines = [("one message", one, "dotted"), ("all messages of a run", every, "dashed")]
    for what, height, line in [("one message and all of a run", every, "dashed")] if one.equals(every) else lines:
        yield height.rename("y").reset_index().assign(label=f"promised ceiling, {what}{said}", mark=False, line=line)


def _layers(section: Section) -> Iterator[Figure]:
    """The leak at every layer, at the party where it is largest: for each of the strongest attacks with a line per setting;
    of one run with a line per attack, intervals over batches, and what the model and references reach.
    """
    is_one, heads = len(section.runs) == 1, [section.leak_column]
    if is_one:
        heads = ["leak_ami", "leak_accuracy"] if section.leaks.leak_auc.isna().all() else ["leak_auc"]
    leaks, left_out = _some(section, section.leaks.assign(place=range(len(section.leaks))))
    same = [leaks.index.rename("run"), "setting", "attack", "layer"]
    leaks = leaks[leaks.visible == leaks.groupby(same).visible.transform("any")]
    for head in heads:
        attacks, drawn = _strongest(section, section.counted, head, MOST_LINES if is_one else MOST_ATTACKS)
        for these in [attacks] if is_one else [[attack] for attack in attacks]:
            of = leaks[leaks.attack.isin(these)].rename(columns={"attack" if is_one else "setting": "label"})
            if of.layer.nunique() < 2 - is_one:
                continue
            points, means, name = _largest(of, ["label", "layer", "visible"], head), _OVER_SEEDS, these[0]
            slug, title, levels = f"{section.slug}_layers_{slugged(name)}", f"Leak at every layer: {name}", _coin(head)
            if is_one:
                of = of.sort_values(head, kind="stable").drop_duplicates(["label", "layer"], keep="last")
                points = of.assign(y=[_over_batches(section.runs.run[0].summary.leaks[i], head) for i in of.place])
                slug = f"{section.slug}_{head.replace('leak', 'layers').removesuffix('_auc')}"
                title = f"Label leakage per layer: {LEAKS[head]}"
                levels, means = list(_reference_levels(section, head)), "Last epoch; means with 95 % intervals over batches."
            points = _by_layer(section, points)
            hidden = " Hollow: layers of the label party, which no attacker sees." * int(points.hollow.any())
            axes = names_axis(alt.X, "layer, input to output", points.x.unique()), numbers(alt.Y, LEAKS[head])
            note = f"{means}{hidden}{left_out}{drawn}"
            yield curves(points, section.styles, *axes, slug, title, note, levels=levels)


def _over_batches(leak: LeakRecord, head: str) -> Interval:
    """What a leak counts as, with its interval over batches."""
    intervals = [leak.two_sided, leak.net] if head == "leak_auc" else [leak.classes[head.removeprefix("leak_")]]
    best = max(intervals, key=lambda one: -math.inf if one.mean is None else one.mean)
    return Interval(*(math.nan if end is None else end for end in (best.mean, best.low, best.high)))


def _reference_levels(section: Section, head: str) -> Iterator[ChartLine]:
    """What a run's model and a guess reach, as far as they are known, and what references read: the probe, and the strongest
    attack on own columns.
    """
    run, leaks = section.runs.run[0], section.leaks[section.leaks.is_reference & section.leaks.visible]
    metric = head.removeprefix("leak_")
    for split, line in (("test", "dashdot"), ("train", "dotted")):
        known = [getattr(run.summary, key := f"{split}_{metric}", None), run.manifest.model.get(key)]
        for value in [value for value in known if value is not None][:1]:
            yield f"{split} {metric.replace('auc', 'AUC')} {value:.3f}", value, line, ""
    majority = max(run.manifest.data.train_class_ratios, default=math.nan)
    always = (f"{majority:.3f}, always the most frequent class", majority, "solid", "")
    yield {"leak_auc": _COIN, "leak_ami": ("0", 0.0, "solid", "")}.get(head, always)
    is_probe = leaks.name.map(base_name) == PROBE
    for style, which, knows in (
        (PROBE, is_probe, "half of the labels known"),
        (_COLUMNS, ~is_probe, "own features alone"),
    ):
        for one in leaks[which].dropna(subset=head).sort_values(head).tail(1).to_dict("records"):
            yield f"{one['attack']}, {knows} {one[head]:.3f}", one[head], "solid", style


def epochs(section: Section) -> Iterator[Figure]:
    """Utility per epoch, and leaks: the leak at the cut to the attack that is the worst in the last epoch, a line a setting;
    of one run the leak to each attack at the layer and party where it is largest.
    """
    runs, left_out = _some(section, section.runs)
    rows = measurements(replace(section, runs=runs)).rename(columns={"setting": "label", "epoch": "x"})
    metric = {"test_accuracy": "accuracy"}.get(section.x, "auc")
    leak = section.y if section.y in ("leak_accuracy", "leak_ami") else "leak_auc"
    utility = rows[(rows.metric == metric) & rows.split.isin(["test", "train"])]
    leaks = rows[rows.visible & rows.metric.isin(_READINGS if leak == "leak_auc" else [leak])]
    score, name = metric.replace("auc", "AUC"), "leak AUC" if leak == "leak_auc" else leak.replace("_", " ")
    if len(section.runs) == 1:
        drawn, said = _strongest(section, section.counted, section.leak_column, MOST_LINES)
        utility, leaks = utility.assign(label=utility.split + f" {score}"), leaks.assign(label=leaks.attack)
        leaks, note = leaks[leaks.attack.isin(drawn)], f"Leaks at the layer and party where they are largest.{said}"
    else:
        utility, score, note = utility[utility.split == "test"], f"test {score}", f"{_OVER_SEEDS}{left_out}"
        leaks = leaks[leaks.cut & (leaks.attack == leaks.index.map(section.worst))]
    title = "Leak per epoch" if len(section.runs) == 1 else "Worst leak at the cut per epoch"
    for slug, head, axis, of, column, levels in (
        ("utility", "The model per epoch", score, utility, metric, []),
        ("leak", title, name, leaks, leak, _coin(leak)),
    ):
        if rows.x.max() > 0 and len(of):
            points = _largest(of.assign(hollow=of.label == f"train {score}"), ["label", "x", "hollow"], "value", column)
            axes = numbers(alt.X, "epoch", whole=rows.x.max()), numbers(alt.Y, axis)
            yield curves(points, section.styles, *axes, f"{section.slug}_epochs_{slug}", head, note, levels=levels)


def measurements(section: Section) -> pd.DataFrame:
    """The rows of the metrics.csv of runs, by the run's number. attack: with its message; cut: whether the layer crosses."""

    def of(run: Run) -> Iterator[dict[str, Any]]:
        with suppress(OSError, UserError):  # a run without curves is still a run
            for row in run.rows:
                line = {"attack": attack_on(row.attack, row.message), "visible": row.visible is True}
                yield vars(row) | line | {"cut": run.crosses(row.party, row.layer)}

    return section.lines(of, [*COLUMNS, "cut"])


def _largest(leaks: pd.DataFrame, by: Sequence[str], column: str, figure: str = "") -> pd.DataFrame:
    """y: mean and interval over runs of the largest value that each has in a group, beside the columns that make groups."""
    return largest_values(leaks, by, column, figure).rename("y").reset_index()


def _strongest(section: Section, leaks: pd.DataFrame, figure: str, most: int) -> tuple[list[str], str]:
    """At most so many of the attacks on messages, and a sentence if there are others.

    First the worst of the verdicts, then the strongest on each kind of message, then those with the largest mean leak in any
    setting.
    """
    leaks, by = leaks[~leaks.is_reference], ["attack", "message", "setting"]
    means = leaks.groupby([*by, leaks.index], sort=False)[figure].max().groupby(by, sort=False).mean()
    order = means.groupby(by[:2], sort=False).max().dropna().sort_values(ascending=False, kind="stable").reset_index()
    worst = [attack_on(one.attack, one.message) for run in section.runs.run if (one := run.summary.verdict.worst)]
    first = [attack for attack in worst if attack in set(order.attack)]
    every = list(dict.fromkeys([*first, *order.drop_duplicates("message").attack, *order.attack]))
    said = (
        f" Drawn are {most} of {len(every)} attacks: the worst of the verdict, the strongest on each kind of message, and "
        "the strongest of the others. The tables have all."
    )
    return every[:most], said * (len(every) > most)


def _some(section: Section, frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Lines of at most MOST_LINES settings, the first and the last among them, and a sentence on the others."""
    every = list(section.settings.index)
    if len(every) <= MOST_LINES:
        return frame, ""
    kept = [every[round(i * (len(every) - 1) / (MOST_LINES - 1))] for i in range(MOST_LINES)]
    return frame[frame.setting.isin(kept)], f" {len(kept)} of {len(every)} settings, evenly chosen; the tables have all."


def _coin(figure: str) -> list[ChartLine]:
    return [_COIN] if "auc" in figure or figure in ("leak_two_sided", "leak_oriented", "leak_raw") else []


def _by_layer(section: Section, points: pd.DataFrame) -> pd.DataFrame:
    """From input to output, `f5 (cut)` of a layer that crosses. What no attacker sees is hollow, and a line of its own."""
    runs = section.runs.run
    order, crossing = merged_order(run.layers for run in runs), {name for run in runs for name in run.crossing}
    points = points.sort_values("layer", key=lambda layer: layer.map(order.index), kind="stable")
    named = [f"{layer} (cut)" if layer in crossing and layer != "cut" else layer for layer in points.layer]
    return points.assign(x=named, hollow=~points.visible, line=np.where(points.visible, "solid", "dotted"))


def merged_order(runs: Iterable[Sequence[str]]) -> list[str]:
    """The layers of several runs in one order: a layer that only some have comes after its predecessor there."""
    merged: list[str] = []
    for order in sorted(runs, key=len, reverse=True):
        for place, layer in enumerate(order):
            if layer not in merged:
                merged.insert(merged.index(order[place - 1]) + 1 if place else 0, layer)
    return merged


def files(figure: Figure, formats: Sequence[str] = FORMATS) -> Iterator[tuple[str, bytes]]:
    """(name, content) for each of svg, png and pdf."""
    import vl_convert  # 100 MB, which a page without figures does not need

    drawn = svg(figure)
    for ending in formats:
        content = vl_convert.svg_to_png(drawn, scale=2.0) if ending == "png" else drawn.encode()
        yield f"{figure.slug}.{ending}", bytes(vl_convert.svg_to_pdf(drawn) if ending == "pdf" else content)


def svg(figure: Figure) -> str:
    """In its light colours, WIDTH pixels wide if it is as wide as its place."""
    import vl_convert

    across = 900 if figure.spec["usermeta"].get("is_wide") else _WIDTH  # names beside it take up to 400
    params = [param | {"value": across} if param["name"] == "across" else param for param in figure.spec["params"]]
    spec = {**figure.spec, "params": params}
    if spec.get("width") == "container":
        spec |= {"width": across, "autosize": {"type": "fit-x", "contains": "padding"}}
    return str(vl_convert.vegalite_to_svg(json.dumps(spec, allow_nan=False), vl_version=_VEGA_LITE, allowed_base_urls=[]))


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, with their licences in its first comment.

    They compute expressions by an interpreter, so that a page's Content-Security-Policy needs no `unsafe-eval`.
    """
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # whose annotations ask for what it does without
    licences = Path(__file__).with_name("templates").joinpath("vega_licences.txt").read_text("utf-8")
    return f"/*!\n{licences}*/\n{bundle(vl_version=_VEGA_LITE)}\n"
