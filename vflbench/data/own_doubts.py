"""Which columns of one's own table can be no features, or may be none: identifiers, and the label in other words."""

import re
from collections.abc import Collection, Mapping

import numpy as np

from vflbench.data.table import MISSING_INTEGER, RawTable
from vflbench.errors import shown

_LEAST, _LEAST_RUN = 20, 100
"""Rows from which on a column can be an identifier: by its texts or its name; because its numbers are consecutive."""
_SAMPLE = 1 << 16  # rows whose numbers are looked at
_NEARLY, _MANY = 0.95, 0.5
_FEW, _LEAST_OF_CLASS = 20, 10
"""Values up to which a column can be the label in other words, and rows of other classes than the largest that show it."""
_NAMES = re.compile(
    r"(?:^|[ _.\-])(?:id|ids|uuid|guid|key|pk|no|nr|num|number|idx|index|row|rownum|iban|ssn|email|phone|msisdn)$"
    r"|^(?:|unnamed: ?0)$|(?:number|nummer)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"[a-z](?:Id|ID|Key|No|Nr)$")


def identifiers_of(raw: RawTable, kept: Collection[str], dates: Collection[str], min_count: int) -> dict[str, str]:
    """Column -> why it is no feature: it tells rows apart, so that a model learns labels by heart.

    Texts of which hardly any comes twice; whole numbers that differ in every row and are consecutive, or whose column is
    called like an identifier. Numbers with a fraction are measurements and stay. kept: columns that the user has given a
    type. dates: columns of dates. min_count: above 1, rare texts share one id.
    """
    why: dict[str, str] = {}
    rows = len(raw)
    if rows < _LEAST:
        return why
    for name, size in zip(raw.categorical_names, raw.sizes, strict=True):
        if name not in kept and min_count == 1 and size >= _NEARLY * rows:
            why[name] = "different in every row" if size == rows else f"{size:,} different values in {rows:,} rows"
    for name in _unique_numbers(raw, {*kept, *dates}):
        if looks_like_identifier(name):
            why[name] = "a different number in every row"
        elif rows >= _LEAST_RUN and _is_run(raw, name):
            why[name] = "consecutive numbers, one for each row"
    return why


def looks_like_identifier(name: str) -> bool:
    """Whether a column is called as identifiers are: id, customer_id, customerId, account number, ..."""
    return bool(_NAMES.search(name) or _CAMEL.search(name))


def doubts_of(raw: RawTable, kept: Collection[str], dates: Collection[str], min_count: int) -> list[str]:
    """Lines on columns that may be identifiers, and yet are features."""
    out: list[str] = []
    rows = len(raw)
    if rows < _LEAST_RUN:
        return out
    left_out = identifiers_of(raw, kept, dates, min_count)
    for name, size in zip(raw.categorical_names, raw.sizes, strict=True):
        if name not in kept and name not in left_out and min_count == 1 and size >= _MANY * rows:
            out.append(
                f"column {shown(name, 60)} has {size:,} different texts in {rows:,} rows, which a model can learn by heart; "
                f"leave it out with dataset.types={{{shown(name, 60)}: ignore}}, or set dataset.min_count=10"
            )
    for name in _unique_numbers(raw, {*kept, *dates}):
        if name not in left_out:
            out.append(
                f"column {shown(name, 60)} has a different whole number in every row and is used as a number; "
                f"if it is an identifier, leave it out with dataset.types={{{shown(name, 60)}: ignore}}"
            )
    return [*out, *_copies(raw, {*kept, *left_out})]


def _copies(raw: RawTable, but: Collection[str]) -> list[str]:
    """Lines on columns of few values each of which stands in rows of one class alone: perhaps the label in other words."""
    labels = np.asarray(raw.labels[: min(len(raw), _SAMPLE)])
    if len(labels) - np.bincount(labels).max() < _LEAST_OF_CLASS:
        return []
    out: list[str] = []
    for name in raw.names:
        if name in but:
            continue
        if name in raw.numeric_names:
            values = raw.numeric[: len(labels), raw.numeric_names.index(name)]
        else:
            values = raw.categorical[: len(labels), raw.categorical_names.index(name)]
        if len(np.unique(values[:1000])) > _FEW:
            continue
        known, places = np.unique(values, return_inverse=True)
        seen = np.zeros((len(known), int(labels.max()) + 1), dtype=bool)
        if len(known) > _FEW:
            continue
        seen[places, labels] = True
        if (seen.sum(axis=1) == 1).all():
            out.append(
                f"column {shown(name, 60)} determines the label: each of its {len(known)} values stands in rows of one "
                f"class alone; if it is known only after the label, leave it out with "
                f"dataset.types={{{shown(name, 60)}: ignore}}"
            )
    return out


def case_lines(class_rows: Mapping[str, int]) -> list[str]:
    """A line on classes that differ in nothing but case."""
    spellings: dict[str, list[str]] = {}
    for name in class_rows:
        spellings.setdefault(name.casefold(), []).append(name)
    twice = [names for names in spellings.values() if len(names) > 1]
    named = "; ".join(", ".join(shown(name, 40) for name in names) for names in twice[:3])
    line = f"some classes differ only in case ({named}); dataset.positive=[...] names spellings of one class"
    return [line] if twice else []


def _first_numbers(raw: RawTable, name: str) -> np.ndarray:
    """The column in the first rows, without missing values. (m,) float64."""
    column = raw.numeric[: min(len(raw), _SAMPLE), raw.numeric_names.index(name)]
    if column.dtype == np.int32:
        return column[column != MISSING_INTEGER].astype(np.float64)
    values = column.astype(np.float64)
    return values[~np.isnan(values)]


def _unique_numbers(raw: RawTable, but: Collection[str]) -> list[str]:
    """Columns of whole numbers that differ in every row, by the first rows."""
    names = []
    for name in raw.numeric_names:
        values = _first_numbers(raw, name) if name not in but else np.zeros(0)
        if len(values) < _LEAST or (values[:1000] != np.floor(values[:1000])).any():
            continue
        if len(np.unique(values[:1000])) < len(values[:1000]) or (values != np.floor(values)).any():
            continue
        if len(np.unique(values)) == len(values):
            names.append(name)
    return names


def _is_run(raw: RawTable, name: str) -> bool:
    values = _first_numbers(raw, name)
    return bool(values.max() - values.min() == len(values) - 1)
