"""Texts as single lines with their numbers, for formats that are small enough to be held in memory."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vflbench.data.blocks import MAX_LINE_BYTES, open_parts, read_blocks
from vflbench.data.files import Part
from vflbench.errors import UserError

MOST_BYTES = 1 << 29
"""Of all texts together."""


class Line(NamedTuple):
    """A line that is not empty. number: from 1 on, within its part."""

    part: Part
    number: int
    text: str

    def error(self, problem: str, *, of_line: bool = True) -> UserError:
        """The error that names the part and, usually, the line."""
        where = f"line {self.number}: " if of_line else ""
        return UserError(f"{where}{problem}", key="dataset.path", value=str(self.part))

    @staticmethod
    def quoted(text: str) -> str:
        """A piece of the line, printable and short."""
        return repr(text[:60]) + ("..." if len(text) > 60 else "")


def read_lines(parts: Sequence[Part]) -> Iterator[Line]:
    """All lines of all parts but the empty ones, without line ends.

    Raises UserError for a line that is no UTF-8, holds a NUL or a carriage return, or is longer than a mebibyte, and for
    texts of more than 512 MiB.
    """
    size = 0
    for opened in open_parts(parts):
        for block in read_blocks(opened, quotes=False):
            number, place = block.first_line, 0
            size += len(block.data)
            if size > MOST_BYTES:
                problem = (
                    f"it holds more than {MOST_BYTES >> 20} MB, and this format is read into memory; dataset=csv is not"
                )
                raise UserError(problem, key="dataset.path", value=str(block.part))
            for match in re.finditer(rb"[^\n]+", block.data):
                number += block.data.count(b"\n", place, match.start())
                place = match.start()
                data = match[0].removesuffix(b"\r")
                line = Line(block.part, number, data.decode("utf-8", "surrogateescape"))
                wrong = _problem(data, line.text)
                if wrong:
                    raise line.error(wrong)
                if data:
                    yield line


def _problem(data: bytes, text: str) -> str | None:
    if len(data) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES:,} bytes"
    for mark, name in (
        ("\0", "a NUL byte"),
        ("\r", "a carriage return; lines end with a line feed"),
        ("\ufeff", "a byte-order mark"),
    ):
        place = text.find(mark)
        if place >= 0:
            return f"at {_around(text, place)} it holds {name}"
    if text.isascii():
        return None
    wrong = re.search("[\udc80-\udcff]", text)
    return None if wrong is None else f"at {_around(text, wrong.start())} it is not valid UTF-8"


def _around(text: str, place: int) -> str:
    return repr(text[max(0, place - 15) : place + 15])
