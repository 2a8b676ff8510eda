"""A table of values as colours: drawn as PNG, and as a page of its own with each value's interval on hover."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vflbench.results.files import PAGE_MARK

_SCALE = ((255, 255, 255), (253, 219, 160), (239, 122, 74), (165, 0, 38))  # evenly spaced from the lowest value to 1
_MISSING = "#e4e4e4"
_DARK = 0.72  # from this part of the scale on white letters are easier to read
_CELL, _LETTER, _DPI = (0.4, 0.25), 0.066, 110  # inches: width and height; mean width of a letter
_POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
_BOLD = 0.095  # inches: mean width of a letter of a title
_GAP = 0.5  # between groups, in cells
_STYLE = """
body{font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
body{margin:1.5rem;color:#1c1c1c;background:#fff}
p{max-width:70em}div{overflow-x:auto}table{border-collapse:collapse;font-size:12px}
th{font-weight:400;text-align:left;white-space:nowrap;padding:2px 8px 2px 0}
td{text-align:center;padding:3px 4px;border:1px solid #fff;font-variant-numeric:tabular-nums;white-space:nowrap}
th.name{position:sticky;left:0;background:#fff}th.turned{vertical-align:bottom;padding:4px 2px}
th.turned span{writing-mode:vertical-rl;transform:rotate(180deg)}
thead tr:first-child th{font-weight:600;text-align:left;padding-left:6px}
.first{border-left:10px solid #fff}td.fact{text-align:right}tbody tr:hover th,tbody tr:hover td.fact{font-weight:600}
"""


@dataclass(frozen=True)
class Cell:
    """value: nan where there is none. name: shown on hover. tag: written beside the value."""

    value: float
    name: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns under one title, from top to bottom a cell for each row: cells[column][row]."""

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class HeatMap:
    """rows: their names. facts: (title, a text for each row), which have no colour. groups: columns with colours.

    Values from `low` to 1 have colours from white to red. note: sentences below the title.
    """

    title: str
    note: str
    rows: tuple[str, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    groups: tuple[Columns, ...]
    low: float = 0.5


def colour(value: float, low: float = 0.5) -> str:
    """From white at `low` to dark red at 1; grey for nan."""
    if math.isnan(value):
        return _MISSING
    place = min(max((value - low) / (1 - low), 0.0), 1.0) * (len(_SCALE) - 1)
    step = min(int(place), len(_SCALE) - 2)
    mixed = (round(a + (place - step) * (b - a)) for a, b in zip(_SCALE[step], _SCALE[step + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def write_png(drawn: HeatMap, file: Path) -> None:
    """Each cell with its value in two decimals; names of columns stand upright above them."""
    width = [len(max((title, *texts), key=len)) * _LETTER / _CELL[0] + 0.4 for title, texts in drawn.facts]
    left = max(map(len, ("", *drawn.rows))) * _LETTER / _CELL[0] + sum(width) + 0.3
    head = max(len(name) for group in drawn.groups for name in group.names) * _LETTER / _CELL[1] + 1.2
    right = sum(_width_of(group) + _GAP for group in drawn.groups)
    note = textwrap.wrap(drawn.note, int((left + right) * _CELL[0] / _LETTER))
    above = head + 1.5 + 0.8 * len(note)
    across, down = left + right, len(drawn.rows) + above + 0.3
    figure = Figure(figsize=(across * _CELL[0], down * _CELL[1]), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-left, right), ylim=(len(drawn.rows) + 0.3, -above))
    axes.axis("off")
    axes.text(-left + 0.2, 0.9 - above, drawn.title, fontsize=12, fontweight="bold")
    axes.text(-left + 0.2, 1.3 - above, "\n".join(note), fontsize=8.5, va="top")
    x = -sum(width)
    for place, name in enumerate(drawn.rows):
        axes.text(-left + 0.2, place + 0.5, name, fontsize=8.5, va="center")
    for (title, texts), wide in zip(drawn.facts, width, strict=True):
        axes.text(x + wide - 0.2, -0.2, title, fontsize=8, ha="right", va="bottom")
        for place, text in enumerate(texts):
            axes.text(x + wide - 0.2, place + 0.5, text, fontsize=8, ha="right", va="center")
        x += wide
    x = _GAP / 2
    for group in drawn.groups:
        axes.text(x, -head + 0.5, group.title, fontsize=9.5, fontweight="bold", va="center")
        end = x + _width_of(group) + _GAP
        for name, cells in zip(group.names, group.cells, strict=True):
            x = _draw(axes, x, name, cells, drawn.low)
        x = end
    figure.savefig(file, dpi=_DPI)


def _draw(axes: Axes, x: float, name: str, cells: Sequence[Cell], low: float) -> float:
    """One column. Returns where the next one begins."""
    axes.text(x + 0.5, -0.2, name, rotation=90, fontsize=8, ha="center", va="bottom")
    for place, cell in enumerate(cells):
        axes.add_patch(Rectangle((x, place), 1, 1, facecolor=colour(cell.value, low), edgecolor="white", linewidth=0.6))
        if not math.isnan(cell.value):
            shade = "white" if _is_dark(cell.value, low) else "black"
            axes.text(x + 0.5, place + 0.52, f"{cell.value:.2f}", fontsize=7, color=shade, ha="center", va="center")
        axes.text(x + 1.15, place + 0.52, cell.tag, fontsize=7.5, va="center")
    return x + _column_width(cells)


def _column_width(cells: Sequence[Cell]) -> float:
    tagged = max((len(cell.tag) for cell in cells), default=0)
    return 1 + (tagged * _LETTER / _CELL[0] + 0.3 if tagged else 0)


def _width_of(group: Columns) -> float:
    """Of its columns, or of its title where that is wider."""
    return max(sum(map(_column_width, group.cells)), len(group.title) * _BOLD / _CELL[0])


def page(drawn: HeatMap) -> str:
    """An HTML page that needs no other file."""
    titles = "".join(f'<th class="first" colspan="{len(g.names)}">{escape(g.title)}</th>' for g in drawn.groups)
    turned = [_turned(title) for title, _ in drawn.facts]
    turned += [_turned(name, first=not i) for group in drawn.groups for i, name in enumerate(group.names)]
    body = []
    for place, name in enumerate(drawn.rows):
        row = [f'<th class="name">{escape(name)}</th>']
        row += [f'<td class="fact">{escape(texts[place])}</td>' for _, texts in drawn.facts]
        row += [_cell(cells[place], drawn.low, first=not i) for group in drawn.groups for i, cells in enumerate(group.cells)]
        body.append(f"<tr>{''.join(row)}</tr>")
    head = f'<tr><th colspan="{1 + len(drawn.facts)}"></th>{titles}</tr><tr><th></th>{"".join(turned)}</tr>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{PAGE_MARK}{_POLICY}'
        f"<title>{escape(drawn.title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(drawn.title)}</h1><p>{escape(drawn.note)}</p>\n"
        f"<div><table><thead>{head}</thead>\n<tbody>{chr(10).join(body)}</tbody></table></div></body></html>\n"
    )


def _turned(name: str, *, first: bool = False) -> str:
    return f'<th class="turned{" first" if first else ""}"><span>{escape(name)}</span></th>'


def _is_dark(value: float, low: float) -> bool:
    return (value - low) / (1 - low) >= _DARK


def _cell(cell: Cell, low: float, *, first: bool) -> str:
    shade = "#fff" if _is_dark(cell.value, low) else "#1c1c1c"
    text = "" if math.isnan(cell.value) else f"{cell.value:.3f}"
    look = f'style="background:{colour(cell.value, low)};color:{shade}" title="{escape(cell.name, quote=True)}"'
    return f"<td {'class=first ' if first else ''}{look}>{' '.join(filter(None, (text, escape(cell.tag))))}</td>"
