"""The delimiter of a table, found from its first lines."""

import re
from collections.abc import Collection, Sequence
from itertools import islice

from vflbench.data.blocks import Block
from vflbench.data.text import fields_of, numbered_lines
from vflbench.errors import UserError

CANDIDATES = (",", ";", "\t", "|")
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar", " ": "blank"}
_LINES = 200
_NUMBER = re.compile(rb"\s*[-+]?[0-9]*[.,]?[0-9]+\s*")


def found_delimiter(block: Block, *, header: bool, wanted: Collection[str], columns: Sequence[str] | None) -> str:
    """The candidate that splits the first lines best.

    A candidate must split the first line. Those with which the header has one of the wanted names are preferred; where
    there are several, the one with which most lines have as many fields as the first, and then most fields are numbers.

    block: the first lines, cleaned. wanted: names of columns that must be there, such as the label. columns: names of the
    columns of a table without a header. Raises UserError where two candidates do equally well.
    """
    scores: dict[str, tuple[bool, float, float]] = {}
    for mark in CANDIDATES:
        rows = [
            fields_of(line, mark, quotes=True)
            for _, line, _ in islice(numbered_lines(block, mark, multiline=True), _LINES + header)
            if line
        ]
        first = rows[0] if rows else None
        if first is None or len(first) < 2:
            continue
        names = {name.decode("utf-8", "surrogateescape").strip() for name in first} if header else set()
        named = bool(names & set(wanted)) if header else columns is not None and len(first) == len(columns)
        split = [row for row in rows if row is not None and len(row) == len(first)]
        values = [value for row in split[header:] for value in row]
        plain = sum(not value or _NUMBER.fullmatch(value) is not None for value in values) / max(1, len(values))
        scores[mark] = (named, len(split) / len(rows), plain)
    if not scores:
        return ","
    best = max(scores.values())
    chosen = [mark for mark, score in scores.items() if score == best]
    if len(chosen) > 1:
        which = " or ".join(f"{NAMES[mark]} ({mark!r})" for mark in chosen)
        problem = f"the first lines can be split at {which}; say which with dataset.delimiter"
        raise UserError(problem, key="dataset.path", value=str(block.part))
    return chosen[0]
