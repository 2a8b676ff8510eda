"""Draws a chart as PNG with matplotlib, for papers and slides."""

import math
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vflbench.results.report.chart import Chart, Series

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b7578f", "#b27700", "#2f8fc4", "#555555")
_MARKS = ("o", "s", "^", "D", "v", "P", "<", ">")
_LINES = {"solid": "-", "dashed": "--", "dotted": ":", "none": "none"}
_INCH = 100


_MOST_LABELS, _LABEL = 60, 90  # entries of the legend; characters of one


def write_png(chart: Chart, file: Path | BinaryIO) -> None:
    """Texts are drawn as they are: a dollar sign begins no formula."""
    with rc_context({"text.parse_math": False}):
        _write_png(chart, file)


def _write_png(chart: Chart, file: Path | BinaryIO) -> None:
    labels = [series.label for series in chart.series if series.label][:_MOST_LABELS]
    rows = math.ceil(len(labels) / 2)
    height = 4.4 + 0.22 * rows
    figure = Figure(figsize=(7.2, height))
    FigureCanvasAgg(figure)
    below = (0.75 + 0.22 * rows + (0.35 if _is_turned(chart) else 0)) / height
    axes = figure.add_axes((0.1, below, 0.87, 1 - below - 0.4 / height))
    for series in chart.series:
        _draw(axes, series)
    for level in chart.levels:
        axes.axhline(level.y, color="#777777", linewidth=1, linestyle="--")
        axes.annotate(level.label, (0, level.y), (4, -9), ("axes fraction", "data"), "offset points", fontsize=8)
    axes.set_xlim(*chart.x_range())
    axes.set_ylim(*chart.y_range())
    if chart.ticks:
        turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if _is_turned(chart) else {}
        axes.set_xticks([place for place, _ in chart.ticks], [text[:24] for _, text in chart.ticks], fontsize=8, **turn)
    for point in chart.points():
        if point.tag and math.isfinite(point.x.mean + point.y.mean):
            axes.annotate(point.tag[:34], (point.x.mean, point.y.mean), (5, 5), textcoords="offset points", fontsize=7)
    axes.set(xlabel=chart.x_title[:_LABEL], ylabel=chart.y_title[:_LABEL])
    axes.set_title(chart.title[:_LABEL], loc="left", fontsize=10)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    if labels:
        handles, named = axes.get_legend_handles_labels()
        few = handles[:_MOST_LABELS], [text[:_LABEL] for text in named[:_MOST_LABELS]]
        figure.legend(*few, loc="lower left", ncols=2, frameon=False, fontsize=8)
    figure.savefig(file, dpi=_INCH)


def _is_turned(chart: Chart) -> bool:
    return bool(chart.ticks) and max(len(text) for _, text in chart.ticks) * len(chart.ticks) > 90


def _draw(axes: Axes, series: Series) -> None:
    points = [p for p in series.points if math.isfinite(p.x.mean + p.y.mean)]
    colour = "#777777" if series.look < 0 else _COLOURS[series.look % len(_COLOURS)]
    x, y = [p.x.mean for p in points], [p.y.mean for p in points]
    axes.errorbar(
        x,
        y,
        xerr=[[_gap(p.x.mean, p.x.low) for p in points], [_gap(p.x.high, p.x.mean) for p in points]],
        yerr=[[_gap(p.y.mean, p.y.low) for p in points], [_gap(p.y.high, p.y.mean) for p in points]],
        color=colour,
        marker=_MARKS[max(series.look, 0) % len(_MARKS)] if series.marks else "none",
        markerfacecolor="white" if series.hollow else colour,
        linestyle=_LINES[series.line],
        linewidth=1.2,
        elinewidth=0.8,
        markersize=5,
        capsize=2,
        label=series.label or "_",
    )


def _gap(high: float, low: float) -> float:
    return max(high - low, 0.0) if math.isfinite(high - low) else 0.0
