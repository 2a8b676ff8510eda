"""The picture table: the same true pictures as they were rebuilt, a part for each setting, a line for each mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.report.figure import Figure
from vflbench.report.inversion import pictures_of, rebuilt
from vflbench.report.pictures import ACROSS, Block, Line, picture_figure
from vflbench.results.runs import Run
from vflbench.results.table_formats import slugged

COLUMNS = ("original", "uncompressed", "quantized", "unbiased", "biased")
_NAMES = {"unbiased": "quantized + unbiased noise", "biased": "quantized + biased noise"}

Setting = tuple[int, int]
"""Layers of a bottom, and levels."""


@dataclass(frozen=True)
class PictureTable:
    """attack: whose answers are shown. settings: the parts. cells: (setting, column) -> the run that is shown there."""

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


def draw_picture_table(table: PictureTable, count: int = ACROSS) -> Figure:
    """count: pictures a line, at most ten. With its mean squared error and the share identified among others of the class.

    Raises ValueError where runs rebuilt different pictures, or none.
    """
    pairs = {place: pictures_of(run.folder, table.attack) for place, run in table.cells.items()}
    known = [pair for pair in pairs.values() if pair is not None]
    if not known:
        raise ValueError(f"{table.attack} rebuilt no pictures")
    original = known[0][0]
    if any(truth.shape != original.shape or not np.array_equal(truth, original) for truth, _ in known):
        raise ValueError("the runs rebuilt different pictures: give those of one seed and one data set")
    chosen = np.linspace(0, len(original) - 1, min(count, ACROSS, len(original))).round().astype(int)
    blocks = []
    for setting in table.settings:
        lines = [Line("original", original[chosen])]
        for column in COLUMNS[1:]:
            name, pair = _NAMES.get(column, column), pairs.get((setting, column))
            if pair is None:
                lines.append(Line(f"{name}: not run", original[:0]))
                continue
            run = table.cells[setting, column]
            error, share = rebuilt(run, table.attack, "mse"), rebuilt(run, table.attack, "identified")
            lines.append(Line(f"{name}: MSE {error:.3f}, identified {share:.0%}", pair[1][chosen]))
        blocks.append(Block(f"{setting[0]} layers, {setting[1]} levels", tuple(lines)))
    attack = table.attack.replace("_", " ")
    title, note = f"Pictures rebuilt by {attack}", "Identified by chance: 5 %."
    alt = f"{title}: for each depth and number of levels the true pictures and, below them, what was rebuilt of each."
    return picture_figure(blocks, slug=f"pictures_{slugged(table.attack)}", title=title, note=note, alt_text=alt)


def _place(run: Run) -> tuple[int, int | None, str]:
    """Layers, levels (None without a defense) and the column."""
    levels, biased = run.option("defense.quantize.levels"), run.option("defense.binomial.biased")
    column = "uncompressed" if levels is None else "quantized" if biased is None else "biased" if biased else "unbiased"
    return run.option("model.bottom_layers"), levels, column
