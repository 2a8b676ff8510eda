"""Draws a chart as SVG without a library: small, with colours from the page's style and a <title> for each point."""

import math
from collections.abc import Callable, Iterator
from html import escape

from vflbench.results.report.chart import Chart, Point, Series, nice_ticks

Place = Callable[[float, float], tuple[float, float]]
"""Values -> coordinates in the chart."""

WIDTH, PLOT = 720, 340
LEFT, RIGHT, TOP = 64, 18, 34
COLOURS = 7
_ROW = 20
_MOST = 1000  # characters of a text
_DASH = {"solid": "", "dashed": "7 4", "dotted": "2 4", "none": ""}

STYLE = """
svg.chart{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;max-width:100%;height:auto;
--ink:#1c1c1c;--soft:#666;--rule:#ddd;--paper:#fff;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b7578f;--c4:#b27700;--c5:#2f8fc4;--c6:#555;--cn:#777}
@media (prefers-color-scheme:dark){svg.chart{--ink:#eee;--soft:#aaa;--rule:#3a3a3a;--paper:#16181b;
--c0:#4ba6e0;--c1:#ff8a3d;--c2:#2ec39a;--c3:#e39cc6;--c4:#f0b429;--c5:#8fd0f5;--c6:#ccc;--cn:#999}}
@media print{svg.chart{--ink:#000;--soft:#444;--rule:#ccc;--paper:#fff;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b7578f;--c4:#b27700;--c5:#2f8fc4;--c6:#555;--cn:#777}}
svg.chart text{fill:var(--ink)}svg.chart .soft{fill:var(--soft);font-size:12px}svg.chart .rule{stroke:var(--rule)}
svg.chart .axis{stroke:var(--soft)}svg.chart .title{font-weight:600;font-size:14px}
svg.chart g.point:hover .mark,svg.chart g.point:focus .mark{stroke:var(--ink);stroke-width:2.5}
svg.chart g.point{outline:none}
"""


def svg(chart: Chart, *, standalone: bool = False) -> str:
    """standalone: with style and namespace, as a file of its own."""
    x0, x1 = chart.x_range()
    y0, y1 = chart.y_range()

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        return across, TOP + (y1 - y) / (y1 - y0) * PLOT

    parts = [f'<text class="title" x="{LEFT - 44}" y="18">{escape(chart.title[:_MOST])}</text>']
    for tick in nice_ticks(y0, y1):
        _, y = place(x0, tick)
        parts.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    below = _x_ticks(chart, parts, place, (x0, x1, y0))
    parts.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{TOP + PLOT}H{WIDTH - RIGHT}"/>')
    middle = TOP + PLOT / 2
    turned = f'transform="translate(14 {middle}) rotate(-90)" text-anchor="middle"'
    parts.append(f'<text class="soft" {turned}>{escape(chart.y_title[:_MOST])}</text>')
    foot = TOP + PLOT + below + 18
    parts.append(
        f'<text class="soft" x="{(LEFT + WIDTH) / 2}" y="{foot}" text-anchor="middle">{escape(chart.x_title[:_MOST])}</text>'
    )
    for level in chart.levels:
        _, y = place(x0, level.y)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="var(--cn)" stroke-dasharray="5 4"/>')
        parts.append(f'<text class="soft" x="{LEFT + 6}" y="{y + 13:.1f}">{escape(level.label)}</text>')
    for series in chart.series:
        parts += _line(series, place)
    for series in chart.series:
        parts += _points(series, place)
    parts += _tags(chart, place)
    legend, rows = _legend(chart, foot + 24)
    height = foot + 10 + rows * _ROW + 8
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(chart.title[:_MOST])}"'
    if standalone:
        head += f' xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
        parts.insert(0, f'<style>{STYLE}</style><rect width="100%" height="100%" fill="var(--paper)"/>')
    return head + ">" + "".join([*parts, *legend]) + "</svg>"


def _x_ticks(chart: Chart, parts: list[str], place: Place, bounds: tuple[float, float, float]) -> int:
    """Returns the height that they take. Long names are turned."""
    x0, x1, y0 = bounds
    ticks = list(chart.ticks) or [(tick, f"{tick:.6g}") for tick in nice_ticks(x0, x1)]
    room = (WIDTH - LEFT - RIGHT) / max(len(ticks), 1)
    longest = max((len(text) for _, text in ticks), default=0)
    turned = longest * 7 > room
    for tick, text in ticks:
        x, y = place(tick, y0)
        text = text if len(text) <= 24 else text[:23] + "…"
        at = f'transform="translate({x + 4:.1f} {y + 14:.1f}) rotate(-35)" text-anchor="end"'
        at = at if turned else f'x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle"'
        parts.append(f'<text class="soft" {at}>{escape(text)}</text>')
    return 22 + int(min(longest, 24) * 4.2) if turned else 24


