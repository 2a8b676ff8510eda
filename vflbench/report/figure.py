"""A figure: one Vega-Lite specification from which a page, SVG, PNG and PDF are made.

Texts of runs are values of data under fixed field names, values of parameters, or plain titles. None is part of an
expression or of a field's name, so that no name of a run is ever computed with.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from vflbench.results.untrusted import shown

WIDTH = 560
"""Pixels of a figure in a file; on a page it is as wide as its place."""
FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, Arial, DejaVu Sans, sans-serif"
INK = alt.expr("dark ? '#ececec' : '#1c1c1c'")
SOFT = alt.expr("dark ? '#b4b9bf' : '#55595e'")
RULE = alt.expr("dark ? '#3a3e44' : '#e2e4e7'")
PAPER = alt.expr("dark ? '#16181b' : '#ffffff'")
_AXIS = {
    "labelColor": INK.to_dict(),
    "titleColor": INK.to_dict(),
    "labelFontSize": 12,
    "titleFontSize": 13,
    "titleFontWeight": "normal",
    "gridColor": RULE.to_dict(),
    "domainColor": SOFT.to_dict(),
    "tickColor": SOFT.to_dict(),
    "labelOverlap": "greedy",
    "titlePadding": 8,
    "titleLimit": 300,
}
_LEGEND = {
    "title": None,
    "orient": "bottom",
    "direction": "horizontal",
    "labelColor": INK.to_dict(),
    "labelFontSize": 12,
    "symbolSize": 80,
    "symbolStrokeWidth": 1.8,
    "offset": 12,
    "rowPadding": 4,
}
_CONFIGURATION: Mapping[str, Any] = {
    "aria": False,
    "background": PAPER.to_dict(),
    "font": FONT,
    "axis": _AXIS,
    "legend": _LEGEND,
    "title": {"color": INK.to_dict(), "fontSize": 15, "fontWeight": 600, "anchor": "start", "offset": 12},
    "view": {"stroke": None},
    "text": {"color": INK.to_dict(), "fontSize": 12},
}
_LONG = 1_000  # characters of a text that is shown on hover
_ALT = 500
_OF_EVERY_OBJECT = frozenset(
    (
        *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"),
        *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    )
)


@dataclass(frozen=True)
class Figure:
    """slug: the name of its files. note: sentences below it. alt: what it shows, for those who can't see it.

    spec: Vega-Lite, its data in `datasets`. Its width is `container` or a number of pixels. A page sets its parameters
    `dark`, and `across`, the pixels that there are for the whole figure; expressions use these, never the width of the plot,
    which is known only when its labels are. is_wide: whether it needs a line of the page for itself.
    """

    slug: str
    title: str
    note: str
    alt: str
    spec: Mapping[str, Any]
    is_wide: bool = False


def finished(
    chart: alt.TopLevelMixin,
    *,
    slug: str,
    title: str,
    note: str,
    alt_text: str,
    data: Mapping[str, Sequence[Mapping[str, Any]]],
    wide: int = WIDTH,
    is_wide: bool = False,
) -> Figure:
    """The figure of a chart. data: the values of its named data sets. wide: pixels, to which its title is cut."""
    described = text(alt_text, _ALT)
    spec = chart.to_dict(validate=False)  # a test validates one
    spec["params"] = [*spec.get("params", ()), {"name": "dark", "value": False}, {"name": "across", "value": WIDTH}]
    spec |= {"description": described, "datasets": dict(data), "config": _CONFIGURATION}  # late: a chart copies all it has
    if title:
        spec["title"] = {"text": text(title), "limit": wide}
    return Figure(slug, title, note, described, spec, is_wide)


def text(value: str, most: int = 200) -> str:
    """A text of others on one line, without characters that can't be printed.

    Vega looks names up in objects, and finds there what every object of JavaScript has: such a name gets a space.
    """
    line = shown(value, most)
    return f"{line} " if line in _OF_EVERY_OBJECT else line


def lines_of(value: str) -> str:
    """A text of several lines, for hovering."""
    return "\n".join(text(line, _LONG) for line in value.split("\n")[:8])


def number(value: float) -> float | None:
    """As JSON has it: eight digits; None for what is no finite number."""
    return float(f"{value:.8g}") if math.isfinite(value) else None
