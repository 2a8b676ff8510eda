"""Seconds that solvers take by the size of a batch, as a heat map."""

import math
from collections.abc import Mapping

from vflbench.report.figure import Figure
from vflbench.report.heat_map import Cell, Columns, HeatMap, heat_map_figure
from vflbench.report.solver_times import Cell as Size
from vflbench.report.solver_times import published_cells, share_ended

_NOTE = "Seconds; > marks a size at which not every search ended, * one for which the paper gives no time."


def draw_cells(cells: Mapping[Size, Mapping[str, Mapping[str, float]]], figure: str = "solver_seconds") -> Figure | None:
    """A part for the published values and one for each attack: rows by columns, seconds on one logarithmic scale.

    None if no time is known.
    """
    attacks = list(dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell))
    published = published_cells()
    rows, columns = (sorted({size[k] for size in (*cells, *published)}) for k in (0, 1))
    known = {size: {figure: value.number, "ended": 1.0} for size, value in published.items() if value.number is not None}
    maps: dict[str, Mapping[Size, Mapping[str, float]]] = {"published": known}
    maps |= {attack: {size: of_cell[attack] for size, of_cell in cells.items() if attack in of_cell} for attack in attacks}
    times = [figures[figure] for by_size in maps.values() for figures in by_size.values() if figures.get(figure, 0) > 0]
    if not times:
        return None
    marks = {size: value.mark for size, value in published.items() if value.mark}

    def cell(name: str, size: Size) -> Cell:
        figures = maps[name].get(size, {})
        seconds = figures.get(figure, math.nan)
        if math.isnan(seconds):
            return Cell(math.nan, words=marks.get(size, "") if name == "published" else "")
        sign = "" if share_ended(figures) == 1 else ">"
        words = f"{sign}{seconds:.0f}" if seconds >= 100 else f"{sign}{seconds:.2g}"
        return Cell(seconds, f"{name}, {size[0]} rows, {size[1]} columns: {words} s", words=words)

    names = tuple(f"{d} columns" for d in columns)
    groups = tuple(Columns(name, names, tuple(tuple(cell(name, (m, d)) for m in rows) for d in columns)) for name in maps)
    title = "Seconds to rebuild a batch, by rows and columns"
    drawn = HeatMap(title, _NOTE, tuple(f"{m} rows" for m in rows), (), groups, min(times), max(times), log=True)
    return heat_map_figure(drawn, f"solver_times_{figure}")
