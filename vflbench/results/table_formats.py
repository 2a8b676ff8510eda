"""A table in every format of a report: HTML cells, CSV, Markdown, LaTeX."""

import csv
import functools
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflbench.numerics.interval import Interval, interval_text
from vflbench.results.latex_columns import BREAK, Layout, layout, with_breaks
from vflbench.results.untrusted import shown

NOTHING = "-"
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    BREAK: r"\allowbreak{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_MARKDOWN = {"\\": "&#92;", "|": "\\|", "`": "\\`", "*": "\\*", "[": "\\[", "]": "\\]"}
_TAG = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w)")
"""What begins a tag or an entity of HTML, which Markdown lets through."""
_FORMULA = re.compile(r"(?:^|(?<=[;\t]))(\s*)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet takes what follows for a formula; after a semicolon too, which separates cells in many countries."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SENTENCE = re.compile(r"(?<=[.?!]) (?=[A-Z])")
_MOST, _MOST_CSV = 2_000, 20_000  # characters of a cell


@dataclass(frozen=True)
class Table:
    """slug: the name of its files. rows: of text, numbers, intervals or None. note: sentences below it."""

    slug: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def csv(self) -> str:
        """Numbers in full precision. An interval has three columns, the last two empty for fewer than three runs."""
        wide = self.wide
        header = [name for j, c in enumerate(self.columns) for name in ((c, f"{c} low", f"{c} high") if wide[j] else (c,))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([csv_text(name) for name in header])
        for row in self.rows:
            writer.writerow([word for j, cell in enumerate(row) for word in _csv_cells(cell, wide=wide[j])])
        return text.getvalue()

    def markdown(self) -> str:
        lines = [[markdown_text(c) for c in self.columns]]
        lines += [[markdown_text(text_of(cell)) for cell in row] for row in self.rows]
        text = ["| " + " | ".join(line) + " |" for line in lines]
        text.insert(1, "|" + "---|" * len(self.columns))
        note = ["", markdown_text(self.note, _MOST_CSV)] if self.note else []
        return "\n".join([f"**{markdown_text(self.title)}**", "", *text, *note, ""])

    def latex(self) -> str:
        """A table with caption and label, which needs the package booktabs; one that is wide has the width of a line."""
        how = self.latex_layout
        columns = "".join(how.columns or ("r" if right else "l" for right in self.numeric))
        lines = [
            rf"% needs \usepackage{{{how.packages}}}",
            r"\begin{table}",
            r"\centering",
            *([how.look] if how.look else []),
            rf"\caption{{{_latex(self.caption)}}}",
            rf"\label{{tab:{self.slug}}}",
            *([r"\resizebox{\linewidth}{!}{%"] if how.is_resized else []),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _latex_row(self.columns, how),
            r"\midrule",
            *(_latex_row(row, how) for row in self.rows),
            r"\bottomrule",
            rf"\end{{tabular}}{'}' * how.is_resized}",
            r"\end{table}",
        ]
        return "\n".join([*lines, ""])

    @functools.cached_property
    def latex_layout(self) -> Layout:
        """Its columns, for LaTeX."""
        texts = [[text_of(cell) for cell in column] for column in zip(self.columns, *self.rows, strict=True)]
        return layout(texts, self.numeric)

    @property
    def caption(self) -> str:
        """The title, and the first sentence of the note."""
        first = _SENTENCE.split(shown(self.note, _MOST), maxsplit=1)[0]
        title = shown(self.title, _MOST)
        return f"{title}{'' if title.endswith('.') else '.'} {first}".strip()

    @property
    def numeric(self) -> list[bool]:
        """Whether a column has numbers."""
        return [any(is_number(row[j]) for row in self.rows) for j in range(len(self.columns))]

    @property
    def wide(self) -> list[bool]:
        """Whether a column has intervals, and so three columns in CSV."""
        return [any(isinstance(row[j], Interval) for row in self.rows) for j in range(len(self.columns))]


def text_of(cell: Any) -> str:
    """As a person reads it: `0.760 (0.751 to 0.769)`, or `0.760 (2 runs: no interval)`."""
    if isinstance(cell, Interval):
        return interval_text(cell, _digits(cell.mean)).replace(" - ", " to ")
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return NOTHING if math.isnan(cell) else f"{cell:{_digits(cell)}}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return NOTHING if cell is None else shown(cell, _MOST)


def exact(cell: Any) -> str | None:
    """The number behind a cell's text in full, `mean low high` of an interval; empty for a missing one. None for text."""
    if cell is None:
        return ""
    if not is_number(cell):
        return None
    values = (cell.mean, cell.low, cell.high) if isinstance(cell, Interval) else (cell,)
    return " ".join(str(value) for value in values if not math.isnan(value))


def is_number(cell: Any) -> bool:
    return isinstance(cell, Interval | int | float) and not isinstance(cell, bool)


def slugged(text: str) -> str:
    """The text as part of a file name: lower case letters, digits and _."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "x"


def _digits(value: float) -> str:
    return ".3f" if abs(value) < 10 else ".1f" if abs(value) < 1000 else ",.0f"


def _csv_cells(cell: Any, *, wide: bool) -> list[Any]:
    if isinstance(cell, Interval):
        return ["" if math.isnan(v) else v for v in (cell.mean, cell.low, cell.high)]
    text = "" if cell is None or (isinstance(cell, float) and math.isnan(cell)) else cell
    text = text_of(cell) if isinstance(cell, bool) else text
    text = text if isinstance(text, int | float) else csv_text(text)
    return [text, "", ""] if wide else [text]


def csv_text(value: Any) -> str:
    """With an apostrophe before what a spreadsheet would compute; numbers stay numbers."""
    text = shown(value, _MOST_CSV)
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub(r"'\1", text)


def markdown_text(text: str, most: int = _MOST) -> str:
    """The text for a line of Markdown, or a cell of a table in it, as it is: no tag, link or code begins in it."""
    plain = _TAG.sub(lambda sign: "&lt;" if sign[0] == "<" else "&amp;", shown(text, most))
    return "".join(_MARKDOWN.get(sign, sign) for sign in plain)


def _latex_row(row: Sequence[Any], how: Layout) -> str:
    """A bracket or a star after the end of a row would be an option of it."""
    texts = [text_of(cell) for cell in row]
    text = " & ".join(_latex(with_breaks(text) if how.columns else text) for text in texts)
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
