"""Any delimited table, with a header or without."""

import csv as lines
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from vflbench.data.files import Part
from vflbench.data.party_files import PartyFiles
from vflbench.data.readings import MISSING, is_real
from vflbench.data.text import TextFormat, column_names, first_text, names_error
from vflbench.errors import UserError
from vflbench.options import NonNegativeInt, options

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}


@options
class Csv(PartyFiles):
    """Any table with a header, or without; the user names the label column and the columns of each party.

    A column is numeric if it holds numbers in every row, also such as `1.234,56`; dates become numbers (days since
    the first, month, weekday, hour); all others are categorical, unless `types` overrides it. A column that tells every row
    apart, such as a customer's number, is left out, and a line says so. A missing value (empty, NA, N/A, NaN, null, ?) is 0
    in a numeric column, beside which a column says where, and a category of its own in a categorical one. Classes are the
    label's values, sorted: numbers by value, texts by alphabet. With two classes, the second is positive; of yes and no in
    several languages, yes.

    delimiter: one character; null: found in the first lines, among comma, semicolon, tab and vertical bar. encoding: of the
    text; null: UTF-8. header: whether the first line names the columns. columns: without a header, their names in order;
    null: c1, c2, ... missing: words that stand for a missing value, beside the empty one; null: those above.
    trim: leave out blanks around values, and count several as one where the delimiter is a blank.
    skip_lines: leave out so many first lines of each file. comment: leave out lines that begin so.
    members: as of `criteo`.
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: bool = True
    columns: list[str] | None = None
    missing: list[str] | None = None
    trim: bool = False
    skip_lines: NonNegativeInt = 0
    comment: str | None = None
    members: list[str] | None = None

    def layout(self, part: Part, wanted: Sequence[str]) -> TextFormat:
        self._check_layout()
        layout = TextFormat(
            columns=tuple(self.columns or ()),
            delimiter=self.delimiter or ",",
            header=self.header,
            binary_label=False,
            missing=MISSING if self.missing is None else tuple(dict.fromkeys(["", *self.missing])),
            encoding=self.encoding or "utf-8",
            skip_lines=self.skip_lines,
            comment=self.comment or "",
            trim=self.trim,
        )
        layout = layout if self.delimiter else replace(layout, delimiter=_inferred_delimiter(part, layout, wanted))
        names = column_names(part, layout)
        looks_bare = layout.header and all(is_real(name) for name in names)
        problem = "the first line, which names the columns, holds numbers alone; if it is a row, say dataset.header=false"
        doubts = {"doubts": [problem]} if looks_bare else {}
        return replace(layout, columns=names, read_as={"delimiter": layout.delimiter, **doubts})

    def _check_layout(self) -> None:
        mark = self.delimiter
        if mark is not None and (len(mark.encode()) != 1 or mark in '\0\r\n"'):
            problem = "it must be one character, and no quote or line end"
            raise UserError(problem, key="dataset.delimiter", value=mark)
        if self.columns is None:
            return
        if self.header:
            problem = "the header names the columns; to name them here, set dataset.header=false"
            raise UserError(problem, key="dataset.columns", value=self.columns)
        wrong = names_error(self.columns) if self.columns else "there is none"
        if wrong:
            raise UserError(wrong.replace("the header names", "it names"), key="dataset.columns", value=self.columns)


def _inferred_delimiter(part: Part, layout: TextFormat, wanted: Sequence[str]) -> str:
    """The delimiter that splits the first lines best.

    It must split the first line. Those with which the header has one of the wanted names are preferred; where there are
    several, the one with which most lines have as many fields as the first. Raises UserError where two do equally well.
    """
    start = [line for line in first_text(part, layout).splitlines()[layout.skip_lines :] if line.strip()]
    start = [line for line in start if not (layout.comment and line.startswith(layout.comment))][:200]
    scores: dict[str, tuple[bool, int]] = {}
    for mark in _DELIMITERS:
        rows: list[list[str]] = []
        with suppress(lines.Error):  # of a line that is not split at this mark, and too long
            rows = [row for row in lines.reader(start, delimiter=mark) if row]
        if not rows or len(rows[0]) < 2:
            continue
        names = {name.strip() for name in rows[0]}
        named = bool(names & set(wanted)) if layout.header else len(rows[0]) == len(layout.columns)
        scores[mark] = (named, sum(len(row) == len(rows[0]) for row in rows))
    chosen = [mark for mark, score in scores.items() if score == max(scores.values())]
    if len(chosen) > 1:
        which = " or ".join(f"{_DELIMITERS[mark]} ({mark!r})" for mark in chosen)
        raise part.error(f"the first lines can be split at {which}; say which with dataset.delimiter")
    return chosen[0] if chosen else ","
