"""Lines and a table on what each column of a table of one's own is taken for."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vflbench.data.labels import listed_rows
from vflbench.data.readings import MISSING_PART
from vflbench.data.table import CHUNK_ROWS, MISSING_INTEGER, RawTable
from vflbench.errors import shown


def class_lines(label: str, class_rows: Mapping[str, int]) -> list[str]:
    """Which class is positive, or which classes there are."""
    rows, names = sum(class_rows.values()), list(class_rows)
    if len(names) != 2:
        return _wrapped(f"label {shown(label, 40)}: {len(names)} classes: {listed_rows(class_rows)}")
    negative, positive = (shown(name, 40) for name in names)
    count = f"{class_rows[names[1]]:,} of {rows:,} rows"
    return _wrapped(f"label {shown(label, 40)}: positive is {positive} ({count}), negative is {negative}")


def use_lines(raw: RawTable, read_as: Mapping[str, str], left_out: Mapping[str, str], owner: str = "") -> list[str]:
    """What the columns are taken for, in lines of at most 80 characters. owner: what to put in front."""
    dates = [name for name, words in read_as.items() if words.startswith("dates") and name in raw.names]
    parts = {f"{name}{part}" for name in dates for part in ("", ".month", ".weekday", ".hour")}
    parts |= {f"{name}{MISSING_PART}" for name in raw.numeric_names}
    numbers = [name for name in raw.numeric_names if name not in left_out and name not in parts]
    texts = [name for name in raw.categorical_names if name not in left_out]
    said = []
    for names, one, many in ((numbers, "number", "numbers"), (dates, "date", "dates"), (texts, "category", "categories")):
        if names:
            said.append(f"{len(names):,} {one if len(names) == 1 else many} ({_some(names)})")
    lines = _wrapped(f"{owner}columns: {', '.join(said) or 'none'}")
    if left_out:
        lines += _wrapped(f"{owner}left out: {_some([f'{name} ({why})' for name, why in left_out.items()])}")
    return lines


def note_lines(notes: Iterable[str]) -> list[str]:
    """Each note in lines of at most 80 characters."""
    return [line for note in notes for line in _wrapped(f"note: {note}")]


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f", {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name, 80) for name in names[:most]) + more


def column_table(
    raw: RawTable, facts: Mapping[str, Any], label: str, identifier: str | None, left_out: Mapping[str, str]
) -> list[str]:
    """A table of all columns of the file, what each was taken for, and its values. Lines of at most 80 characters."""
    read_as: Mapping[str, Any] = facts.get("read_as", {})
    words, missing, ignored = (read_as.get(key, {}) for key in ("columns", "missing", "ignored"))
    low, high = _limits(raw)
    rows: list[tuple[str, str, str]] = []
    for name in raw.names:
        if name in left_out:
            rows.append((name, "left out", left_out[name]))
        elif name in raw.categorical_names:
            size = raw.sizes[raw.categorical_names.index(name)]
            rows.append((name, "category", f"{size:,} different value{'' if size == 1 else 's'}"))
        else:
            j = raw.numeric_names.index(name)
            kind = words.get(name, "number")
            values = "no value" if np.isnan(low[j]) else f"{low[j]:,.6g} .. {high[j]:,.6g}"
            if kind.startswith("dates"):
                last = 0 if np.isnan(high[j]) else int(np.floor(high[j]))
                kind, order = ("date and time" if "times" in kind else "date"), kind.split(" (")[1].rstrip(")")
                begin = np.datetime64(read_as.get("first", {}).get(name, "1970-01-01"), "D")
                values = f"{begin} .. {begin + last} ({order})"
            elif kind == "amounts":
                kind = "number"
            elif kind.endswith("comma"):
                kind, values = "number", f"{values} (decimal comma)"
            elif name.rpartition(".")[0] in words and words[name.rpartition(".")[0]].startswith("dates"):
                kind = "whether missing" if name.endswith(MISSING_PART) else "part of the date"
            elif name.endswith(MISSING_PART) and missing.get(name.removesuffix(MISSING_PART)):
                kind = "whether missing"
            rows.append((name, kind.removesuffix("s"), values))
    as_zero = {name for name in raw.numeric_names if name not in left_out}
    rows = [(a, b, c + _missing(missing.get(a, 0), as_zero=a in as_zero)) for a, b, c in rows]
    rows += [(name, "left out", why) for name, why in ignored.items()]
    if identifier:
        rows.append((identifier, "identifier", "identifies the rows that belong together; no feature"))
    if label:
        classes = facts.get("class_rows", {})
        rows.append((label, "label", _classes(classes)))
    widths = [min(24, max(len(shown(row[k], 24)) for row in [*rows, ("column", "taken for", "")])) for k in (0, 1)]
    lines = [f"{'column':{widths[0]}}  {'taken for':{widths[1]}}  values"]
    for name, kind, values in rows:
        before = f"{shown(name, 24):{widths[0]}}  {shown(kind, 24):{widths[1]}}  "
        lines += textwrap.wrap(
            shown(values, 200), 80, initial_indent=before, subsequent_indent=" " * len(before), break_on_hyphens=False
        )
    return lines


def _missing(count: int, *, as_zero: bool) -> str:
    return f"; {count:,} missing{', used as 0' if as_zero else ''}" if count else ""


def _classes(rows: Mapping[str, int]) -> str:
    if len(rows) != 2:
        return f"{len(rows)} classes: {listed_rows(rows, 4)}"
    negative, positive = rows
    return f"positive: {shown(positive, 20)} ({rows[positive]:,}); negative: {shown(negative, 20)} ({rows[negative]:,})"


def _limits(raw: RawTable) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest of the values that are there, (k,) each; NaN where none is.

    Statistics of a table on disk count a missing value as 0, so columns that seem to end at 0 are read again.
    """
    low, high = np.full((2, len(raw.numeric_names)), np.nan)
    again = np.arange(len(low))
    if raw.statistics is not None:
        low, high = raw.statistics.low.astype(float), raw.statistics.high.astype(float)
        again = np.flatnonzero((low == 0) | (high == 0))
        low[again] = high[again] = np.nan
    size = CHUNK_ROWS * 64
    for start in range(0, len(raw) if len(again) else 0, size):
        rows = slice(start, min(len(raw), start + size))
        read = raw.numeric[rows][:, again]
        values = np.where(read == MISSING_INTEGER, np.nan, read) if read.dtype == np.int32 else read
        low[again] = np.fmin(low[again], np.fmin.reduce(values, axis=0))
        high[again] = np.fmax(high[again], np.fmax.reduce(values, axis=0))
        raw.forget()
    return low, high
