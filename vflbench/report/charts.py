"""Figures of a report, by Altair: each is one function of a section, whose frames are long and whose styles are the page's.

A figure is one Vega-Lite specification, of which a page, SVG, PNG and PDF are made without a network and without a browser.
Texts of runs are values of data under fixed field names, or plain titles. None is part of an expression or of a field's
name, so that no name of a run is ever computed with.
"""

import base64
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.interval import Interval
from vflbench.report.group import LEAKS, Section, attack_on, flat, over_seeds, slugged
from vflbench.report.tables import assumptions, ceiling, text_of
from vflbench.report.words import in_words, within
from vflbench.report.words import shown as in_short
from vflbench.results.folder import shown
from vflbench.results.runs import Layers, Run
from vflbench.results.schema import COLUMNS, PROBE, REFERENCE, base_name, level_of

Styles = Mapping[str, tuple[str, str]]
"""Label of a setting or an attack -> its colour and its mark, the same in all figures of a page."""

WIDTH = 560
"""Pixels of a figure in a file; on a page it is as wide as its place."""
FORMATS = ("svg", "png", "pdf")
MOST_LINES, MOST_ATTACKS, MOST_SWEEPS = 7, 4, 4  # lines of a figure; figures of layers; figures of sweeps
GREY, UTILITY = "#777777", "#6e6e6e"
Level = tuple[str, float, str, str]
"""A line across a figure: its label, place, kind of line, and the name of its style."""
COIN: Level = ("0.5, a coin", 0.5, "dashed", "")
OWN = "own columns"
_STAR = "M0,.5L.6,.8L.5,.1L1,-.3L.3,-.4L0,-1L-.3,-.4L-1,-.3L-.5,.1L-.6,.8Z"
_HEXAGON = "M-.5,-.9H.5L1,0L.5,.9H-.5L-1,0Z"
_X = "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"
FIXED: Styles = {
    "test AUC": (UTILITY, _STAR),
    "train AUC": (UTILITY, _STAR),
    PROBE: ("#9b59ab", _HEXAGON),
    OWN: ("#8c564b", _X),
}
"""Styles of what is no setting and no attack, with marks that none of these has."""
INK, SOFT, RULE, PAPER = (
    alt.expr(f"dark ? '{dark}' : '{light}'")
    for dark, light in (("#ececec", "#1c1c1c"), ("#b4b9bf", "#55595e"), ("#3a3e44", "#e2e4e7"), ("#16181b", "#ffffff"))
)
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, Arial, DejaVu Sans, sans-serif"
_DASHES = {"solid": [1, 0], "dashed": [7, 4], "dotted": [2, 3], "dashdot": [8, 3, 2, 3]}
_STROKES = {
    "solid": "M-1.6,0H1.6",
    "dashed": "M-1.6,0h1.2m.8,0h1.2",
    "dotted": "M-1.6,0h.4m.67,0h.4m.67,0h.4m.67,0h.4",
    "dashdot": "M-1.6,0h1.3m.5,0h.4m.5,0h.5",
}
"""Lines without marks as symbols of a legend, in a square from -1 to 1."""
_LETTER = 6.7  # pixels: the mean width of a letter
_OF_REFERENCES = (
    " References are no attacks: the probe reads all messages and is trained on the labels of half of the rows, own columns "
    "are read without any message."
)
_LOWER_IS_BETTER = ("loss", "seconds", "bytes", "leak", "error", "rebuilt")
_MOST_POINTS, _MOST_ENTRIES = 5_000, 30
_DARK = 0.72  # from this part of a heat map's scale on white letters are easier to read
_VEGA_LITE = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
_OF_EVERY_OBJECT = frozenset(
    (
        *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"),
        *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    )
)


def _configuration() -> dict[str, Any]:
    """Colours follow the parameter `dark`, which a page sets."""
    lines: dict[str, Any] = {"domainColor": SOFT, "tickColor": SOFT, "gridColor": RULE}
    axis = alt.AxisConfig(
        labelColor=INK, titleColor=INK, labelFontSize=12, titleFontSize=13, titleFontWeight="normal", **lines
    )
    axis = alt.AxisConfig(**axis.to_dict(), labelOverlap="greedy", titlePadding=8, titleLimit=300)
    legend = alt.LegendConfig(orient="bottom", direction="horizontal", offset=12, rowPadding=4, symbolSize=80)
    legend = alt.LegendConfig(**legend.to_dict(), labelColor=INK, labelFontSize=12, symbolStrokeWidth=1.8)
    title = alt.TitleConfig(color=INK, fontSize=15, fontWeight=600, anchor="start", offset=12)
    config = alt.Config(aria=False, background=PAPER, font=_FONT, axis=axis, legend=legend, title=title)
    return {**config.to_dict(), "view": {"stroke": None}, "text": {"color": INK.to_dict(), "fontSize": 12}}


@dataclass(frozen=True)
class Figure:
    """slug: the name of its files. note: sentences below it. alt: what it shows, for those who can't see it.

    spec: Vega-Lite, its data in `datasets`. Its width is `container` or fixed. A page sets its parameters `dark`, and
    `across`, the pixels that there are for the whole figure. is_wide: whether it needs a line of the page for itself.
    """

    slug: str
    title: str
    note: str
    alt: str
    spec: Mapping[str, Any]
    is_wide: bool = False

    @property
    def has_data(self) -> bool:
        """Whether a page offers its values as CSV."""
        return not {"points", "cells"}.isdisjoint(self.spec["datasets"])


