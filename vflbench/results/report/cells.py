"""How long solvers take by the size of a batch: a table, and a heat map of seconds."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from vflbench.results.report.sweep import Run

Cell = tuple[int, int]
"""Rows and columns of a batch."""

PUBLISHED: Mapping[Cell, float] = {(8, 20): 4.4, (9, 20): 90.0, (11, 20): 1635.0}
"""Seconds of the published integer programme, as far as they are known here.

Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, table 1.
"""


def cells_of(runs: Sequence[Run]) -> dict[Cell, dict[str, dict[str, float]]]:
    """Rows and columns -> attack -> figure -> mean over that cell's batches, each weighing the same.

    Of runs of federated training in which a batch was rebuilt; others are passed over.
    """
    found: dict[Cell, dict[str, dict[str, list[tuple[float, int]]]]] = {}
    for run in runs:
        for one in run.summary.get("reconstructions") or ():
            rows, columns = run.option("dataset.rows"), run.option("dataset.features")
            if one.get("message") != "update" or not isinstance(rows, int) or not isinstance(columns, int):
                continue
            figures = found.setdefault((rows, columns), {}).setdefault(one["attack"], {})
            for name, value in one["figures"].items():
                if value["mean"] is not None:
                    figures.setdefault(name, []).append((value["mean"], one["batches"]))
    return {
        cell: {attack: {name: _mean(values) for name, values in figures.items()} for attack, figures in attacks.items()}
        for cell, attacks in sorted(found.items())
    }


def cells_table(cells: Mapping[Cell, Mapping[str, Mapping[str, float]]], figure: str = "solver_seconds") -> str:
    """Markdown: a line for each cell, seconds of each solver, with the share that ended in time where it is not all."""
    attacks = list(dict.fromkeys(attack for own in cells.values() for attack in own))
    head = ["m, d", "published", *attacks, "batches that fit", "unique"]
    lines = [head, ["---"] * len(head)]
    for cell, own in cells.items():
        exact = next((f for f in own.values() if "unique" in f and f.get("proved") == 1), {})
        counted = max((f.get("matches", 0.0) for f in own.values()), default=0.0)
        unique = max((f.get("unique", 0.0) for f in own.values()), default=0.0)
        theirs = f"{PUBLISHED[cell]:g} s" if cell in PUBLISHED else "not known here"
        times = [_seconds(own.get(attack), figure) for attack in attacks]
        told = [f"{counted:.3g}", f"{unique:.0%}"] if exact else ["-", "-"]
        lines.append([f"{cell[0]}, {cell[1]}", theirs, *times, *told])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_cells(cells: Mapping[Cell, Mapping[str, Mapping[str, float]]], figure: str = "solver_seconds") -> Figure:
    """A map for each attack, and the published one: rows by columns, seconds on one logarithmic scale. A cell in which not
    every search ended has a `>`.
    """
    attacks = list(dict.fromkeys(attack for own in cells.values() for attack in own))
    rows, columns = (sorted({cell[k] for cell in cells} | {c[k] for c in PUBLISHED}) for k in (0, 1))
    maps = {"published": {cell: {figure: seconds, "proved": 1.0} for cell, seconds in PUBLISHED.items()}}
    maps |= {attack: {cell: own[attack] for cell, own in cells.items() if attack in own} for attack in attacks}
    times = [found[figure] for own in maps.values() for found in own.values() if found.get(figure, 0) > 0]
    scale = LogNorm(min(times), max(times))
    drawn = Figure(figsize=(2.6 * len(maps) + 0.8, 3.2), layout="constrained")
    for axes, (name, own) in zip(drawn.subplots(1, len(maps), squeeze=False)[0], maps.items(), strict=True):
        values = np.array([[own.get((m, d), {}).get(figure, math.nan) for d in columns] for m in rows])
        image = axes.imshow(values, norm=scale, cmap="cividis", aspect="auto")
        for i, m in enumerate(rows):
            for j, d in enumerate(columns):
                if (m, d) in own and not math.isnan(values[i, j]):
                    dark = scale(values[i, j]) < 0.6
                    sign = "" if own[m, d].get("proved", 1.0) == 1 else ">"
                    axes.text(
                        j, i, f"{sign}{values[i, j]:.2g}", ha="center", va="center", color="w" if dark else "k", fontsize=8
                    )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("columns d", fontsize=8)
    drawn.axes[0].set_ylabel("rows m", fontsize=8)
    drawn.colorbar(image, ax=drawn.axes, label="seconds")
    return drawn


def _mean(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


def _seconds(figures: Mapping[str, float] | None, name: str) -> str:
    if not figures or name not in figures:
        return "-"
    ended = figures.get("proved", 1.0)
    time = f"{figures[name] * 1000:.3g} ms" if figures[name] < 1 else f"{figures[name]:.3g} s"
    return time if ended == 1 else f"> {time} ({ended:.0%} ended)"
