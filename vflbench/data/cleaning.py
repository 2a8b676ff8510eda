"""What is left out of a text before its lines are parsed: first lines, comments, and blanks around values."""

import re
from dataclasses import dataclass, replace

from vflbench.data.blocks import Block

_END = rb"(?=\r?(?:\n|\Z))"


@dataclass(frozen=True)
class Cleaning:
    """Makes lines empty, which are then no rows, and values shorter. The numbers of the lines stay what they were.

    skip_lines: how many first lines of a part to leave out. comment: lines that begin with it are left out; empty for none.
    trim: leave out blanks and tabs around values, outside quotes; where the delimiter is a blank, several count as one.
    """

    delimiter: str
    skip_lines: int = 0
    comment: str = ""
    trim: bool = False

    def __call__(self, block: Block) -> Block:
        data = self._without_first(block)
        if self.comment:
            data = re.sub(rb"(?m)^%s[^\n]*" % re.escape(self.comment.encode()), b"", data)
        return replace(block, data=self._trimmed(data) if self.trim else data)

    def _without_first(self, block: Block) -> bytes:
        data, place = block.data, 0
        for number in range(self.skip_lines + 1 - block.first_line):
            place = data.find(b"\n", place) + 1
            if not place:
                return b"\n" * number
        return data if not place else b"\n" * data.count(b"\n", 0, place) + data[place:]

    def _trimmed(self, data: bytes) -> bytes:
        """Linear in the length of the data: a run of blanks is looked at from its first one alone."""
        if b'"' in data:
            return b"\n".join(map(self._trimmed_line, data.split(b"\n")))
        mark = self.delimiter.encode()
        if mark == b" ":
            data = re.sub(rb"(?<![ \t])[ \t]++", b" ", data)
            return re.sub(rb"(?m)^ | " + _END, b"", data)
        blanks = self._blanks()
        start = rb"(?m)^%s++|(?<!%s)%s++%s" % (blanks, blanks, blanks, _END)
        around = rb"(?<!%s)%s*+%s%s*+" % (blanks, blanks, re.escape(mark), blanks)
        return re.sub(start, b"", re.sub(around, mark.replace(b"\\", b"\\\\"), data))

    def _trimmed_line(self, line: bytes) -> bytes:
        """The same of one line, whose quoted values stay as they are."""
        if b'"' not in line:
            return self._trimmed(line)
        pieces = re.split(rb'("(?:[^"]++|"")*+")', line)  # quoted values at odd places
        held = [b"\0" * len(piece) if k % 2 else piece for k, piece in enumerate(pieces)]
        quoted = iter(pieces[1::2])
        if any(b"\0" in piece or b'"' in piece for piece in pieces[::2]):
            return line  # of which the parser says what is wrong
        return re.sub(rb"\0++", lambda _: next(quoted), self._trimmed(b"".join(held)))

    def _blanks(self) -> bytes:
        return rb"[ ]" if self.delimiter == "\t" else rb"[ \t]"