def finished(
    chart: Any,
    data: Mapping[str, pd.DataFrame],
    slug: str,
    title: str,
    note: str,
    alt_text: str,
    *,
    is_wide: bool = False,
    wide: float = WIDTH,
    **meta: Any,
) -> Figure:
    """The figure of a chart. data: its named data sets. meta: what the page's script needs to know."""
    described = text(f"{title}. {alt_text}", 500)
    spec = chart.to_dict(validate=False)  # a test validates one
    spec["params"] = [*spec.get("params", ()), {"name": "dark", "value": False}, {"name": "across", "value": WIDTH}]
    spec["datasets"] = {
        name: json.loads(frame.to_json(orient="records", double_precision=8)) for name, frame in data.items()
    }
    spec |= {"description": described, "config": _configuration(), "usermeta": meta}  # late: a chart copies all it has
    spec["title"] = {"text": text(title), "limit": wide}
    return Figure(slug, title, note, described, spec, is_wide)


def curves(
    points: pd.DataFrame,
    styles: Styles,
    x: Any,
    y: Any,
    slug: str,
    title: str,
    note: str = "",
    *,
    levels: Sequence[Level] = (),
    upright: bool = False,
    height: int = 300,
) -> Figure:
    """Marks with intervals and lines, a legend that filters, and axes that zoom.

    points: a line each. label: its name in the legend; style: its name in `styles`, else the label; x, y: its place; x_low,
    x_high, low, high: intervals; x_words, words: its place as the hover has it, else x and y; more: what else it has; line:
    solid | dashed | dotted | dashdot | none; mark, hollow: whether there is a mark, and whether it is hollow; part: what one
    line joins, else the label. All but label, x and y may be missing. x, y: Altair's channels of these fields (`numbers`,
    `names`). levels: lines across, or upright ones.
    """
    titles = {"x": x.to_dict().get("title"), "y": y.to_dict().get("title")}
    points = _cleaned(points, titles)
    across = pd.DataFrame(
        [level for level in levels if math.isfinite(level[1])], columns=["label", "place", "line", "style"]
    )
    across["label"] = across["label"].map(text)
    looks = _looks(points, across, {**styles, **FIXED})
    legend = _legend(list(looks), points.y if y.shorthand == "y:N" else ())

    def look(channel: Any, part: int, **more: Any) -> Any:
        scale = alt.Scale(domain=list(looks), range=[of[part] for of in looks.values()])
        return channel("label:N", scale=scale, legend=legend, **more)

    stroke, shape = look(alt.Stroke, 0), look(alt.Shape, 2)
    fill = look(alt.Fill, 1, condition={"test": "datum.hollow", "value": PAPER})
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=list(_DASHES), range=list(_DASHES.values())), legend=None)
    chosen = alt.selection_point(name="legend", fields=["label"], bind="legend", toggle="true")
    labels = list(dict.fromkeys(points.label))
    beside = {"field": "label", "type": "nominal", "scale": {"domain": labels}}  # marks of several labels at one name
    named = [way for way in (x, y) if way.shorthand.endswith(":N") and len(labels) > 1]
    base = alt.Chart(alt.NamedData("points")).transform_filter(chosen).encode(x=x, y=y)
    base = base.encode(**{f"{way.shorthand[0]}Offset": beside for way in named})
    layers = []
    if len(across):
        rules = alt.Chart(alt.NamedData("levels")).transform_filter(chosen).mark_rule(clip=True, strokeWidth=1.5)
        layers.append(rules.encode(alt.X("place:Q") if upright else alt.Y("place:Q"), stroke=stroke, strokeDash=dash))
    if (points["line"] != "none").any():
        lines = base.transform_filter("datum.line != 'none'").mark_line(clip=True, strokeWidth=2)
        layers.append(lines.encode(stroke=stroke, strokeDash=dash, detail="part:N", order=alt.OrderValue(0)))
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
    chart = alt.layer(*layers, marks.add_params(chosen, zoom), width="container", height=height)
    note += f" The legend names {_MOST_ENTRIES} of {len(looks)}." * (len(looks) > _MOST_ENTRIES)
    described = f"{len(points)} points of {', '.join(labels[:8])}{', ...' * (len(labels) > 8)}."
    data = {"points": points, "levels": across}
    return finished(chart, data, slug, title, note.strip(), described, is_wide=y.shorthand == "y:N", titles=titles)


