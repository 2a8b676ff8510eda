"""Seconds that solvers take by the size of a batch, as a table and as heat maps."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from vflbench.results.runs import Run, mappings

Cell = tuple[int, int]
"""Rows and columns of a batch."""

PUBLISHED: Mapping[Cell, float] = {(8, 20): 4.4, (9, 20): 90.0, (11, 20): 1635.0}
"""Seconds of the published integer programme, for the cells that are known here.

Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, table 1.
"""


def cells_of(runs: Sequence[Run]) -> dict[Cell, dict[str, dict[str, float]]]:
    """Rows and columns -> attack -> figure -> mean over that cell's batches, each with the same weight.

    runs: those that did not rebuild a batch from the updates of federated training are left out.
    """
    cells: dict[Cell, dict[str, dict[str, list[tuple[float, int]]]]] = {}
    for run in runs:
        for entry in mappings(run.summary.get("reconstructions")):
            rows, columns = run.option("dataset.rows"), run.option("dataset.features")
            if entry.get("message") != "update" or not isinstance(rows, int) or not isinstance(columns, int):
                continue
            figures = cells.setdefault((rows, columns), {}).setdefault(entry["attack"], {})
            for name, value in entry["figures"].items():
                if value["mean"] is not None:
                    figures.setdefault(name, []).append((value["mean"], entry["batches"]))
    return {
        cell: {attack: {name: _mean(values) for name, values in figures.items()} for attack, figures in attacks.items()}
        for cell, attacks in sorted(cells.items())
    }


def cells_table(cells: Mapping[Cell, Mapping[str, Mapping[str, float]]], figure: str = "solver_seconds") -> str:
    """Markdown: a line per cell with the seconds of each solver, and the share of searches that ended if not all did."""
    attacks = list(dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell))
    head = ["m, d", "published", *attacks, "batches that fit", "unique"]
    lines = [head, ["---"] * len(head)]
    for cell, of_cell in cells.items():
        is_exact = any("unique" in figures and figures.get("proved") == 1 for figures in of_cell.values())
        matches = max((figures.get("matches", 0.0) for figures in of_cell.values()), default=0.0)
        unique = max((figures.get("unique", 0.0) for figures in of_cell.values()), default=0.0)
        published = f"{PUBLISHED[cell]:g} s" if cell in PUBLISHED else "not known here"
        times = [_seconds(of_cell.get(attack), figure) for attack in attacks]
        counts = [f"{matches:.3g}", f"{unique:.0%}"] if is_exact else ["-", "-"]
        lines.append([f"{cell[0]}, {cell[1]}", published, *times, *counts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_cells(cells: Mapping[Cell, Mapping[str, Mapping[str, float]]], figure: str = "solver_seconds") -> Figure:
    """A heat map per attack and one of the published values: rows by columns, seconds on one logarithmic scale.

    `>` marks a cell in which not every search ended.
    """
    attacks = list(dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell))
    rows, columns = (sorted({cell[k] for cell in cells} | {c[k] for c in PUBLISHED}) for k in (0, 1))
    maps: dict[str, Mapping[Cell, Mapping[str, float]]] = {
        "published": {cell: {figure: seconds, "proved": 1.0} for cell, seconds in PUBLISHED.items()}
    }
    maps |= {attack: {cell: of_cell[attack] for cell, of_cell in cells.items() if attack in of_cell} for attack in attacks}
    times = [figures[figure] for by_cell in maps.values() for figures in by_cell.values() if figures.get(figure, 0) > 0]
    scale = LogNorm(min(times), max(times))
    drawn = Figure(figsize=(2.6 * len(maps) + 0.8, 3.2), layout="constrained")
    for axes, (name, by_cell) in zip(drawn.subplots(1, len(maps), squeeze=False)[0], maps.items(), strict=True):
        values = np.array([[by_cell.get((m, d), {}).get(figure, math.nan) for d in columns] for m in rows])
        image = axes.imshow(values, norm=scale, cmap="cividis", aspect="auto")
        for i, m in enumerate(rows):
            for j, d in enumerate(columns):
                if (m, d) in by_cell and not math.isnan(values[i, j]):
                    dark = scale(values[i, j]) < 0.6
                    sign = "" if _ended(by_cell[m, d]) == 1 else ">"
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


def _ended(figures: Mapping[str, float]) -> float:
    """The share of searches that ended. Runs without this figure called them `proved`."""
    return figures.get("ended", figures.get("proved", 1.0))


def _seconds(figures: Mapping[str, float] | None, name: str) -> str:
    if not figures or name not in figures:
        return "-"
    ended = _ended(figures)
    time = f"{figures[name] * 1000:.3g} ms" if figures[name] < 1 else f"{figures[name]:.3g} s"
    return time if ended == 1 else f"> {time} ({ended:.0%} ended)"
