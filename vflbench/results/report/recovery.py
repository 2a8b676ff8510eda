"""How much is rebuilt, mechanism by mechanism: one figure with a line for each, its attacks, and what guesses reach."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import over_runs
from vflbench.results.report.comparison import Line
from vflbench.results.report.figures import COLOURS, MARKERS, UTILITY
from vflbench.results.report.inversion import attacks_that_rebuild, rebuilt

SHOWN: Mapping[str, str] = {
    "mse": "mean squared error",
    "ssim": "structural similarity (SSIM)",
    "identified": "identified among 20 of the class",
    "r2": "R squared",
    "error_over_spread": "error over spread",
    "id_accuracy": "share of right ids",
}
"""Figures -> the title of their panel: the first three that any run has are drawn."""
_GUESSES: dict[str, Any] = {"mean": ":", "class_mean": "-.", "random_row": "--", "chance": (0, (1, 3))}
_LOGARITHMIC = ("mse", "error_over_spread")
_LEAST = 1e-6
_INCHES = 0.34  # a mechanism


def mechanism(line: Line, by: Sequence[str], table: Sequence[Line]) -> str:
    """`quantize, levels 2`: the defense, and the options that differ among its lines."""
    alike = [other for other in table if other.defense == line.defense]
    named = [
        _words(option.rpartition(".")[2].replace("_", " "), value)
        for place, (option, value) in enumerate(zip(by, line.options, strict=True))
        if value is not None and (len({other.options[place] for other in alike}) > 1)
    ]
    defense = "no defense" if line.defense == "none" else line.defense.replace("_", " ").replace("+", " + ")
    return ", ".join([defense, *named])


def _words(option: str, value: Any) -> str:
    return f"{'' if value else 'not '}{option}" if isinstance(value, bool) else f"{option} {value}"


def draw_recovery(table: Sequence[Line], by: Sequence[str]) -> Figure:
    """A panel a figure, a row a mechanism, a colour an attack, with intervals over seeds; guesses as upright lines."""
    runs = [run for line in table for run in line.runs]
    attacks = attacks_that_rebuild(runs)
    there = [f for f in SHOWN if any(not math.isnan(rebuilt(run, a, f)) for run in runs for a in attacks)][:3]
    names = [mechanism(line, by, table) for line in table]
    height = 1.55 + _INCHES * len(table)
    canvas = Figure(figsize=(11, height), layout="constrained")
    panels = canvas.subplots(1, len(there), sharey=True, squeeze=False)[0]
    for axes, figure in zip(panels, there, strict=True):
        for place, attack in enumerate(attacks):
            shift = 0.5 * ((place + 0.5) / len(attacks) - 0.5)
            for row, line in enumerate(table):
                value = over_runs(map(partial(rebuilt, attack=attack, figure=figure), line.runs), range_of(figure))
                if math.isnan(value.mean):
                    continue
                ends = (value.mean - value.low, value.high - value.mean)
                bar = None if math.isnan(value.low) else [[max(end, 0.0)] for end in ends]
                style = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
                shown = max(value.mean, _LEAST) if figure in _LOGARITHMIC else value.mean  # an exact answer has a place too
                axes.errorbar([shown], [row + shift], xerr=bar, linestyle="none", markersize=5, capsize=2, **style)
        for guess, style_of in _GUESSES.items():
            values = [v for run in runs for a in attacks if not math.isnan(v := rebuilt(run, a, figure, guess))]
            if values:
                axes.axvline(math.fsum(values) / len(values), color=UTILITY, linewidth=0.9, linestyle=style_of, zorder=0)
        axes.set_xlabel(SHOWN[figure], fontsize=9)
        if figure in _LOGARITHMIC:  # an attacker who is misled is off by ten times as much as others
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if high < 1e3 * low else (1.0,)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda error, _: f"{error:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="x", color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(table)), names, fontsize=8)
    panels[0].set_ylim(len(table) - 0.5, -0.5)
    _legend(canvas, attacks)
    return canvas


def _legend(canvas: Figure, attacks: Sequence[str]) -> None:
    marks = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], linestyle="none")
        for i in range(len(attacks))
    ]
    drawn: dict[str, Any] = {"color": UTILITY, "linewidth": 0.9}
    lines = [Line2D([], [], **drawn, linestyle=style) for style in _GUESSES.values()]
    words = [*(name.replace("_", " ") for name in attacks), *(f"no message: {g.replace('_', ' ')}" for g in _GUESSES)]
    canvas.legend([*marks, *lines], words, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
