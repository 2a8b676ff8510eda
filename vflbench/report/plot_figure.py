"""Makes a figure of a plot: marks with intervals and lines, a legend that filters, tooltips, and axes that zoom."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from vflbench.report import plot as data
from vflbench.report.figure import (
    INK,
    PAPER,
    SOFT,
    WIDTH,
    Figure,
    finished,
    lines_of,
    number,
    text,
)
from vflbench.report.palette import GREY
from vflbench.report.plot import Plot, Point, Series, is_drawn
from vflbench.report.plot_axes import axis, names_of
from vflbench.report.plot_legend import LABEL, MOST_ENTRIES, labels_of, legend_of, looks_of
from vflbench.report.tags import PLACES, Scale, with_places

_DASHES = {"solid": [1, 0], "dashed": [7, 4], "dotted": [2, 3], "dashdot": [8, 3, 2, 3]}
_MOST_POINTS = 5_000
_MANY = 60  # marks, of which more are smaller


def figure_of(plot: Plot) -> Figure:
    """The figure, without what has no finite place."""
    labels = labels_of(plot)
    looks = looks_of(plot, labels)
    across, up = (
        Scale(plot.x_domain(), WIDTH - 70, bool(plot.x.log)),
        Scale(plot.y_domain(), plot.height, bool(plot.y.log)),
    )
    records = with_places(list(_records(plot, labels))[:_MOST_POINTS], across, up)
    levels = [level for level in plot.levels if math.isfinite(level.y)]
    chosen = alt.selection_point(name="legend", fields=["series"], bind="legend", toggle="true")
    zoom = alt.selection_interval(
        name="zoom",
        bind="scales",
        zoom="wheel![event.ctrlKey || event.metaKey]",
        translate="[mousedown, window:mouseup] > window:mousemove!",
    )
    x, y = axis(alt.X("x:Q"), plot.x, plot.x_domain()), axis(alt.Y("y:Q"), plot.y, plot.y_domain())
    legend = legend_of(looks, plot.y)
    names = list(looks)
    stroke = alt.Stroke("series:N", scale=alt.Scale(domain=names, range=[look[0] for look in looks.values()]), legend=legend)
    hollow = {"test": "datum.hollow", "value": "transparent"}
    fills = alt.Fill(
        "series:N",
        condition=hollow,
        scale=alt.Scale(domain=names, range=[look[1] for look in looks.values()]),
        legend=legend,
    )
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names, range=[look[2] for look in looks.values()]), legend=legend)
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=list(_DASHES), range=list(_DASHES.values())), legend=None)
    size = 80 if len(records) <= _MANY else 40
    points = alt.Chart(alt.NamedData(name="points")).transform_filter(chosen)
    if any(series.shift for series in plot.series):
        points, x = points.transform_calculate(shifted="datum.x + (datum.shift || 0)"), _as(x, "shifted")
    lines = points.transform_filter("datum.line != 'none'").mark_line(clip=True, strokeWidth=2)
    layers = [
        *_levels(levels, stroke, dash, chosen),
        lines.encode(x=x, y=y, stroke=stroke, strokeDash=dash, detail=alt.Detail("part:N"), order=alt.OrderValue(0)),
    ]
    if any(record.get("y_low") is not None for record in records):
        bar = points.transform_filter("datum.mark && isValid(datum.y_low)").mark_rule(clip=True, strokeWidth=1.4)
        layers.append(bar.encode(x=x, y=_as(y, "y_low"), y2=alt.Y2("y_high"), stroke=stroke))
    if any(record.get("x_low") is not None for record in records):
        bar = points.transform_filter("datum.mark && isValid(datum.x_low)").mark_rule(clip=True, strokeWidth=1.4)
        layers.append(bar.encode(x=_as(x, "x_low"), x2=alt.X2("x_high"), y=y, stroke=stroke))
    if any(record["hollow"] for record in records):
        under = points.transform_filter("datum.mark && datum.hollow").mark_point(
            clip=True, opacity=1, filled=True, size=size
        )
        layers.append(under.encode(x=x, y=y, shape=shape, color=alt.ColorValue(PAPER)))
    marks = points.transform_filter("datum.mark").mark_point(clip=True, opacity=1, size=size, strokeWidth=1.8)
    tip = alt.Tooltip("name:N")
    layers.append(marks.encode(x=x, y=y, fill=fills, stroke=stroke, shape=shape, tooltip=tip).add_params(chosen, zoom))
    layers += _tags(points, records, x, y)
    titles: dict[str, Any] = {"titles": {"x": text(plot.x.title) or "x", "y": text(plot.y.title) or "y"}}  # of saved data
    titles["names"] = {
        which: [[place, text(name, 80)] for place, name in of.ticks] for which, of in (("x", plot.x), ("y", plot.y))
    }
    chart = alt.layer(*layers, width="container", height=plot.height, usermeta=titles)
    chart = chart.add_params(*names_of("x", plot.x), *names_of("y", plot.y))
    return finished(
        chart,
        slug=plot.slug,
        title=plot.title,
        note=plot.note + f" The legend names {MOST_ENTRIES} of {len(looks)}." * (len(looks) > MOST_ENTRIES),
        alt_text=alt_text(plot),
        data={"points": records, "levels": [_level(level) for level in levels]},
        is_wide=bool(plot.y.ticks),
    )


def _as(channel: Any, field: str) -> Any:
    """The same axis for another field."""
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def _records(plot: Plot, labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    for part, (label, series) in enumerate(zip(labels, plot.series, strict=True)):
        points = [point for point in series.points if _has_place(point, plot)]
        line = series.line if len(points) > 1 else "none"
        for point in points:
            yield _record(point, label, part, series, line, logs=(plot.x.log > 0, plot.y.log > 0))


def _has_place(point: Point, plot: Plot) -> bool:
    """A logarithmic axis has a place only for what is above 0."""
    if not is_drawn(point):
        return False
    return (not plot.x.log or point.x.mean > 0) and (not plot.y.log or point.y.mean > 0)


def _record(point: Point, label: str, part: int, series: Series, line: str, logs: tuple[bool, bool]) -> dict[str, Any]:
    """Intervals only where both ends are numbers and have a place. logs: whether the axes x and y are logarithmic."""
    record: dict[str, Any] = {"series": label, "x": number(point.x.mean), "y": number(point.y.mean)}
    for which, interval, is_log in (("x", point.x, logs[0]), ("y", point.y, logs[1])):
        has_place = math.isfinite(interval.low) and math.isfinite(interval.high) and not (is_log and interval.low <= 0)
        if has_place and interval.low < interval.high:
            record |= {f"{which}_low": number(interval.low), f"{which}_high": number(interval.high)}
    name = lines_of(point.name) or f"{label}\n{point.x.mean:.6g}, {point.y.mean:.6g}"
    record |= {"name": name, "part": part, "line": line, "mark": series.marks, "hollow": series.hollow}
    record |= {"shift": number(series.shift)} if series.shift else {}
    return record | ({"tag": text(point.tag, 34)} if point.tag else {})


def _level(level: data.Level) -> dict[str, Any]:
    label = text(level.label, LABEL)
    named = "" if level.in_legend else label
    return {"y": number(level.y), "series": label, "name": named, "line": level.line, "upright": level.upright} | {
        "in_legend": level.in_legend
    }


def _levels(levels: Sequence[data.Level], stroke: Any, dash: Any, chosen: Any) -> Iterator[alt.Chart]:
    """Lines across, with their names at the left end if the legend has none."""
    base = alt.Chart(alt.NamedData(name="levels"))
    across, upright = alt.Y("y:Q"), alt.X("y:Q")
    for is_upright, place in ((False, {"y": across}), (True, {"x": upright})):
        of_kind = [level for level in levels if level.upright == is_upright]
        kind = base.transform_filter("datum.upright" if is_upright else "!datum.upright")
        if any(level.in_legend for level in of_kind):
            rules = kind.transform_filter("datum.in_legend").transform_filter(chosen)
            yield rules.mark_rule(clip=True, strokeWidth=1.5).encode(**place, stroke=stroke, strokeDash=dash)
        if any(not level.in_legend for level in of_kind):
            rules = kind.transform_filter("!datum.in_legend")
            yield rules.mark_rule(clip=True, strokeWidth=1.3, stroke=GREY).encode(**place, strokeDash=dash)
            if not is_upright:
                names = rules.mark_text(clip=True, align="left", baseline="top", dy=4, color=SOFT)
                yield names.encode(**place, x=alt.XValue(5), text=alt.Text("name:N"))


def _tags(points: alt.Chart, records: Sequence[Mapping[str, Any]], x: Any, y: Any) -> Iterator[alt.Chart]:
    """Names beside marks, on a halo of paper; none on a narrow page, where they would lie on each other."""
    used = {record.get("at") for record in records}
    for at, place in PLACES.items():
        if at not in used:
            continue
        marks = points.transform_filter(f"datum.at == '{at}'")
        style: dict[str, Any] = {
            "clip": True,
            "align": place.align,
            "baseline": "middle",
            "dx": place.dx,
            "dy": place.dy,
            "fontSize": 12,
        }
        shown = alt.expr("across < 460 ? 0 : 1")
        halo = marks.mark_text(**style, stroke=PAPER, strokeWidth=3, opacity=shown)
        yield halo.encode(x=x, y=y, text=alt.Text("tag:N"))
        yield marks.mark_text(**style, color=INK, opacity=shown).encode(x=x, y=y, text=alt.Text("tag:N"))


def alt_text(plot: Plot) -> str:
    """`Privacy and utility. leak AUC against test AUC, 12 points of 3 series: none, marvell, dcor. leak AUC 0.5 to 0.93.`"""
    points = [point for point in plot.points() if is_drawn(point)]
    labels = list(dict.fromkeys(series.label for series in plot.series if series.label.strip()))
    named = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
    heights = [point.y.mean for point in points]
    axes = f"{plot.y.title} against {plot.x.title}" if plot.y.title else plot.x.title
    what = f"{axes}: {len(points)} point{'s' * (len(points) != 1)}"
    of = f" of {len(labels)} series, {named}" if len(labels) > 1 else f" of {named}" if labels else ""
    spread = f" {plot.y.title} from {min(heights):.3g} to {max(heights):.3g}." if heights and not plot.y.ticks else ""
    return f"{plot.title}. {what}{of}.{spread}"