def _cleaned(points: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """All columns, without points that have no finite place; texts on one line."""
    optional = ("style", "x_low", "x_high", "low", "high", "x_words", "words", "more", "line", "mark", "hollow", "part")
    points = points.reindex(columns=list(dict.fromkeys([*points.columns, *optional])))
    points = points.replace([math.inf, -math.inf], math.nan).dropna(subset=["x", "y"])[:_MOST_POINTS].reset_index(drop=True)
    for name in ("label", "x", "y"):
        if not pd.api.types.is_numeric_dtype(points[name]):
            points[name] = points[name].map(text)
    points = points.astype(dict.fromkeys(("style", "x_words", "words", "line", "part"), object))
    points = points.assign(line=points.line.fillna("solid"), mark=points["mark"].ne(False), hollow=points.hollow.eq(True))
    for name, other in (("part", "label"), ("style", "label"), ("x_words", "x"), ("words", "y")):
        points[name] = points[name].fillna(points[other])
    points["hover"] = ["\n".join(text(line, 1000) for line in _hover(point, titles)) for point in points.itertuples()]
    return points.drop(columns=["x_words", "words", "more"])


def _hover(point: Any, titles: Mapping[str, str]) -> Iterator[str]:
    yield point.label
    for title, value in ((titles["x"], point.x_words), (titles["y"], point.words)):
        yield f"{title}: {text_of(value)}" if title.strip() else text_of(value)
    if isinstance(point.more, str) and point.more:
        yield point.more


def _looks(points: pd.DataFrame, levels: pd.DataFrame, styles: Styles) -> dict[str, tuple[str, str, str]]:
    """Label -> colour, fill and symbol. What is hollow everywhere, or has no mark, is so in the legend."""
    looks = {}
    for label, line, style in zip(levels.label, levels.line, levels["style"], strict=True):
        looks[label] = (styles.get(style, (GREY, ""))[0], "transparent", _STROKES[line])
    for label, of in points.groupby("label", sort=False):
        colour, mark = styles.get(of["style"].iloc[0], (GREY, "circle"))
        symbol = mark if of.mark.any() else _STROKES[of.line.iloc[0]]
        looks[label] = (colour, colour if of.mark.any() and not of.hollow.all() else "transparent", symbol)
    return looks


def _legend(names: Sequence[str], beside: Sequence[str]) -> alt.Legend | None:
    """In as many columns as there is room for. beside: the names beside the vertical axis."""
    taken = min(_LETTER * max(map(len, beside), default=4) + 40, 440)
    room = f"(across - min({taken:.0f}, across < 460 ? 190 : 440))"
    columns = alt.expr(f"max(1, min({min(len(names), 4)}, floor({room} / {_LETTER * max(map(len, names)) + 40:.0f})))")
    limit = alt.expr(f"{room} - 20")
    return alt.Legend(values=list(names)[:_MOST_ENTRIES], columns=columns, labelLimit=limit, symbolLimit=0, title=None)


def numbers(channel: Any, title: str, *, log: int = 0, whole: int = 0) -> Any:
    """The axis of the field x or y for numbers. channel: alt.X or alt.Y. whole: of whole numbers up to this one."""
    which = "x" if channel is alt.X else "y"
    kind: dict[str, Any] = {"type": "log", "base": log} if log else {"zero": False}
    axis: dict[str, Any] = {"format": "d"} if whole else {"format": "~g"} if log else {}
    count = alt.expr(f"min({whole or 99}, across / 90)") if which == "x" else 6
    return channel(
        f"{which}:Q",
        title=text(title),
        scale=alt.Scale(padding=12, nice=False, **kind),
        axis=alt.Axis(tickCount=count, **axis),
    )


def names(channel: Any, title: str, order: Sequence[str]) -> Any:
    """The axis of the field x or y for names, in this order; turned below it where they need more than their place."""
    order = [text(name) for name in order]
    room = len(order) * (_LETTER * max((min(len(name), 26) for name in order), default=1) + 8)
    narrow = f"across < {room + 70:.0f}"
    if channel is alt.Y:
        axis = alt.Axis(
            labelExpr="across < 460 ? split(datum.label, ', ') : datum.label",  # a line for each option where it is narrow
            labelLimit=alt.expr("across < 460 ? 150 : 400"),
            labelFontSize=alt.expr("across < 460 ? 10 : 12"),
            labelLineHeight=10,
            grid=False,
        )
    else:
        axis = alt.Axis(
            labelAngle=alt.expr(f"{narrow} ? -38 : 0"),
            labelAlign=alt.expr(f"{narrow} ? 'right' : 'center'"),
            labelBaseline=alt.expr(f"{narrow} ? 'middle' : 'top'"),
            labelLimit=170,
            labelOverlap=False if len(order) <= 24 else "greedy",
            grid=False,
        )
    which = "x" if channel is alt.X else "y"
    scale = alt.Scale(type="band", paddingInner=0.6, paddingOuter=0.3)
    return channel(f"{which}:N", title=text(title), sort=order, scale=scale, axis=axis)


def text(value: Any, most: int = 300) -> str:
    """A text of others on one line, without characters that can't be printed.

    Vega looks names up in objects, and finds there what every object of JavaScript has: such a name gets a space.
    """
    line = shown(value, most) or " "
    return f"{line} " if line in _OF_EVERY_OBJECT else line


def heat_map(
    cells: pd.DataFrame, slug: str, title: str, note: str = "", *, low: float = 0.5, high: float = 1.0, log: bool = False
) -> Figure:
    """A table of values as colours, white at `low` and dark red at `high`, with each value in its cell.

    cells: a line each, column by column. group, column, row: its place; value; words: what is written in place of the value;
    full: what the hover has in place of it. All but the place may be missing. A group without a name has no colours: facts
    on the rows. On a narrow page the script of the page shows a table in place of the figure.
    """
    cells = cells.reindex(columns=["group", "column", "row", "value", "words", "full"]).reset_index(drop=True)
    cells = cells.assign(
        value=cells.value.astype(float), **{name: cells[name].map(text) for name in ("group", "column", "row")}
    )
    place = cells.value.clip(lower=low)
    place = (np.log(place / low) / np.log(high / low) if log else (place - low) / (high - low)).clip(0, 1)
    is_fact = cells.group == " "
    cells["shade"] = np.where(is_fact, "", [_shade(value) for value in place])
    cells["dark"] = (place > _DARK) & ~is_fact
    values = ["" if math.isnan(value) else f"{value:.2f}" for value in cells.value]
    cells["words"] = [text(value if pd.isna(word) else word, 32) for word, value in zip(cells.words, values, strict=True)]
    full = [p.words if pd.isna(p.full) else p.full for p in cells.itertuples()]
    cells["hover"] = [f"{p.row}\n{p.column}: {said}" for p, said in zip(cells.itertuples(), full, strict=True)]
    cells["part"] = cells.groupby("group", sort=False).ngroup()
    rows = list(dict.fromkeys(cells.row))
    bare: dict[str, Any] = {"domain": False, "ticks": False}
    axis = alt.Axis(labelLimit=320, labelPadding=8, **bare)
    extent = min(_LETTER * cells.column.str.len().max() + 6, 206)
    head = alt.Axis(orient="top", labelAngle=-90, labelLimit=200, minExtent=extent, titleAnchor="start", **bare)
    across = alt.Scale(type="band", paddingInner=0.02, paddingOuter=0)
    charts = []
    for number, (group, of) in enumerate(cells.groupby("group", sort=False)):
        titled: dict[str, Any] = {"title": group if group != " " else "\u00a0", "sort": list(dict.fromkeys(of.column))}
        x = alt.X("column:N", axis=head, scale=across, **titled)
        y = alt.Y("row:N", sort=rows, title=None, axis=None if number else axis, scale=alt.Scale(type="band", padding=0.02))
        wide = alt.Step(max(42.0, _LETTER * of.words.str.len().max() + 10))
        base = alt.Chart(alt.NamedData("cells"), width=wide, height=alt.Step(23)).encode(x=x, y=y)
        base = base.transform_filter(f"datum.part == {number}")
        on_colours = {"condition": {"test": "datum.dark", "value": "#ffffff"}, "value": "#1c1c1c"}
        words = base.mark_text(fontSize=11).encode(text="words:N", color=alt.value(INK) if group == " " else on_colours)
        boxes = base.mark_rect().encode(color=alt.Color("shade:N", scale=None), tooltip=alt.Tooltip("hover:N"))
        charts.append(words if group == " " else alt.layer(boxes, words))
    known = cells.value[~is_fact].dropna()
    spread = f" Values from {known.min():.3g} to {known.max():.3g}." if len(known) else ""
    described = f"{len(rows)} rows by {cells[~is_fact].column.nunique()} columns.{spread}"
    data = {"cells": cells.drop(columns="full")}
    return finished(alt.hconcat(*charts, spacing=14), data, slug, title, note, described, is_wide=True, heat=True)


def _shade(place: float) -> str:
    """From white at 0 to dark red at 1; grey for nan."""
    if math.isnan(place):
        return "#e4e4e4"
    parts = ((255, 253, 239, 165), (255, 219, 122, 0), (255, 160, 74, 38))  # of red, green and blue
    return "#" + "".join(f"{round(np.interp(place, (0, 1 / 3, 2 / 3, 1), shades)):02x}" for shades in parts)


def charts(section: Section) -> list[Figure]:
    """The figures of a section that show leaks and utility: plane, sweeps, layers and epochs; of one run its own."""
    made = [plane(section)] if len(section.settings) > 1 else []
    made += [*sweep_figures(section), known_labels_figure(section)]
    made += run_figures(section) if len(section.runs) == 1 else [*layer_figures(section), *epoch_figures(section)]
    return [figure for figure in made if figure is not None]


def plane(section: Section) -> Figure | None:
    """Utility against leak: a mark per setting, and the front through those of `Section.front` that none dominates."""
    utility, leak = (spread(section.over_seeds(name)) for name in (section.x, section.y))
    points = leak.merge(utility.rename(columns=ACROSS), on="setting").dropna(subset=["x", "y"])
    if points.empty:
        return None
    front, left_out = section.front
    points = points.assign(hollow=~points.setting.isin(front), more=points.setting.map(left_out), line="none")
    low = [any(word in name for word in _LOWER_IS_BETTER) for name in (section.x, section.y)]
    best = points[~points.hollow].sort_values(["x", "y"], ascending=[low[0], low[1]])
    best = best[best.y == (best.y.cummin() if low[1] else best.y.cummax())].drop_duplicates("y")
    line = best[["x", "y"]].assign(setting="Pareto front", line="dashed", mark=False)
    note = (
        f"Each mark is one setting: mean over its seeds with 95 % t-interval. The leak is taken {section.where}, of the "
        f"attack that reads most. {'Left' if low[0] else 'Right'} and {'low' if low[1] else 'high'} is better."
    )
    hollow = " Hollow: on no front with the others, for other attacks, rows or epochs, or as the model learned nothing."
    points = pd.concat([line] * (len(line) > 1) + [points]).rename(columns={"setting": "label"})
    axes = numbers(alt.X, section.titled(section.x)), numbers(alt.Y, section.titled(section.y))
    slug, note = f"{section.slug}_plane", note + hollow * bool(left_out)
    return curves(points, section.styles, *axes, slug, "Privacy and utility", note, levels=_coin(section.y))


def sweep_figures(section: Section) -> list[Figure]:
    """Utility, every attack's leak and the promised ceilings along each option that varies as a number."""
    found = []
    leaves = {one.name: flat(one.runs[0].config) for one in section.groups}
    options = section.settings.options
    for key in dict.fromkeys(section.by or (key for of in options for key in of)):
        for name, of in leaves.items():
            if isinstance(of.get(key), int | float) and not isinstance(of[key], bool) and of[key] == of[key]:
                rest = in_words({other: of.get(other) for other in options[name] if other != key})
                found.append((key, ", ".join([section.settings.defense[name], *rest]), name, of[key]))
    frame = pd.DataFrame(found, columns=["key", "rest", "setting", "value"])
    families = [one for one in frame.groupby(["key", "rest"], sort=False) if one[1].value.nunique() > 1]
    families = sorted(families, key=lambda one: -len(one[1]))[:MOST_SWEEPS]
    several = len({key for (key, _), _ in families}) < len(families)
    return [
        _sweep(section, key, rest, dict(zip(of.setting, of.value, strict=True)), place * several)
        for place, ((key, rest), of) in enumerate(families, 1)
    ]


def _sweep(section: Section, key: str, rest: str, values: Mapping[str, float], place: int) -> Figure:
    """values: setting -> value. place: counted where an option has several sweeps, whose titles say what stays the same."""
    option, head = key.rsplit(".", 1)[-1], section.leak_column
    leaks = section.leaks[section.leaks.counts & section.leaks.setting.isin(values)]
    attacks = strongest(leaks, head)
    leaks = leaks[leaks.is_reference | leaks.attack.isin(attacks[:MOST_LINES])]
    of_references = np.where(leaks.attack.str.startswith(PROBE), PROBE, OWN)
    leaks = leaks.assign(
        label=leaks.attack + np.where(leaks.is_reference, ", reference", ""),
        style=np.where(leaks.is_reference, of_references, leaks.attack),
    )
    keys = ["label", "style", "setting", "is_reference"]
    points = spread(over_seeds(leaks.groupby([leaks.index, *keys], sort=False)[head].max().reset_index(), keys, head))
    has_references = points.is_reference.any()
    utility = spread(section.over_seeds(section.x)).assign(label=section.titled(section.x), line="dashed")
    runs = section.runs[section.runs.setting.isin(values)]
    points = pd.concat(
        [utility[utility.setting.isin(values)], points.rename(columns={"is_reference": "hollow"}), *_ceilings(runs)]
    )
    points = points.assign(value=points.setting.map(values)).sort_values("value", kind="stable")
    points["x"] = points.value.map(in_short)
    note = (
        f"Leaks {section.where}: means over seeds with 95 % t-intervals. Ceilings are what the defenses promise for one run."
        f"{_OF_REFERENCES * int(has_references)}{assumptions(runs.run)}"
        f"{_of_all(attacks[:MOST_LINES], attacks)}{f' Here: {rest}.' * bool(place)}"
    )
    title = within(f"Along {option}{f': {rest}' * bool(place)}", 62)
    what = f"{'AUC' if 'auc' in head else 'share'}, leaks {section.where}"
    axes = names(alt.X, key, points.x.unique()), numbers(alt.Y, what)
    slug = f"{section.slug}_along_{slugged(option)}{f'_{place}' * bool(place)}"
    return curves(points, section.styles, *axes, slug, title, note, levels=_coin(head))


def _ceilings(runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What the defenses promise, one line where one message and all have the same ceiling.

    The label says in how many runs what the ceiling assumes was found not to hold.
    """
    promises = [[promise for promise in run.summary.guarantees.values() if promise is not None] for run in runs.run]
    failed = [any(promise.assumption_holds is False for promise in of) for of in promises if of]
    said = f" (assumption fails in {sum(failed)} of {len(failed)} runs)" if any(failed) else ""
    one, every = (
        runs.run.map(lambda run, name=name: ceiling(run, f"leak_auc_{name}"))
        .groupby(runs.setting, sort=False)
        .max()
        .dropna()
        for name in ("one_message", "all_messages")
    )
    heights = {"one message": (one, "dotted"), "all messages of a run": (every, "dashed")}
    for what, (height, line) in (
        {"one message and all of a run": (every, "dashed")} if one.equals(every) else heights
    ).items():
        yield height.rename("y").reset_index().assign(label=f"promised ceiling, {what}{said}", mark=False, line=line)


def layer_figures(section: Section) -> list[Figure]:
    """For each of the strongest attacks its leak at every layer, a line per setting, at the party where it is largest."""
    head = section.leak_column
    every = strongest(section.counted, head)
    leaks, left_out = _some(section, section.leaks)
    same = [leaks.index.rename("run"), "setting", "attack", "layer"]
    leaks = leaks[leaks.visible == leaks.groupby(same).visible.transform("any")]
    largest = leaks.groupby([leaks.index.rename("run"), *same[1:], "visible"], sort=False)[head].max().reset_index()
    made = []
    for attack in every[:MOST_ATTACKS]:
        of = largest[largest.attack == attack].rename(columns={"setting": "label"})
        if of.layer.nunique() > 1:
            points = _by_layer(
                spread(over_seeds(of, ["label", "layer", "visible"], head)), [run.layers for run in section.runs.run]
            )
            note = "Hollow: layers of the label party, which no attacker sees." * int(points.hollow.any())
            axes = names(alt.X, "layer, input to output", points.x.unique()), numbers(alt.Y, LEAKS[head])
            slug, title = f"{section.slug}_layers_{slugged(attack)}", f"Leak at every layer: {attack}"
            note = f"{note}{left_out}{_of_all(every[:MOST_ATTACKS], every)}".strip()
            made.append(curves(points, section.styles, *axes, slug, title, note, levels=_coin(head)))
    return made


def epoch_figures(section: Section) -> list[Figure]:
    """Utility per epoch, and the leak at the cut to the attack that is the worst in the last epoch."""
    runs, left_out = _some(section, section.runs)
    rows = pd.concat([measurements(p.run).assign(label=p.setting, run=p.Index) for p in runs.itertuples()])
    if not rows.epoch.max() > 0:
        return []
    metric = {"test_accuracy": "accuracy"}.get(section.x, "auc")
    leak = section.y if section.y in ("leak_accuracy", "leak_ami") else "leak_auc"
    utility = rows[(rows.split == "test") & (rows.metric == metric)]
    leaks = _readings(rows) if leak == "leak_auc" else rows[rows.metric == leak]
    leaks = leaks[leaks.visible & leaks.cut & (leaks.attack == leaks.run.map(section.worst))]
    leaks = leaks.groupby(["label", "run", "epoch"], sort=False).value.max().reset_index()
    score, name = f"test {metric.replace('auc', 'AUC')}", "leak AUC" if leak == "leak_auc" else leak.replace("_", " ")
    made = []
    for slug, title, axis, of, figure, levels in (
        ("utility", f"T{score[1:]} per epoch", score, utility, metric, ()),
        ("leak", "Worst leak at the cut per epoch", name, leaks, leak, _coin(leak)),
    ):
        points = spread(over_seeds(of, ["label", "epoch"], "value", figure)).rename(columns={"epoch": "x"})
        axes = numbers(alt.X, "epoch", whole=rows.epoch.max()), numbers(alt.Y, axis)
        note, slug = f"Means over seeds with 95 % t-intervals.{left_out}", f"{section.slug}_epochs_{slug}"
        made += [curves(points, section.styles, *axes, slug, title, note, levels=levels)] if len(points) else []
    return made


def run_figures(section: Section) -> list[Figure]:
    """Of one run: AUC per epoch, and the last epoch's leak at every layer. Each attack where it is largest."""
    run = section.runs.run[0]
    rows = measurements(run)
    if rows.empty:
        return []
    last = rows[rows.epoch == rows.epoch.max()]
    if (last.metric == "leak_auc_two_sided").any():
        kinds = [("layers", "leak AUC", _readings(last), [*_of_model(last, run, "auc"), COIN])]
    else:
        majority = max(run.manifest.data.train_class_ratios, default=math.nan)
        most = (f"{majority:.3f}, always the most frequent class", majority, "solid", "")
        ami, accuracy = (last[last.metric == metric] for metric in ("leak_ami", "leak_accuracy"))
        kinds = [("layers_ami", "adjusted mutual information", ami, [("0", 0.0, "solid", "")])]
        kinds += [("layers_accuracy", "accuracy", accuracy, [*_of_model(last, run, "accuracy"), most])]
    made = [_run_epochs(section, run, rows)] if rows.epoch.max() > 0 else []
    return made + [_run_layers(section, run, of, slug, name, levels) for slug, name, of, levels in kinds if len(of)]


def _of_model(last: pd.DataFrame, run: Run, metric: str) -> Iterator[Level]:
    """A line across for the test and the train figure of the model, or for what a recording says of it."""
    for split, line in (("test", "dashdot"), ("train", "dotted")):
        values = list(last[(last.split == split) & (last.metric == metric)].value)
        for value in values or [getattr(run.manifest.model, f"{split}_{metric}", None)]:
            if value is not None:
                yield f"{split} {metric.replace('auc', 'AUC')} {value:.3f}", value, line, ""


def _run_epochs(section: Section, run: Run, rows: pd.DataFrame) -> Figure:
    """Test and train AUC, and each attack's leak at the layer and party where it is largest."""
    utility = rows[(rows.metric == "auc") & rows.split.isin(["test", "train"])]
    is_train = utility.split == "train"
    utility = utility.assign(label=utility.split + " AUC", hollow=is_train, line=np.where(is_train, "dotted", "solid"))
    seen = _readings(rows)
    seen = seen if len(seen) else rows[rows.metric == "leak_macro_auc"]
    seen = seen[seen.visible]
    drawn, note = _few(seen[~seen.reference], run)
    seen = pd.concat([drawn, *_references(seen)])
    largest = seen.loc[seen.groupby(["attack", "epoch"], sort=False).value.idxmax().dropna()]
    points = _of_batches(pd.concat([utility, largest])).assign(more=lambda points: points.layer)
    note = f"Each attack at the layer and party where it is largest. {note}".strip()
    axes = numbers(alt.X, "epoch", whole=rows.epoch.max()), numbers(alt.Y, "AUC")
    title = f"{'Model and leak' if len(utility) else 'Leak'} per epoch"
    points = points.rename(columns={"epoch": "x"})
    return curves(points, section.styles, *axes, f"{section.slug}_epochs", title, note, levels=[COIN])


def _run_layers(section: Section, run: Run, rows: pd.DataFrame, slug: str, name: str, levels: Sequence[Level]) -> Figure:
    """The leak at every layer with intervals over batches; hollow: no attacker sees the layer. A kind of line per party."""
    for of in _references(rows):
        label, value = of.label.iloc[0], of.value.max()
        levels = [*levels, (f"{label} {value:.3f}", value, "solid", of["style"].iloc[0])]
    points, note = _few(rows[~rows.reference], run)
    parties = list(points[points.visible].party.unique())
    if len(parties) > len(_DASHES) - 1:
        points = points.loc[points.groupby(["label", "layer"], sort=False).value.idxmax().dropna()]
        parties = []
    lines = dict(zip(parties, ("solid", "dashed", "dashdot"), strict=False))
    points = points.assign(line=[lines.get(party, "solid") for party in points.party], part=points.label + points.party)
    points = _by_layer(_of_batches(points), [run.layers])
    said = f" Lines: {', '.join(f'{line} party {party}' for party, line in lines.items())}." * (len(lines) > 1)
    what = f"Epoch {rows.epoch.max()}; means with 95 % intervals over batches."
    hidden = " Hollow: no attacker sees the layer." * int(points.hollow.any())
    note = f"{what}{hidden}{said} {note}".strip()
    axes = names(alt.X, "layer, input to output", points.x.unique()), numbers(alt.Y, name)
    title = f"Label leakage per layer{f', {name}' * (name != 'leak AUC')}"
    return curves(points, section.styles, *axes, f"{section.slug}_{slug}", title, note, levels=levels)


def known_labels_figure(section: Section) -> Figure | None:
    """What `completion` reads by the number of known labels: a colour per setting, a kind of line per message."""
    found: dict[str, tuple[str, int]] = {}
    for run in section.runs.run:
        for name, node in (run.config.get("attack") or {}).items():
            if str((node or {}).get("_target_")).endswith(".Completion"):
                found[name] = (node.get("message", "embeddings"), node.get("known", 100))
    leaks, left_out = _some(section, section.counted[section.counted.name.isin(list(found))])
    leaks = leaks.assign(message=[found[name][0] for name in leaks.name], known=[found[name][1] for name in leaks.name])
    if leaks.known.nunique() < 2:
        return None
    keys = ["setting", "message", "known"]
    largest = leaks.groupby([leaks.index, *keys]).leak_two_sided.max().reset_index().sort_values("known")
    points = spread(over_seeds(largest, keys, "leak_two_sided")).rename(columns={"setting": "label"})
    lines = dict(zip(sorted(leaks.message.unique(), reverse=True), _DASHES, strict=False))
    points = points.assign(x=points.known.astype(str), line=points.message.map(lines), part=points.label + points.message)
    points["hollow"] = points.line != "solid"
    axes = names(alt.X, "rows whose labels are known", points.x.unique()), numbers(alt.Y, "two-sided leak AUC of completion")
    said = ", ".join(f"{line} {message}" for message, line in lines.items())
    note = f"Leaks {section.where}. Lines: {said}. Means over seeds with 95 % t-intervals.{left_out}"
    slug, title = f"{section.slug}_along_known_labels", "Leak by the number of known labels"
    return curves(points.assign(more=points.message), section.styles, *axes, slug, title, note, levels=[COIN])


def measurements(run: Run) -> pd.DataFrame:
    """The rows of metrics.csv, none where it can't be read, with more columns.

    attack, label: with its message, as `norm on gradients`. cut: whether the layer crosses at its party. reference: whether
    it is no attack.
    """
    rows = pd.DataFrame(columns=COLUMNS)
    with suppress(OSError, UserError):  # a run without curves is still a run
        rows = pd.DataFrame(run.rows, columns=COLUMNS)
    attacks = [attack_on(*pair) for pair in zip(rows.attack, rows.message, strict=True)]
    return rows.assign(
        cut=[run.layers.crosses(*place) for place in zip(rows.party, rows.layer, strict=True)],
        reference=(rows.message == "none") | rows.attack.map(lambda attack: level_of(attack, {}) == REFERENCE),
        attack=attacks,
        label=attacks,
        visible=rows.visible.eq(True),
    )


def _readings(rows: pd.DataFrame) -> pd.DataFrame:
    """What leaks count as: each row of `leak_auc_two_sided`, or that of `leak_auc_net` where this is larger."""
    rows = rows[rows.metric.isin(["leak_auc_net", "leak_auc_two_sided"])]
    ordered = rows.sort_values(["value", "metric"], kind="stable", na_position="first")  # of equal ones the two-sided
    same = [name for name in ("run", "epoch", "party", "layer", "attack") if name in rows]
    return ordered.drop_duplicates(same, keep="last").sort_index()


def _few(rows: pd.DataFrame, run: Run) -> tuple[pd.DataFrame, str]:
    """The rows of at most MOST_LINES attacks, and a sentence on those that are left out.

    Those are the verdict's worst, the strongest on each kind of message, and the strongest of the others in the last epoch.
    """
    last = rows.assign(value=rows.value.where(rows.visible & (rows.epoch == rows.epoch.max()), -1.0))
    strength = last.groupby(["attack", "message"], sort=False).value.max().sort_values(ascending=False, kind="stable")
    strength, worst = strength.reset_index(), run.summary.verdict.worst
    first = strength.attack[strength.attack == (attack_on(worst.attack, worst.message) if worst else "")]
    every = list(strength.attack)
    drawn = list(dict.fromkeys([*first, *strength.drop_duplicates("message").attack, *every]))[:MOST_LINES]
    said = "the worst of the verdict, the strongest on each kind of message, and the strongest of the others"
    note = f"Drawn are {len(drawn)} of {len(every)} attacks: {said}. metrics.csv has all." * (len(drawn) < len(every))
    return rows[rows.attack.isin(drawn)], note


def _references(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of the probe, and of the strongest attack on own columns."""
    rows = rows[rows.reference & rows.visible & rows.value.notna()]
    style = rows.attack.map(lambda attack: PROBE if base_name(attack) == PROBE else OWN)
    for name, knows in ((PROBE, "half of the labels known"), (OWN, "own features alone")):
        of = rows[style == name]
        if len(of):
            strongest_one = of.loc[of.value.idxmax(), "attack"]
            yield of[of.attack == strongest_one].assign(label=f"{strongest_one}, {knows}", style=name)


def spread(values: pd.Series) -> pd.DataFrame:
    """y, low, high: the means and intervals, as `over_seeds` makes them, beside the index as columns. words: the same."""
    keys = values.index.to_frame(index=False)
    ends = {"y": "mean", "low": "low", "high": "high"}
    return keys.assign(words=list(values), **{name: [getattr(v, end) for v in values] for name, end in ends.items()})


ACROSS = {"y": "x", "low": "x_low", "high": "x_high", "words": "x_words"}
"""Columns of `spread` -> those of what stands along the other axis."""


def strongest(leaks: pd.DataFrame, figure: str) -> list[str]:
    """The attacks on messages, the one with the largest mean leak in any setting first."""
    leaks = leaks[~leaks.is_reference]
    of_runs = leaks.groupby(["attack", "setting", leaks.index], sort=False)[figure].max()
    means = of_runs.groupby(["attack", "setting"], sort=False).mean().groupby("attack", sort=False).max()
    return list(means.sort_values(ascending=False, kind="stable").index)


def _some(section: Section, frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Lines of at most MOST_LINES settings, the first and the last among them, and a sentence on the others."""
    every = list(section.settings.index)
    if len(every) <= MOST_LINES:
        return frame, ""
    kept = [every[round(i * (len(every) - 1) / (MOST_LINES - 1))] for i in range(MOST_LINES)]
    return frame[frame.setting.isin(kept)], f" {len(kept)} of {len(every)} settings, evenly chosen; the tables have all."


def _coin(figure: str) -> list[Level]:
    return [COIN] if "auc" in figure or figure in ("leak_two_sided", "leak_oriented", "leak_raw") else []


def _of_all(drawn: Sequence[str], every: Sequence[str]) -> str:
    """How many attacks have no line or figure; nothing where all have one."""
    return f" Drawn are {len(drawn)} of {len(every)} attacks, those with the largest leaks." * (len(drawn) < len(every))


def _of_batches(rows: pd.DataFrame) -> pd.DataFrame:
    """Intervals and words of rows of metrics.csv."""
    rows = rows.assign(y=rows.value, low=np.fmin(rows.ci_low, rows.value), high=np.fmax(rows.ci_high, rows.value))
    return rows.assign(words=[Interval(*value) for value in zip(rows.y, rows.low, rows.high, strict=True)])


def _by_layer(points: pd.DataFrame, layers: Sequence[Layers]) -> pd.DataFrame:
    """From input to output. What no attacker sees is hollow and dotted, and a line of its own."""
    order, crossing = merged_order(layers), {name for of in layers for name in of.crossing}
    points = points.sort_values("layer", key=lambda layer: layer.map(order.index), kind="stable")
    line, part = (points.get(name, default) for name, default in (("line", "solid"), ("part", points.label)))
    return points.assign(
        x=[marked(layer, layer in crossing) for layer in points.layer],
        hollow=~points.visible,
        line=np.where(points.visible, line, "dotted"),
        part=part + np.where(points.visible, "", " "),
    )


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

    across = 900 if figure.is_wide else WIDTH  # names beside it take up to 400
    params = [param | {"value": across} if param["name"] == "across" else param for param in figure.spec["params"]]
    spec = {**figure.spec, "params": params}
    if spec.get("width") == "container":
        spec |= {"width": across, "autosize": {"type": "fit-x", "contains": "padding"}}
    drawn = vl_convert.vegalite_to_svg(json.dumps(spec, allow_nan=False), vl_version=_VEGA_LITE, allowed_base_urls=[])
    return str(drawn)


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, with their licences in its first comment.

    They compute expressions by an interpreter, so that a page's Content-Security-Policy needs no `unsafe-eval`.
    """
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # whose annotations ask for what it does without
    licences = Path(__file__).with_name("templates").joinpath("vega_licences.txt").read_text("utf-8")
    return f"/*!\n{licences}*/\n{bundle(vl_version=_VEGA_LITE)}\n"


def digest(script: str) -> str:
    """As a Content-Security-Policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def marked(layer: str, crosses: bool) -> str:
    """`f5 (cut)` of a layer that crosses; a layer that is called `cut` says so itself."""
    return f"{layer} (cut)" if crosses and layer != "cut" else layer


def merged_order(runs: Iterable[Layers]) -> list[str]:
    """The layers of several runs in one order: a layer that only some have comes after its predecessor there."""
    merged: list[str] = []
    for order in sorted((layers.order for layers in runs), key=len, reverse=True):
        for place, layer in enumerate(order):
            if layer not in merged:
                merged.insert(merged.index(order[place - 1]) + 1 if place else 0, layer)
    return merged
