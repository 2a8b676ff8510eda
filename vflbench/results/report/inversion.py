"""Runs that rebuilt data side by side: how well, for how many bits sent, and how useful the model is."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import ANY, UNIT, Interval, OverRuns, Range, interval_text, over_runs
from vflbench.results.arrays import read_arrays
from vflbench.results.files import RECONSTRUCTIONS
from vflbench.results.read import read_metrics
from vflbench.results.report.comparison import Line
from vflbench.results.report.figures import COLOURS, MARKERS, UTILITY
from vflbench.results.report.rebuilt import strip
from vflbench.results.runs import Run

FIGURES = (
    *("mse", "psnr", "ssim", "recognised", "identified", "feature_distance"),
    *("r2", "error_over_spread", "within_tolerance", "id_accuracy", "rows_right"),
)
_TO_LABEL = "bytes_sent:label"  # not in the results of older versions
GUESSES = (
    "mean",
    "class_mean",
    "random_row",
    "class_row",
    "best_draw",
    "own_columns",
    "own_linear",
    "chance",
    "nearest_row",
    "true",
)
STRONGEST = "strongest"
"""In place of an attack: of each line the one with the least error."""
_ACROSS = 6  # names in a line of the legend
_GUESSED = {"true": "the true rows", "nearest_row": "the held-out row nearest to the true one"}


def rebuilt(run: Run, attack: str, figure: str, guess: str | None = None) -> float:
    """A figure of the last epoch: of what the attack rebuilt from messages, or of one of `GUESSES`; nan if there is none.

    Of several parties: the figure of whole pictures, else the mean over the parties.
    """
    entries = [
        entry
        for entry in run.summary.get("reconstructions", [])
        if entry["attack"] == attack and (entry["layer"] == guess if guess else entry["message"] != "none")
    ]
    entries = [entry for entry in entries if entry["party"].split(" by ")[0] == "all"] or entries
    values = [entry["figures"][figure]["mean"] for entry in entries if figure in entry["figures"]]
    values = [value for value in values if value is not None]
    return math.fsum(values) / len(values) if values else math.nan


def bits_per_row(run: Run) -> float:
    """Bits of embeddings per training row of the last epoch, of all parties together: each once, to the label party."""
    rows = [row for row in read_metrics(run.folder) if row.split == "train" and row.message == "embedding"]
    last = max((row.epoch for row in rows), default=0)
    once = _TO_LABEL if any(row.metric == _TO_LABEL for row in rows) else "bytes_sent"
    return 8 * sum(row.value for row in rows if row.metric == once and row.epoch == last) / _rows_trained(run)


def _rows_trained(run: Run) -> int:
    """The rows of an epoch's full batches."""
    return run.manifest["data"]["train_rows"] // run.manifest["batch_size"] * run.manifest["batch_size"]


def attacks_that_rebuild(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(entry["attack"] for run in runs for entry in run.summary.get("reconstructions", [])))


def inversion_table(table: Sequence[Line], by: Sequence[str], attack: str) -> str:
    """A Markdown table: means over seeds with Student's 95 % intervals; guesses without a message at the end.

    attack: `strongest` takes for each line the attack with the least error, which a column names. As it is chosen by the
    figures that are shown, they are slightly too good; of runs that were given to no choice there would be no such gain.
    """
    runs = [run for line in table for run in line.runs]
    chosen = [strongest(line.runs) if attack == STRONGEST else attack for line in table]
    of_run = {id(run): name for line, name in zip(table, chosen, strict=True) for run in line.runs}
    figures = [f for f in FIGURES if any(not math.isnan(rebuilt(run, of_run[id(run)], f)) for run in runs)]
    named = ["attack"] if attack == STRONGEST else []
    is_compared = any(beats_every_guess(run, of_run[id(run)]) is not None for run in runs)
    header = ["defense", *by, *named, "runs", "bits a row", _utility_name(runs)]
    header += [*(name.replace("_", " ") for name in figures), *(["beats every guess"] if is_compared else [])]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line, name in zip(table, chosen, strict=True):
        cells = [line.defense, *("" if v is None else str(v) for v in line.options)]
        cells += [*([name.replace("_", " ")] if named else []), str(len(line.runs))]
        cells += [f"{_over(line, bits_per_row).mean:.0f}", interval_text(_over(line, _utility, UNIT), ".3g")]
        cells += [interval_text(_over(line, partial(rebuilt, attack=name, figure=f), range_of(f)), ".3g") for f in figures]
        beats = [beats_every_guess(run, name) for run in line.runs]
        cells += [f"{beats.count(True)} of {len(beats)}"] if is_compared else []
        rows.append("| " + " | ".join(cells) + " |")
    for guess in GUESSES:
        values = {f: over_runs((rebuilt(run, of_run[id(run)], f, guess) for run in runs), range_of(f)) for f in figures}
        if not any(value.runs for value in values.values()):
            continue
        cells = [_GUESSED.get(guess, f"no message: {guess.replace('_', ' ')}"), *[""] * (len(by) + len(named) + 3)]
        cells += [interval_text(values[f], ".3g") for f in figures]
        rows.append("| " + " | ".join([*cells, *([""] if is_compared else [])]) + " |")
    return "\n".join(rows)


