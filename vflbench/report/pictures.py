"""Figures that consist of pictures: lines of them with their names, and tables as pictures."""

import base64
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
from PIL import Image

from vflbench.report.figure import INK, SOFT, Figure, finished, text

WRONG = "#d55e00"
"""Okabe and Ito's vermilion, visible on grey pictures."""
ACROSS, MOST_ROWS = 10, 40
"""Pictures side by side; rows of a table."""
_SIDE, _GAP, _LINE, _WIDE, _LETTERS = 30, 3, 17, 340, 50  # pixels of a picture, between them, of a line of text; of a figure
_LEFT = 52  # for names of lines that are short
_COLOURS = 64
_MOST_WRONG = 2_000


@dataclass(frozen=True)
class Line:
    """Pictures (n, height, width) or (n, height, width, channels), of which ten are shown side by side, with a name."""

    name: str
    pictures: np.ndarray


@dataclass(frozen=True)
class Block:
    """Lines under one title."""

    title: str
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class TableBlock:
    """A table (rows, columns) and what was rebuilt of it, side by side; entries wrong by 0.5 or more are marked."""

    title: str
    truth: np.ndarray
    answer: np.ndarray


class _Canvas:
    """What stands where, in pixels from the upper left corner."""

    def __init__(self) -> None:
        self.y = 0.0
        self.pictures: list[dict[str, Any]] = []
        self.texts: list[dict[str, Any]] = []
        self.wrong: list[dict[str, Any]] = []

    def write(self, words: str, *, x: float = 0.0, y: float | None = None, soft: bool = True) -> None:
        self.texts.append({"x": x, "y": self.y + _LINE / 2 if y is None else y, "text": words, "soft": soft})

    def show(self, x: float, y: float, wide: float, tall: float, url: str) -> None:
        self.pictures.append({"x": x, "y": y, "wide": round(wide, 2), "tall": round(tall, 2), "url": url})


def picture_figure(blocks: Sequence[Block | TableBlock], *, slug: str, title: str, note: str = "", alt_text: str) -> Figure:
    """340 pixels wide, so that it is as it should be on a telephone too."""
    canvas = _Canvas()
    for block in blocks:
        for words in textwrap.wrap(text(block.title), _LETTERS):
            canvas.write(words, soft=False)
            canvas.y += _LINE
        if isinstance(block, Block):
            _place_lines(canvas, block)
        else:
            _place_table(canvas, block)
        canvas.y += 10
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, _WIDE], nice=False, zero=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[canvas.y, 0], nice=False, zero=False))
    layers: list[alt.Chart] = []
    if canvas.pictures:
        size: dict[str, Any] = {"width": alt.expr("datum.wide"), "height": alt.expr("datum.tall"), "aspect": False}
        shown = alt.Chart(alt.NamedData(name="pictures")).mark_image(align="left", baseline="top", **size)
        layers.append(shown.encode(x=x, y=y, url=alt.Url("url:N")))
    if canvas.wrong:
        crosses = alt.Chart(alt.NamedData(name="wrong"))
        crosses = crosses.mark_text(text="\N{MULTIPLICATION SIGN}", color=WRONG, fontWeight=700, fontSize=12)
        layers.append(crosses.encode(x=x, y=y))
    for is_soft, colour in ((True, SOFT), (False, INK)):
        texts = alt.Chart(alt.NamedData(name="texts")).transform_filter(f"datum.soft == {'true' if is_soft else 'false'}")
        texts = texts.mark_text(align="left", baseline="middle", color=colour, fontWeight="normal" if is_soft else 600)
        layers.append(texts.encode(x=x, y=y, text=alt.Text("text:N")))
    data = {"pictures": canvas.pictures, "texts": canvas.texts, "wrong": canvas.wrong}
    chart = alt.layer(*layers, width=_WIDE, height=max(round(canvas.y), 1))
    return finished(chart, slug=slug, title=title, note=note, alt_text=alt_text, data=data, wide=_WIDE)


def _place_lines(canvas: _Canvas, block: Block) -> None:
    """Short names to the left of their pictures, longer ones above them."""
    is_beside = all(len(line.name) <= 8 for line in block.lines)
    left = _LEFT if is_beside else 0
    side = min(_SIDE, (_WIDE - left) / ACROSS - _GAP)
    for line in block.lines:
        shown = line.pictures[:ACROSS]
        tall = side * shown.shape[1] / shown.shape[2] if len(shown) else side
        if is_beside:
            canvas.write(text(line.name), y=canvas.y + tall / 2)
        else:
            for words in textwrap.wrap(text(line.name), _LETTERS + 6):
                canvas.write(words)
                canvas.y += _LINE
        for place, picture in enumerate(shown):
            canvas.show(left + place * (side + _GAP), canvas.y, side, tall, picture_url(picture))
        canvas.y += tall + _GAP


def _place_table(canvas: _Canvas, block: TableBlock) -> None:
    truth, answer = block.truth[:MOST_ROWS], block.answer[:MOST_ROWS]
    wrong = ~(np.abs(truth - answer) < 0.5)  # nan is wrong as well
    wide, right = (_WIDE - 16) / 2, (_WIDE + 16) / 2
    cell = wide / truth.shape[1], min(12.0, max(4.0, 120 / len(truth)))
    canvas.write("true")
    canvas.write(f"rebuilt: {wrong.sum()} of {wrong.size} wrong" if wrong.any() else "rebuilt: all right", x=right)
    canvas.y += _LINE
    for x, values in ((0.0, truth), (right, np.where(np.isfinite(answer), answer, 0.5))):
        canvas.show(x, canvas.y, wide, cell[1] * len(truth), picture_url(1 - np.clip(values, 0, 1), 400))
    for row, column in list(zip(*wrong.nonzero(), strict=True))[:_MOST_WRONG]:
        canvas.wrong.append({"x": right + (float(column) + 0.5) * cell[0], "y": canvas.y + (float(row) + 0.5) * cell[1]})
    canvas.y += cell[1] * len(truth)


def picture_url(picture: np.ndarray, pixels: int = 56) -> str:
    """A data URL. picture: (height, width) or (height, width, channels), from black at 0 to white at 1; nan is grey.

    pixels: about so many of its longer side in the file, each of its own as a square, which no viewer makes smooth.
    """
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64), nan=0.5)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values.mean(axis=2)
    shades = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    times = max(1, round(pixels / max(shades.shape[:2])))
    image = Image.fromarray(shades.repeat(times, axis=0).repeat(times, axis=1))
    content = io.BytesIO()
    (image.quantize(_COLOURS) if image.mode == "RGB" else image).save(content, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def lines_of_ten(parts: Mapping[str, np.ndarray], most: int) -> Iterator[Line]:
    """The first `most` pictures of each part, in lines of ten, the parts below each other."""
    count = min(most, *(len(pictures) for pictures in parts.values()))
    for start in range(0, count, ACROSS):
        for name, pictures in parts.items():
            yield Line(name, pictures[start : min(start + ACROSS, count)])
