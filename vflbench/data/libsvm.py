"""Tables in libsvm text, `label index:value index:value ...`."""

import re
from array import array
from collections.abc import Iterable

import numpy as np

from vflbench.data.line_errors import MOST_COLUMNS
from vflbench.data.lines import Line
from vflbench.data.numerals import is_real

MOST_NUMBERS = 1 << 28
"""Numbers in a table in memory, 2 GiB."""

_ODD = re.compile(r"[^ \t!-~]")  # what Python takes for blanks or digits beside those of ASCII, too
_INDEX = re.compile(r"[0-9]+")
_SHAPE = "`label index:value index:value ...`"


def is_libsvm(first: str) -> bool:
    """Whether a first line is one of libsvm text, and not a header."""
    words = first.split("#", 1)[0].split()
    if len(words) == 1:
        return is_real(words[0])  # a row of zeros
    return len(words) > 1 and all(word.count(":") == 1 for word in words[1:]) and "," not in words[0]


def read_libsvm(lines: Iterable[Line]) -> tuple[list[str], np.ndarray, list[str], list[Line]]:
    """Names, values (n, d), labels (n,) as whole numbers, and the line of each row. Raises UserError, with the line.

    Indices of a line are different whole numbers, from 0 or 1 on; values are finite. Labels are -1 and 1, or whole numbers
    from 0 on.
    """
    labels, rows, places = [], [], []
    columns, values = array("q"), array("d")
    least, most = 1, 0
    for line in lines:
        text = line.text.split("#", 1)[0]
        odd = _ODD.search(text)
        if odd:
            raise line.error(f"{line.quoted(odd[0])} is no part of {_SHAPE}")
        words = text.split()
        if not words:
            continue
        labels.append(_label(words[0], line))
        start = len(columns)
        for word in words[1:]:
            index, colon, value = word.partition(":")
            if not colon or not is_real(value) or not _INDEX.fullmatch(index.removeprefix("-")):
                raise line.error(f"{line.quoted(word)} is not index:value, with a finite number; a line is {_SHAPE}")
            if index.startswith("-"):
                raise line.error(f"it has the negative index {index}")
            if len(index) > 15:
                raise line.error(f"the index {line.quoted(index)} is too large")
            columns.append(int(index))
            values.append(float(value))
        here = columns[start:]
        if here:
            least, most = min(least, min(here)), max(most, max(here))
            if len(set(here)) < len(here):
                raise line.error(f"it has the index {next(k for k in here if here.count(k) > 1)} twice")
        if most - least >= MOST_COLUMNS:
            problem = (
                f"with the index {max(here)} there are {most - least + 1:,} columns; there are at most {MOST_COLUMNS:,}"
            )
            raise line.error(problem)
        if (most - least + 1) * len(labels) > MOST_NUMBERS:
            size = f"{len(labels):,} rows of {most - least + 1:,} columns"
            raise line.error(f"with the index {max(here, default=most)} this is a table of {size}, too large for memory")
        rows.append(len(here))
        places.append(line)
    if not places:
        return [], np.zeros((0, 0)), [], []
    if most < least:
        raise places[0].error("no row has a feature", of_line=False)
    _check_labels(labels, places)
    x = np.zeros((len(labels), most - least + 1))
    x[np.repeat(np.arange(len(rows)), rows), np.asarray(columns) - least] = values
    return [f"x{j}" for j in range(least, most + 1)], x, [str(label) for label in labels], places


def _label(word: str, line: Line) -> int:
    value = float(word) if is_real(word) else 0.5
    if value != int(value) or not -1 <= value < 1000:
        raise line.error(f"the label is {line.quoted(word)}; labels are -1 and 1, 0 and 1, or 1 to K (at most 999)")
    return int(value)


def _check_labels(labels: list[int], places: list[Line]) -> None:
    """-1 stands beside 1 alone."""
    if -1 in labels:
        other = next((k for k, label in enumerate(labels) if label not in (-1, 1)), None)
        if other is not None:
            raise places[other].error(
                f"the label is {labels[other]}, beside -1 in other lines, where it can only be -1 or 1"
            )
