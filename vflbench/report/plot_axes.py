"""The axes of a plot's figure: number lines, logarithmic ones, and those that name places."""

import math
import textwrap
from itertools import pairwise
from typing import Any

import altair as alt

from vflbench.report.figure import text
from vflbench.report.plot import Axis

LETTER = 6.7
"""Pixels: the mean width of a letter."""
NARROW, WIDE = 150, 400
"""Pixels of a name beside the vertical axis, on a narrow page and else."""
_BESIDE = {
    "labelLimit": alt.expr(f"across < 460 ? {NARROW} : {WIDE}"),
    "labelFontSize": alt.expr("across < 460 ? 11 : 12"),
    "labelLineHeight": 12,
    "labelOffset": alt.expr("across < 460 ? -10 : 0"),
}
"""Names beside the vertical axis, in several lines where there is little room."""


def axis(channel: Any, of: Axis, domain: tuple[float, float]) -> Any:
    """The channel (alt.X or alt.Y) with a scale from one end of the domain to the other, and its axis."""
    kind = {"type": "log", "base": of.log} if of.log else {"type": "linear", "zero": False}
    channel = channel.scale(domain=list(domain), nice=False, **kind).title(text(of.title))
    if of.ticks:
        which = "x" if isinstance(channel, alt.X) else "y"
        label = f"{which}_names[indexof({which}_places, datum.value)]"
        if which == "y":
            label = f"across < 460 ? y_lines[indexof(y_places, datum.value)] : {label}"
        shown_at = {"values": [place for place, _ in of.ticks], "labelExpr": label, "grid": False}
        return channel.axis(**shown_at, **(_turned(of) if which == "x" else _BESIDE))
    if of.whole:
        most = max(1, math.floor(domain[1]) - math.ceil(domain[0]))  # more would have fractions between them
        return channel.axis(format="d", tickCount=alt.expr(f"min({most}, across / 70)"))
    if of.log:
        return channel.axis(format="~g", tickCount=6)
    return channel.axis(tickCount=6) if isinstance(channel, alt.Y) else channel.axis(tickCount=alt.expr("across / 90"))


def _turned(axis: Axis) -> dict[str, Any]:
    """Names that need more than their place are turned."""
    wide = [LETTER * min(len(text(name)), 26) for _, name in axis.ticks]
    room = len(wide) * (max((a + b) / 2 for a, b in pairwise([*wide, wide[-1]])) + 8)
    is_narrow = f"across < {room + 70:.0f}"
    return {
        "labelAngle": alt.expr(f"{is_narrow} ? -38 : 0"),
        "labelAlign": alt.expr(f"{is_narrow} ? 'right' : 'center'"),
        "labelBaseline": alt.expr(f"{is_narrow} ? 'middle' : 'top'"),
        "labelLimit": 170,
        "labelOverlap": False if len(axis.ticks) <= 24 else "greedy",
    }


def names_of(which: str, axis: Axis) -> list[Any]:
    """What the labels of an axis are looked up in."""
    if not axis.ticks:
        return []
    places, names = [place for place, _ in axis.ticks], [text(name, 80) for _, name in axis.ticks]
    made = [alt.param(f"{which}_places", value=places), alt.param(f"{which}_names", value=names)]
    return [*made, alt.param("y_lines", value=[textwrap.wrap(name, 22)[:3] for name in names])] if which == "y" else made