def _line(series: Series, place: Place) -> Iterator[str]:
    places = [place(p.x.mean, p.y.mean) for p in series.points if math.isfinite(p.x.mean + p.y.mean)]
    if series.line != "none" and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dash = f' stroke-dasharray="{_DASH[series.line]}"' if _DASH[series.line] else ""
        yield f'<path d="{path}" fill="none" stroke="{_colour(series)}" stroke-width="1.6"{dash}/>'


def _points(series: Series, place: Place) -> Iterator[str]:
    for point in series.points:
        if not math.isfinite(point.x.mean + point.y.mean) or not series.marks:
            continue
        x, y = place(point.x.mean, point.y.mean)
        bars = "".join(_bar(place(*a), place(*b)) for a, b in _whiskers(point))
        whiskers = f'<path d="{bars}" stroke="{_colour(series)}" fill="none" stroke-width="1.2"/>' if bars else ""
        title = f"<title>{escape((point.name or series.label)[:_MOST])}</title>"
        yield f'<g class="point" tabindex="0">{title}{whiskers}{mark(series, x, y)}</g>'


def _whiskers(point: Point) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    x, y = point.x, point.y
    if math.isfinite(y.low + y.high):
        yield (x.mean, y.low), (x.mean, y.high)
    if math.isfinite(x.low + x.high):
        yield (x.low, y.mean), (x.high, y.mean)


def _bar(a: tuple[float, float], b: tuple[float, float]) -> str:
    """A line with a short cap at each end."""
    across = (3, 0) if abs(a[0] - b[0]) < 0.01 else (0, 3)
    caps = "".join(f"M{x - across[0]:.1f} {y - across[1]:.1f}L{x + across[0]:.1f} {y + across[1]:.1f}" for x, y in (a, b))
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}{caps}"


def _tags(chart: Chart, place: Place) -> Iterator[str]:
    """Names beside points; a name for which there is no room is left out."""
    taken: list[tuple[float, float, float, float]] = []
    for point in chart.points():
        if not point.tag or not math.isfinite(point.x.mean + point.y.mean):
            continue
        x, y = place(point.x.mean, point.y.mean)
        text = point.tag if len(point.tag) <= 34 else point.tag[:33] + "…"
        wide = 6.3 * len(text)
        for dx, dy, anchor in ((9, -7, "start"), (9, 15, "start"), (-9, -7, "end"), (-9, 15, "end")):
            left = x + dx - (wide if anchor == "end" else 0)
            box = (left, y + dy - 11, left + wide, y + dy + 3)
            inside = box[0] > LEFT and box[2] < WIDTH - RIGHT + 4 and box[1] > TOP - 4
            if inside and not any(a[0] < box[2] and box[0] < a[2] and a[1] < box[3] and box[1] < a[3] for a in taken):
                taken.append(box)
                yield f'<text class="soft" x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
                break


def _legend(chart: Chart, top: float) -> tuple[list[str], int]:
    parts, x, row = [], float(LEFT - 44), 0
    for series in chart.series:
        if not series.label:
            continue
        label = series.label if len(series.label) <= 88 else f"{series.label[:87]}…"
        wide = 34 + 7.0 * len(label) + 18
        if x + wide > WIDTH and x > LEFT:
            x, row = float(LEFT - 44), row + 1
        y = top + row * _ROW
        dash = f' stroke-dasharray="{_DASH[series.line]}"' if _DASH[series.line] else ""
        if series.line != "none":
            parts.append(f'<path d="M{x:.0f} {y - 4:.0f}h26" stroke="{_colour(series)}" stroke-width="1.6"{dash}/>')
        parts.append(mark(series, x + 13, y - 4) if series.marks else "")
        parts.append(f'<text x="{x + 32:.0f}" y="{y:.0f}">{escape(label)}</text>')
        x += wide
    return parts, row + 1 if parts else 0


def mark(series: Series, x: float, y: float) -> str:
    """A shape for each look, so that series differ not only in colour."""
    colour = _colour(series)
    fill = "var(--paper)" if series.hollow else colour
    shape = _SHAPES[series.look % len(_SHAPES)] if series.look >= 0 else ()
    if not shape:
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
    path = "M" + "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in shape) + "Z"
    return f'<path class="mark" d="{path}" fill="{fill}" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"/>'


_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),  # a circle
    ((-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)),
    ((0, -5.4), (5.0, 3.8), (-5.0, 3.8)),
    ((0, -5.8), (5.8, 0), (0, 5.8), (-5.8, 0)),
    ((0, 5.4), (5.0, -3.8), (-5.0, -3.8)),
    (
        (-1.6, -5),
        (1.6, -5),
        (1.6, -1.6),
        (5, -1.6),
        (5, 1.6),
        (1.6, 1.6),
        (1.6, 5),
        (-1.6, 5),
        (-1.6, 1.6),
        (-5, 1.6),
        (-5, -1.6),
        (-1.6, -1.6),
    ),
    ((-5.4, 0), (3.8, -5.0), (3.8, 5.0)),
    ((5.4, 0), (-3.8, -5.0), (-3.8, 5.0)),
)


def _colour(series: Series) -> str:
    return "var(--cn)" if series.look < 0 else f"var(--c{series.look % COLOURS})"