def strongest(runs: Sequence[Run]) -> str:
    """The attack with the least error over these runs: by mse, or else by error_over_spread, or by wrong ids."""
    attacks = attacks_that_rebuild(runs)
    for figure, sign in (("mse", 1), ("error_over_spread", 1), ("id_accuracy", -1)):
        means = {a: over_runs(rebuilt(run, a, figure) for run in runs).mean for a in attacks}
        known = {a: sign * mean for a, mean in means.items() if not math.isnan(mean)}
        if known:
            return min(known, key=lambda a: known[a])
    return attacks[0]


def beats_every_guess(run: Run, attack: str) -> bool | None:
    """Whether what it rebuilt of any party beats every guess without messages; None if that was not compared."""
    answers = [entry.get("beats_every_guess") for entry in _of(run, attack)]
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _of(run: Run, attack: str) -> list[Mapping[str, Any]]:
    return [entry for entry in run.summary.get("reconstructions", []) if entry["attack"] == attack]


def draw_inversion(table: Sequence[Line], by: Sequence[str], attack: str, figure: str = "ssim") -> Figure:
    """Left: the figure against bits sent. Right: against the model's test accuracy (test AUC for two classes). A mark for
    every line of the table; horizontal lines for guesses that need no message. Below: true and rebuilt pictures of the first
    run of each line, if the data are pictures.
    """
    runs = [run for line in table for run in line.runs]
    grids = [(_name(line), *pair) for line in table if (pair := pictures_of(line.runs[0].folder, attack))]
    curves = 4.4 + 0.2 * -(-(len(table) + 3) // _ACROSS)
    heights = [curves, 0.55 * (len(grids) + 1)] if grids else [curves]
    canvas = Figure(figsize=(12, sum(heights)), layout="constrained")
    parts: Any = canvas.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    left, right = parts[0].subplots(1, 2)
    known: dict[str, Any] = {}
    for axes, x_of in ((left, bits_per_row), (right, _utility)):
        for place, line in enumerate(table):
            x = _over(line, x_of, UNIT if x_of is _utility else ANY)
            y = _over(line, partial(rebuilt, attack=attack, figure=figure), range_of(figure))
            turn, colour = divmod(place, len(COLOURS))
            style = {"color": COLOURS[colour], "marker": MARKERS[(place + turn) % len(MARKERS)]}
            bars = axes.errorbar([x.mean], [y.mean], xerr=_bars(x), yerr=_bars(y), linestyle="none", capsize=2, **style)
            known[_name(line)] = bars.lines[0]
        known |= _guesses(axes, runs, attack, figure)
        axes.set_ylabel(figure.replace("_", " "))
        axes.grid(axis="y", color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(FuncFormatter(lambda bits, _: f"{bits:g}"))
    left.set_xlabel("bits sent per row, all parties together")
    right.set_xlabel(f"{_utility_name(runs)} of the model")
    left.set_title(f"{attack}, by {', '.join(option.rsplit('.', 1)[-1] for option in by)}", loc="left", fontsize=10)
    parts[0].legend(known.values(), known, loc="outside lower center", ncols=_ACROSS, fontsize=8, frameon=False)
    if grids:
        _draw_grids(parts[1], grids)
    return canvas


def _guesses(axes: Axes, runs: Sequence[Run], attack: str, figure: str) -> dict[str, Any]:
    """Draws a line for each guess; returns them by name."""
    drawn = {}
    for guess, style in (("mean", ":"), ("class_mean", "-."), ("random_row", "--")):
        values = [v for run in runs if not math.isnan(v := rebuilt(run, attack, figure, guess))]
        if values:
            y = math.fsum(values) / len(values)
            drawn[guess.replace("_", " ")] = axes.axhline(y, color=UTILITY, linewidth=0.9, linestyle=style)
    return drawn


def _draw_grids(part: Figure, grids: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """The true pictures of the first line, then a row of rebuilt pictures for each line, with its name."""
    rows = [("true", grids[0][1]), *((name, answer) for name, _, answer in grids)]
    across = min(len(pictures) for _, pictures in rows)
    for ax, (name, pictures) in zip(part.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        ax.imshow(strip(pictures[:across]), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        ax.set_ylabel(name, fontsize=7, rotation=0, ha="right", va="center")


def pictures_of(folder: Path, attack: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The true and the rebuilt pictures of a run, of whole pictures if there are any; None if there are none."""
    try:
        arrays = read_arrays(folder / RECONSTRUCTIONS)
    except FileNotFoundError:
        return None
    names = [n for n in arrays if n.startswith(f"{attack}/") and n.endswith("/truth") and arrays[n].ndim > 2]
    return (arrays[names[-1]], arrays[names[-1].replace("/truth", "/answer")]) if names else None


def _name(line: Line) -> str:
    values = [f"{v:g}" if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in line.options]
    return " ".join([line.defense, *(value for value in values if value != "None")])


def _utility(run: Run) -> float:
    return run.summary.get("test_accuracy", run.summary["test_auc"])


def _utility_name(runs: Sequence[Run]) -> str:
    return "test accuracy" if any("test_accuracy" in run.summary for run in runs) else "test AUC"


def _over(line: Line, quantity: Callable[[Run], float], limits: Range = ANY) -> OverRuns:
    return over_runs(map(quantity, line.runs), limits)


def _bars(v: Interval) -> list[list[float]]:
    return [[0.0], [0.0]] if math.isnan(v.low) else [[v.mean - v.low], [v.high - v.mean]]
