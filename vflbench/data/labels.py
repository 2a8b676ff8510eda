"""What can be a class: the one place that decides it, for every reader."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice

from vflbench.data.files import listed
from vflbench.errors import UserError, shown

MOST_CLASSES = 1000
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Words that stand for a missing value, in tables of any columns."""

NO_LABEL = "the row has no label"

_LONGEST = 64

_YES = ("yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "sim", "positive", "pos", "+")
_NO = ("no", "n", "false", "f", "nein", "non", "não", "nao", "negative", "neg", "-")

PositiveClass = str | int | float | bool | list[str | int | float] | None
"""The positive value of a label, or its spellings."""


_REAL = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")


def is_real(text: str) -> bool:
    """Whether this is a finite decimal number, such as -1.5e3; not 1_0, 0x1, inf, nan, 1e400 or digits of other scripts."""
    return _REAL.fullmatch(text) is not None and math.isfinite(float(text))


def label_problem(text: str) -> str | None:
    """Why this text can't name a class; None if it can."""
    if text.strip() in MISSING:
        return NO_LABEL
    said = f"the label is {shown(repr(text), 60)}"
    if not text.isprintable():
        return f"{said}; a class has a name of printable characters"
    if len(text) > _LONGEST:
        return f"{said}, of {len(text):,} characters; the name of a class has at most {_LONGEST}"
    return None


def with_remedy(problem: str) -> str:
    """What is wrong with a line of a text, and for a row without a label what leaves it out."""
    skips = "dataset.bad_rows=skip leaves such rows out, up to dataset.max_bad_fraction of all"
    return f"{problem}; {skips}" if problem.endswith(NO_LABEL) else problem


def class_names(rows_of: Mapping[str, int], positive: PositiveClass = None) -> tuple[list[str], dict[str, int]]:
    """Names of the classes in order, and the class of each label.

    Numbers are sorted by value, and 1 and 1.0 are one class; texts by alphabet, without the blanks around them, but of two
    that are yes and no, in several languages, yes is the second.
    rows_of: label -> its rows. positive: the label of class 1, with all others in class 0.
    Raises UserError for too many classes.
    """
    in_order = sorted(rows_of, key=_place)
    if positive is not None:
        spellings = positive if isinstance(positive, list) else [positive]
        chosen = {label for label in in_order if any(_is_same(label, spelling) for spelling in spellings)}
        if not chosen:
            problem = f"no row has this label; the labels are {listed(in_order)}"
            raise UserError(problem, key="dataset.positive", value=positive)
        return [f"not {spellings[0]}", str(spellings[0])], {label: int(label in chosen) for label in in_order}
    words = [label.strip().lower() for label in in_order]
    if len(words) == 2 and words[0] in _YES and words[1] in _NO:
        in_order.reverse()
    names: dict[tuple[int, Decimal, str], str] = {}
    for label in in_order:
        names.setdefault(_place(label), label.strip())
    total = sum(rows_of.values())
    if len(names) > max(2, min(MOST_CLASSES, total // 2)):
        problem = f"it has {len(names):,} different values in {total:,} rows; a label is a class, not a measurement"
        raise UserError(f"{problem}, and there are at most {MOST_CLASSES:,}", key="dataset.label")
    places = {place: number for number, place in enumerate(names)}
    return list(names.values()), {label: places[_place(label)] for label in in_order}


def listed_rows(rows_of: Mapping[str, int], most: int = 12) -> str:
    """The classes that were read and how many rows each has, for a line."""
    some = [f"{shown(name, 40)} ({count:,})" for name, count in islice(rows_of.items(), most)]
    return ", ".join(some) + (f" and {len(rows_of) - most:,} more" if len(rows_of) > most else "")


def _place(label: str) -> tuple[int, Decimal, str]:
    """Numbers by their value as it is written: two that float64 can't tell apart are two classes."""
    label = label.strip()
    return (0, Decimal(label), "") if is_real(label) else (1, Decimal(0), label)


def _is_same(label: str, value: str | int | float | bool) -> bool:
    """Whether a label, as spelled in the file, equals the value that the user gave."""
    label = label.strip()
    if isinstance(value, bool):
        return label.lower() == str(value).lower()
    return label == str(value).strip() or (
        not isinstance(value, str) and is_real(label) and Decimal(label) == Decimal(str(value))
    )
