"""How much is rebuilt, mechanism by mechanism: a line for each, its attacks, and what guesses reach."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import Interval, over_runs
from vflbench.report.comparison import Line
from vflbench.report.figure import Figure
from vflbench.report.inversion import attacks_that_rebuild, rebuilt
from vflbench.report.plot import Axis, Level, Plot, Point, Series, exact
from vflbench.report.plot_figure import figure_of
from vflbench.results.table_formats import text_of

SHOWN: Mapping[str, str] = {
    "mse": "mean squared error",
    "ssim": "structural similarity (SSIM)",
    "identified": "identified among 20 of the class",
    "r2": "R squared",
    "error_over_spread": "error over spread",
    "id_accuracy": "share of right ids",
}
"""Figures -> their names on the axis: the first three that any run has are drawn."""
_GUESSES = {"mean": "dotted", "class_mean": "dashdot", "random_row": "dashed", "chance": "dotted"}
_LOGARITHMIC = ("mse", "error_over_spread")
_LEAST = 1e-6
_ROW, _HIGH_ROW = 26, 40  # pixels of a mechanism; of one with a long name


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


def draw_recovery(table: Sequence[Line], by: Sequence[str]) -> list[Figure]:
    """A figure a quantity, a row a mechanism, a colour an attack, with intervals over seeds; guesses as upright lines."""
    runs = [run for line in table for run in line.runs]
    attacks = attacks_that_rebuild(runs)
    there = [f for f in SHOWN if any(not math.isnan(rebuilt(run, a, f)) for run in runs for a in attacks)][:3]
    return [figure_of(_plot(table, by, attacks, figure)) for figure in there]


def _plot(table: Sequence[Line], by: Sequence[str], attacks: Sequence[str], figure: str) -> Plot:
    runs = [run for line in table for run in line.runs]
    names = [mechanism(line, by, table) for line in table]
    is_log = figure in _LOGARITHMIC  # an attacker who is misled is off by ten times as much as others
    series = []
    for look, attack in enumerate(attacks):
        shift = 0.5 * ((look + 0.5) / len(attacks) - 0.5)
        points = []
        for row, line in enumerate(table):
            value = over_runs(map(partial(rebuilt, attack=attack, figure=figure), line.runs), range_of(figure))
            hover = f"{names[row]}\n{attack.replace('_', ' ')}, {SHOWN[figure]}: {text_of(value)}\n{len(line.runs)} runs"
            points.append(Point(_shown(value) if is_log else value, exact(row + shift), hover))
        series.append(Series(attack.replace("_", " "), tuple(points), look=look, line="none"))
    levels = []
    for guess, line_of in _GUESSES.items():
        values = [v for run in runs for a in attacks if not math.isnan(v := rebuilt(run, a, figure, guess))]
        if values:
            name, place = f"no message: {guess.replace('_', ' ')}", math.fsum(values) / len(values)
            levels.append(Level(max(place, _LEAST) if is_log else place, name, line_of, in_legend=True, upright=True))
    rows = Axis("", tuple((float(row), name) for row, name in enumerate(names)), limits=(len(table) - 0.5, -0.5))
    axes = Axis(SHOWN[figure], log=10 if is_log else 0), rows
    note = "Means over seeds with 95 % t-intervals; upright lines: guesses without messages."
    height = max(120, (_ROW if max(map(len, names)) <= 44 else _HIGH_ROW) * len(table))
    return Plot(f"recovery_{figure}", f"What is rebuilt: {SHOWN[figure]}", *axes, tuple(series), tuple(levels), note, height)


def _shown(value: Interval) -> Interval:
    """An exact answer has a place on a logarithmic axis too."""
    return Interval(max(value.mean, _LEAST), max(value.low, _LEAST), value.high) if value.mean < math.inf else value
