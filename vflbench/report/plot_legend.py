"""What a plot's legend names: a colour, a fill and a symbol for each series."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from vflbench.report.figure import text
from vflbench.report.palette import GREY, PALETTE
from vflbench.report.plot import Axis, Plot
from vflbench.report.plot_axes import LETTER, NARROW, WIDE

MOST_ENTRIES = 30
LABEL = 160
"""Characters of a label."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
_STROKES = {
    "solid": "M-1.6,0H1.6",
    "dashed": "M-1.6,0h1.2m.8,0h1.2",
    "dotted": "M-1.6,0h.4m.67,0h.4m.67,0h.4m.67,0h.4",
    "dashdot": "M-1.6,0h1.3m.5,0h.4m.5,0h.5",
}
"""Lines -> the same as symbols of a legend, in a square from -1 to 1."""


def labels_of(plot: Plot) -> list[str]:
    """A label for each series. Labels that differ only beyond their end are numbered."""
    cut: dict[str, str] = {}
    for series in plot.series:
        if series.label not in cut:
            label = text(series.label, LABEL) or " "
            taken = set(cut.values())
            cut[series.label] = next(
                s for s in (label, *(f"{label} ({i})" for i in range(2, len(cut) + 3))) if s not in taken
            )
    return [cut[series.label] for series in plot.series]


def looks_of(plot: Plot, labels: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Label -> colour, fill and symbol, of levels in the legend too."""
    looks: dict[str, tuple[str, str, str]] = {}
    for level in plot.levels:
        if level.in_legend and level.label:
            shade = level.colour or GREY
            looks.setdefault(text(level.label, LABEL), (shade, "transparent", _STROKES[level.line]))
    for label, series in zip(labels, plot.series, strict=True):
        shade = series.colour or (GREY if series.look < 0 else PALETTE[series.look % len(PALETTE)])
        symbol = _SHAPES[series.look % len(_SHAPES)] if series.look >= 0 else "circle"
        if not series.marks:
            symbol = _STROKES.get(series.line, "circle")
        looks.setdefault(label, (shade, "transparent" if series.hollow or not series.marks else shade, symbol))
    return looks


def legend_of(looks: Mapping[str, Any], y: Axis) -> alt.Legend | None:
    """In as many columns as there is room for."""
    if not [name for name in looks if name.strip()]:
        return None
    longest = max(map(len, looks)) * LETTER + 40
    beside = LETTER * max((len(text(name, 80)) for _, name in y.ticks), default=4) + 40
    room = f"(across - min({beside:.0f}, across < 460 ? {NARROW + 40} : {WIDE + 40}))"
    columns = alt.expr(f"max(1, min({min(len(looks), 4)}, floor({room} / {longest:.0f})))")
    shown = list(looks)[:MOST_ENTRIES]
    return alt.Legend(values=shown, columns=columns, labelLimit=alt.expr(f"{room} - 20"), symbolLimit=0, title=None)
