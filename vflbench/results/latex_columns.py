"""How wide a table is in LaTeX, and the columns of one that is wider than a line: no word is wider than its column."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINE = 345.0
r"""Points of \linewidth of an article in 10 pt."""
TABCOLSEP = 3.0
"""Points on each side of a column of a wide table."""
_NORMAL, _SIZES = 10.0, (("footnotesize", 8.5), ("scriptsize", 8.0))
"""Size -> points of an em-wide letter. Computer Modern at 8 and 7 pt has wider letters than its 10 pt made smaller."""
_LETTERS = {"ijlf.,:;'!|[]`": 0.31, "rst-()": 0.40, "w": 0.73, "m%#": 0.84, "MW": 1.03}
_LETTERS |= {"ABCDEFGHIJKLNOPQRSTUVXYZ+=<>±&~^@": 0.79}
_EMS = {letter: width for letters, width in _LETTERS.items() for letter in letters}
"""Letter -> at least its width in Computer Modern Roman; small letters and digits have at most 0.56."""
_ROOM, _LEAST = 0.5, 28.0  # points: for rounding; of a column with longer texts in a table that is made smaller as a whole
_LONG_WORD = re.compile(r"[^ ]{13,}")
_BREAK = re.compile(r"(?:[_+/](?=\w)|\.(?=[A-Za-z]))", re.ASCII)
BREAK = "\0"
"""Stands where a long word may be broken."""


@dataclass(frozen=True)
class Layout:
    r"""columns: of a table that fits on a line as it is, none. size: of its letters.

    is_resized: its columns are as wide as their words need, and \resizebox makes the whole as wide as a line.
    """

    columns: tuple[str, ...] = ()
    size: str = ""
    is_resized: bool = False

    @property
    def packages(self) -> str:
        return "array,booktabs,graphicx" if self.is_resized else "array,booktabs" if self.columns else "booktabs"

    @property
    def look(self) -> str:
        return rf"\{self.size}\setlength{{\tabcolsep}}{{{TABCOLSEP:g}pt}}" if self.columns else ""


def layout(texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Layout:
    """texts: of each column, the head first. numeric: whether a column is set flush right."""
    texts = [list(dict.fromkeys(column)) for column in texts]
    whole = [max(map(ems, column)) for column in texts]
    if sum(width * _NORMAL + 12 for width in whole) <= LINE:
        return Layout()
    words = [max(ems(part) for text in column for part in re.split(f"[ {BREAK}]", with_breaks(text))) for column in texts]
    for size, em in _SIZES:
        needs = [width * em + 2 * TABCOLSEP + _ROOM for width in words]
        if sum(needs) <= LINE:
            return Layout(tuple(map(_part, _filled(needs, [w * em for w in whole]), numeric)), size)
    size, em = _SIZES[0]
    points = [max(need * em + _ROOM, min(width * em, _LEAST)) for need, width in zip(words, whole, strict=True)]
    return Layout(tuple(_column(f"{p:.1f}pt", is_right) for p, is_right in zip(points, numeric, strict=True)), size, True)


def ems(text: str) -> float:
    """At least the width of a text in em of 10 pt."""
    return sum(_EMS.get(letter, 0.56 if letter.isascii() else 1.0) for letter in text)


def with_breaks(text: str) -> str:
    """With BREAK in words of more than twelve letters, after each of `_+/` and the dots of keys."""
    return _LONG_WORD.sub(lambda word: _BREAK.sub(rf"\g<0>{BREAK}", word[0]), text)


def _filled(needs: Sequence[float], whole: Sequence[float]) -> list[float]:
    """The widths that are needed, and what is left of the line where texts are longer than these."""
    wants = [max(width - need, 0.0) for need, width in zip(needs, whole, strict=True)]
    left, all_wants = LINE - sum(needs), sum(wants) or 1.0
    return [need + left * want / all_wants for need, want in zip(needs, wants, strict=True)]


def _part(points: float, is_right: bool) -> str:
    return _column(rf"\dimexpr {points / LINE:.4f}\linewidth-2\tabcolsep\relax", is_right)


def _column(width: str, is_right: bool) -> str:
    return rf">{{\ragged{'left' if is_right else 'right'}\arraybackslash}}p{{{width}}}"
