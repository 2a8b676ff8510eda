"""Runs that rebuilt data side by side: how well, against the bits sent and the model's utility, and the pictures."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import ANY, UNIT
from vflbench.report.comparison import Line
from vflbench.report.figure import Figure
from vflbench.report.inversion import bits_per_row, over, pictures_of, rebuilt, utility, utility_name
from vflbench.report.pictures import ACROSS, Block, picture_figure
from vflbench.report.pictures import Line as PictureLine
from vflbench.report.plot import Axis, Level, Plot, Point, Series
from vflbench.report.plot_figure import figure_of
from vflbench.results.runs import Run
from vflbench.results.table_formats import slugged, text_of

_GUESSES = {"mean": "dotted", "class_mean": "dashdot", "random_row": "dashed"}
_MOST_PICTURES = 24  # lines of the table of which pictures are shown


def draw_inversion(table: Sequence[Line], by: Sequence[str], attack: str, figure: str = "ssim") -> list[Figure]:
    """The figure against bits sent, and against the model's test accuracy (test AUC for two classes): a mark for every line
    of the table, and lines for guesses that need no message. Then true and rebuilt pictures of the first run of each line,
    if the data are pictures. Empty if no run has the figure.
    """
    runs = [run for line in table for run in line.runs]
    varied = f"{attack.replace('_', ' ')}, by {', '.join(option.rsplit('.', 1)[-1] for option in by)}"
    name = utility_name(runs)
    made = []
    for x_of, axis, what in (
        (bits_per_row, Axis("bits sent per row, all parties together", log=2), "bits"),
        (utility, Axis(f"{name} of the model"), "utility"),
    ):
        series = tuple(_series(table, attack, figure, x_of))
        if not any(s.points for s in series):
            continue
        slug = f"inversion_{slugged(attack)}_{figure}_{what}"
        axes = axis, Axis(figure.replace("_", " "))
        levels = tuple(_guesses(runs, attack, figure))
        note = f"Rebuilt by {varied}. Means over seeds with 95 % t-intervals; lines: guesses without messages."
        title = f"Rebuilt data against {'bits sent' if what == 'bits' else name}"
        made.append(figure_of(Plot(slug, title, *axes, series, levels, note)))
    grids = [(setting(line), *pair) for line in table[:_MOST_PICTURES] if (pair := pictures_of(line.runs[0].folder, attack))]
    return [*made, _pictures(grids, attack)] if grids else made


def _series(table: Sequence[Line], attack: str, figure: str, x_of: Callable[[Run], float]) -> list[Series]:
    made = []
    for look, line in enumerate(table):
        x = over(line, x_of, UNIT if x_of is utility else ANY)
        y = over(line, partial(rebuilt, attack=attack, figure=figure), range_of(figure))
        if math.isfinite(x.mean) and math.isfinite(y.mean) and (x.mean > 0 or x_of is utility):
            name = setting(line)
            hover = f"{name}\n{figure.replace('_', ' ')} {text_of(y)}\n{text_of(x)} across\n{len(line.runs)} runs"
            made.append(Series(name, (Point(x, y, hover),), look=look, line="none"))
    return made


def _guesses(runs: Sequence[Run], attack: str, figure: str) -> list[Level]:
    made = []
    for guess, line in _GUESSES.items():
        values = [v for run in runs if not math.isnan(v := rebuilt(run, attack, figure, guess))]
        if values:
            height = math.fsum(values) / len(values)
            made.append(Level(height, f"no message: {guess.replace('_', ' ')}", line, in_legend=True))
    return made


def _pictures(grids: Sequence[tuple[str, np.ndarray, np.ndarray]], attack: str) -> Figure:
    """The true pictures of the first line, then a line of rebuilt pictures for each line of the table, with its name."""
    rows = [PictureLine("true", grids[0][1][:ACROSS]), *(PictureLine(name, answer[:ACROSS]) for name, _, answer in grids)]
    title = f"Rebuilt pictures: {attack.replace('_', ' ')}"
    alt = f"True pictures, and below them the same as {attack} rebuilt them from {', '.join(name for name, *_ in grids)}."
    return picture_figure([Block("", tuple(rows))], slug=f"inversion_{slugged(attack)}_pictures", title=title, alt_text=alt)


def setting(line: Line) -> str:
    """`quantize 2`: the defense and the values of the options."""
    values = [f"{v:g}" if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in line.options]
    return " ".join([line.defense, *(value for value in values if value != "None")])
