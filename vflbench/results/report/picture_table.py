"""The picture table: the same true pictures as they were rebuilt, by mechanism from left to right, by setting downwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vflbench.results.report.inversion import pictures_of, rebuilt
from vflbench.results.report.rebuilt import strip
from vflbench.results.runs import Run

COLUMNS = ("original", "uncompressed", "quantized", "unbiased", "biased")
_NOTES = ("", "", "no noise", "quantized + noise", "quantized + noise")
_SIDE, _BETWEEN = 0.45, 0.16  # inches: a picture, between cells
_LEFT, _TOP, _BOTTOM, _UNDER = 1.15, 0.62, 0.30, 0.24  # of the margins, and below a row for its figure

Setting = tuple[int, int]
"""Layers of a bottom, and levels."""


@dataclass(frozen=True)
class PictureTable:
    """attack: whose answers are shown. settings: the rows. cells: (setting, column) -> the run that is shown there."""

    attack: str
    settings: tuple[Setting, ...]
    cells: dict[tuple[Setting, str], Run]

    @classmethod
    def of(cls, runs: Sequence[Run], attack: str) -> "PictureTable":
        """Of the runs of one seed. Raises ValueError without any that is compressed."""
        by_place: dict[tuple[int, int | None, str], Run] = {}
        for run in runs:
            by_place.setdefault(_place(run), run)
        settings = tuple(sorted({(depth, levels) for depth, levels, _ in by_place if levels is not None}))
        if not settings:
            raise ValueError("no run quantizes its embeddings")
        cells = {}
        for depth, levels in settings:
            for column in COLUMNS[1:]:
                key = (depth, None if column == "uncompressed" else levels, column)
                if key in by_place:
                    cells[(depth, levels), column] = by_place[key]
        return cls(attack, settings, cells)


def draw_picture_table(table: PictureTable, count: int = 5) -> Figure:
    """count: pictures a cell. Below each, its mean squared error and the share identified among others of the class.

    Raises ValueError where runs rebuilt different pictures, or none.
    """
    pairs = {place: pictures_of(run.folder, table.attack) for place, run in table.cells.items()}
    known = [pair for pair in pairs.values() if pair is not None]
    if not known:
        raise ValueError(f"{table.attack} rebuilt no pictures")
    original = known[0][0]
    if any(truth.shape != original.shape or not np.array_equal(truth, original) for truth, _ in known):
        raise ValueError("the runs rebuilt different pictures: give those of one seed and one data set")
    chosen = np.linspace(0, len(original) - 1, min(count, len(original))).round().astype(int)
    cell = len(chosen) * _SIDE
    width = _LEFT + len(COLUMNS) * (cell + _BETWEEN)
    row_height = _SIDE + _UNDER
    height = _TOP + len(table.settings) * row_height + _BOTTOM
    figure = Figure(figsize=(width, height))

    def text(x: float, y: float, words: str, **style: Any) -> None:
        figure.text(x / width, 1 - y / height, words, va="center", **style)

    for column, (name, note) in enumerate(zip(COLUMNS, _NOTES, strict=True)):
        middle = _LEFT + column * (cell + _BETWEEN) + cell / 2
        text(middle, 0.20, name, ha="center", fontsize=10, fontweight="bold")
        text(middle, 0.42, note, ha="center", fontsize=8, color="0.35")
    for row, setting in enumerate(table.settings):
        top = _TOP + row * row_height
        text(_LEFT - 0.12, top + _SIDE / 2 - 0.08, f"{setting[0]} layers", ha="right", fontsize=9)
        text(_LEFT - 0.12, top + _SIDE / 2 + 0.09, f"{setting[1]} levels", ha="right", fontsize=9)
        for column, name in enumerate(COLUMNS):
            left = _LEFT + column * (cell + _BETWEEN)
            pair = pairs.get((setting, name))
            pictures = original if name == "original" else pair[1] if pair is not None else None
            if pictures is None:
                text(left + cell / 2, top + _SIDE / 2, "not run", ha="center", fontsize=8, color="0.35")
                continue
            axes = figure.add_axes((left / width, 1 - (top + _SIDE) / height, cell / width, _SIDE / height))
            axes.imshow(strip(pictures[chosen]), cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            axes.set_axis_off()
            if pair is not None:
                run = table.cells[setting, name]
                words = (
                    f"MSE {rebuilt(run, table.attack, 'mse'):.3f}, identified {rebuilt(run, table.attack, 'identified'):.0%}"
                )
                text(left + cell / 2, top + _SIDE + 0.10, words, ha="center", fontsize=7, color="0.35")
    text(
        0.1,
        height - 0.13,
        f"Rebuilt by {table.attack.replace('_', ' ')}; identified by chance: 5%",
        fontsize=7,
        color="0.35",
    )
    return figure


def _place(run: Run) -> tuple[int, int | None, str]:
    """Layers, levels (None without a defense) and the column."""
    levels, biased = run.option("defense.quantize.levels"), run.option("defense.binomial.biased")
    column = "uncompressed" if levels is None else "quantized" if biased is None else "biased" if biased else "unbiased"
    return run.option("model.bottom_layers"), levels, column
