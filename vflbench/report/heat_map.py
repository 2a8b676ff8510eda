"""A table of values as colours, with each value written in its cell and its interval on hover."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt

from vflbench.report.figure import INK, Figure, finished, lines_of, number, text
from vflbench.report.option_words import within

_SCALE = ((255, 255, 255), (253, 219, 160), (239, 122, 74), (165, 0, 38))  # evenly spaced from the lowest value to 1
_MISSING = "#e4e4e4"
_DARK = 0.72  # from this part of the scale on white letters are easier to read
_CELL, _GAP, _LETTER = (42, 23), 16, 6.6  # pixels: a cell, between groups, a letter's mean width
_MOST_NAME, _MOST_WRAPPED = 46, 120  # characters of a name: on a line, and in a narrow table


@dataclass(frozen=True)
class Cell:
    """value: nan where there is none. name: shown on hover. tag: written beside the value. words: in place of the value."""

    value: float
    name: str = ""
    tag: str = ""
    words: str = ""


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns under one title, from top to bottom a cell for each row: cells[column][row]."""

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class HeatMap:
    """rows: their names. facts: (title, a text for each row), which have no colour. groups: columns with colours.

    Values from `low` to `high` have colours from white to red, on a logarithmic scale if `log`. note: sentences below it.
    """

    title: str
    note: str
    rows: tuple[str, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    groups: tuple[Columns, ...]
    low: float = 0.5
    high: float = 1.0
    log: bool = False

    def place(self, value: float) -> float:
        """From 0 at `low` to 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def colour(place: float) -> str:
    """From white at 0 to dark red at 1; grey for nan."""
    if math.isnan(place):
        return _MISSING
    place *= len(_SCALE) - 1
    step = min(int(place), len(_SCALE) - 2)
    mixed = (round(a + (place - step) * (b - a)) for a, b in zip(_SCALE[step], _SCALE[step + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def heat_map_figure(drawn: HeatMap, slug: str) -> Figure:
    """Each cell with its value in two decimals; names of columns stand upright above them.

    As wide as its columns need: a narrow page shows it in a box that scrolls.
    """
    names = [_name(name) for name in drawn.rows]
    x = _width(names)
    texts = [_text(0, row, name) for row, name in enumerate(names)]
    turned: list[dict[str, Any]] = []
    for title, values in drawn.facts:
        x += _width([title, *values])
        texts += [_text(x - 8, row, text(value, _MOST_NAME), align="right") for row, value in enumerate(values)]
        turned.append({"x": x - 16, "text": _name(title)})
    cells, titles = [], []
    for group in drawn.groups:
        x += _GAP
        titles.append({"x": x, "text": text(group.title)})
        start = x
        for name, column in zip(group.names, group.cells, strict=True):
            wide = _CELL[0] + max((_LETTER * len(cell.tag) for cell in column), default=0.0)
            turned.append({"x": x + wide / 2, "text": _name(name)})
            cells += list(_cells(column, drawn, names, name, (x, wide)))
            x += wide
        x = max(x, start + 7.6 * len(group.title))
    head = 14 + _LETTER * max((len(entry["text"]) for entry in turned), default=0)
    height = _CELL[1] * len(names)
    texts += [entry | {"y": -head - 14, "align": "left", "bold": True} for entry in titles]
    chart = alt.layer(*_layers(texts), width=round(x + 4), height=round(height + head + 30))
    across = alt.Scale(domain=[0, x + 4], nice=False, zero=False)
    down = alt.Scale(domain=[height, -head - 30], nice=False, zero=False)
    chart = chart.resolve_scale(x="shared", y="shared").encode(
        x=alt.X("x:Q", axis=None, scale=across), y=alt.Y("y:Q", axis=None, scale=down)
    )
    known = [cell["value"] for cell in cells if cell["value"] is not None]
    spread = f" Values from {min(known):.3g} to {max(known):.3g}." if known else ""
    described = f"{drawn.title}. {len(names)} rows by {sum(len(group.names) for group in drawn.groups)} columns.{spread}"
    data = {"cells": cells, "texts": texts, "turned": [entry | {"y": -6} for entry in turned]}
    figure = finished(
        chart, slug=slug, title=drawn.title, note=drawn.note, alt_text=described, data=data, wide=round(x), is_wide=x > 500
    )
    return replace(figure, spec={**figure.spec, "usermeta": {"heat": _as_table(drawn)}})


def _as_table(drawn: HeatMap) -> dict[str, Any]:
    """What a narrow page needs beside the cells, which are in the order of columns, for a table in place of the figure."""
    facts = [[_name(title), [text(value, _MOST_NAME) for value in values]] for title, values in drawn.facts]
    groups = [[text(group.title), len(group.names)] for group in drawn.groups]
    return {
        "rows": [text(within(name, _MOST_WRAPPED), _MOST_WRAPPED) for name in drawn.rows],
        "facts": facts,
        "groups": groups,
    }


def _layers(texts: Sequence[dict[str, Any]]) -> Iterator[alt.Chart]:
    cells = alt.Chart(alt.NamedData(name="cells"))
    shade = alt.Fill("shade:N", scale=None)
    boxes = cells.mark_rect(stroke=None)
    yield boxes.encode(x2=alt.X2("x2"), y2=alt.Y2("y2"), fill=shade, tooltip=alt.Tooltip("name:N"))
    for is_dark, letters in (("false", "#1c1c1c"), ("true", "#ffffff")):
        written = cells.transform_filter(f"datum.dark == {is_dark}")
        written = written.mark_text(align="left", baseline="middle", color=letters, fontSize=11, dx=6, dy=_CELL[1] / 2)
        yield written.encode(text=alt.Text("words:N"))
    turned = alt.Chart(alt.NamedData(name="turned")).mark_text(angle=270, align="left", baseline="middle", color=INK)
    yield turned.encode(text=alt.Text("text:N"))
    for align in sorted({entry["align"] for entry in texts}):
        for is_bold in (False, True):
            kind = f"datum.align == '{align}' && datum.bold == {'true' if is_bold else 'false'}"
            words = alt.Chart(alt.NamedData(name="texts")).transform_filter(kind)
            style: dict[str, Any] = {"align": align, "fontWeight": 600 if is_bold else "normal"}
            yield words.mark_text(baseline="middle", color=INK, **style).encode(text=alt.Text("text:N"))


def _cells(
    column: Sequence[Cell], drawn: HeatMap, names: Sequence[str], title: str, place: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    x, wide = place
    for row, (cell, name) in enumerate(zip(column, names, strict=True)):
        is_known = math.isfinite(cell.value)
        value = text(cell.words, 12) or (f"{cell.value:.2f}" if is_known else "")
        words = " ".join(filter(None, (value, text(cell.tag, 20))))
        place_of = drawn.place(cell.value) if is_known else math.nan
        yield {
            "row": name,
            "column": _name(title),
            "value": number(cell.value),
            "x": x + 0.5,
            "x2": x + wide - 0.5,
            "y": row * _CELL[1] + 0.5,
            "y2": (row + 1) * _CELL[1] - 0.5,
            "words": words,
            "name": lines_of(cell.name) or f"{name}, {text(title)}: {words or 'no value'}",
            "shade": colour(place_of),
            "dark": place_of >= _DARK,
        }


def _name(whole: str) -> str:
    """In the letters that there are for it, cut between words."""
    return text(within(whole, _MOST_NAME), _MOST_NAME)


def _text(x: float, row: int, words: str, align: str = "left") -> dict[str, Any]:
    return {"x": x, "y": (row + 0.5) * _CELL[1], "text": words, "align": align, "bold": False}


def _width(words: Sequence[str]) -> float:
    """Pixels of the longest."""
    return 14 + _LETTER * max((min(len(word), _MOST_NAME) for word in words), default=0)
