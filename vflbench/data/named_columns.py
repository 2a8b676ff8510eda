"""The columns of a user's table: which are features, what each is taken for, and whose it is."""

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from vflbench.data.base import Dataset
from vflbench.data.columns import Assignment, assign_columns, unassigned_columns
from vflbench.data.files import listed
from vflbench.data.readings import MISSING_PART, TypeOf, listed_rows
from vflbench.data.table import RawTable
from vflbench.errors import UserError, shown
from vflbench.options import options

COLUMNS_ARE = "columns_are"
"""The fact of a run that says, in lines, what its columns are taken for."""
_PARTS = (".month", ".weekday", ".hour", MISSING_PART)

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


@options
class NamedColumns(Dataset):
    """A dataset whose columns the user names.

    label: the column that holds the labels. types: column -> what it is taken for, where what is found is wrong. id: the
    column that identifies the rows; it is never a feature.
    """

    label: str | None = None
    types: dict[str, TypeOf] | None = None
    id: str | None = None

    def usable(self, raw: RawTable, facts: Mapping[str, Any]) -> tuple[list[str], dict[str, Any], tuple[str, ...]]:
        """The columns that are features, what each is taken for, and lines on what may be wrong."""
        read_as, class_rows = facts.get("read_as", {}), facts.get("class_rows", {})
        left_out, doubts = self.judged(raw, read_as)
        for party, patterns in self.parties.items() if isinstance(self.parties, Mapping) else ():
            for name in patterns:
                if name in left_out:
                    problem = (
                        f"party {party} names the column {shown(name, 60)}, which identifies rows ({left_out[name]}) "
                        f"and is no feature; to use it nevertheless, say dataset.types={{{shown(name, 60)}: categorical}}"
                    )
                    raise UserError(problem, key="dataset.parties", value=dict(self.parties))
        names = [name for name in raw.names if name not in left_out]
        if not names:
            problem = f"no column is left beside the label{' and identifiers' if left_out else ''}"
            raise UserError(f"{problem}; a party needs at least one", key="dataset.path", value=facts.get("path"))
        said = [*use_lines(raw, read_as.get("columns", {}), left_out), *class_lines(str(self.label), class_rows)]
        lines = list(doubts)
        if isinstance(self.parties, Mapping) and (unused := unassigned_columns(self.assign(names), names)):
            lines.append(f"no party in dataset.parties names these columns, so they are not used: {listed(unused, 10)}")
        return names, {COLUMNS_ARE: said}, tuple(lines)

    def table_lines(self, raw: RawTable, facts: Mapping[str, Any], *, labelled: bool = True) -> list[str]:
        """A table of what each column is taken for, with lines on what may be wrong. labelled: whether it has the labels."""
        left_out, doubts = self.judged(raw, facts.get("read_as", {}))
        table = column_table(raw, facts, str(self.label) if labelled else "", self.id, left_out)
        return [*table, *(line for note in doubts for line in _wrapped(f"note: {note}"))]

    def judged(self, raw: RawTable, read_as: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Columns that are no features, and why; lines on columns that may be something else than they are taken for."""
        dates = {name for name, words in read_as.get("columns", {}).items() if words.startswith("dates")}
        dates = {f"{name}{part}" for name in dates for part in ("", *_PARTS)}
        why, doubts = _identifiers(raw, self.types or {}, dates, self.min_count)
        return why, [*read_as.get("doubts", ()), *doubts]

    def assign(self, names: Sequence[str]) -> Assignment:
        """As of one table; whoever has a date or a number has all that was made of it."""
        if not isinstance(self.parties, Mapping):
            return super().assign(names)
        owner = {name: party for party, patterns in self.parties.items() for name in patterns}
        with_parts = {party: list(patterns) for party, patterns in self.parties.items()}
        for name in names:
            base = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), "")
            is_made = base in owner and base in names and (name.endswith(MISSING_PART) or f"{base}.weekday" in names)
            if is_made and name not in owner:
                with_parts[owner[base]].append(name)
        return assign_columns(with_parts, names)

    def check_label(self, names: Sequence[str]) -> None:
        """Raises UserError where none is named, with the columns to choose from."""
        if self.label is None:
            problem = f"it must name the column that holds the labels; the columns are {listed(names, 40)}"
            raise UserError(problem, key="dataset.label")

    def check_named(self, names: Sequence[str]) -> None:
        """Raises UserError for options that name a column which isn't there. names: all columns."""
        self.check_label(names)
        wanted = [("dataset.label", str(self.label)), *(("dataset.types", name) for name in self.types or {})]
        wanted += [("dataset.id", self.id)] if self.id is not None else []
        for key, name in wanted:
            if name not in names:
                near = [other for other in names if other.strip() == name.strip()] or get_close_matches(name, names, 1)
                quotes = "'" if near and near[0] != near[0].strip() else ""
                meant = f"; did you mean {quotes}{shown(near[0], 60)}{quotes}?" if near else ""
                problem = f"there is no such column; the columns are {listed(names, 40)}{meant or _unsplit(name, names)}"
                raise UserError(problem, key=key, value=name)
        if self.id is not None and self.id == self.label:
            raise UserError("the label can't be the identifier of its row", key="dataset.id", value=self.id)


def _unsplit(name: str, names: Sequence[str]) -> str:
    """What to do about a first line that is no header, or that wasn't split."""
    if names[0].startswith("sep="):
        return f"; the first line names the separator: say dataset.skip_lines=1 dataset.delimiter='{names[0][4:] or ','}'"
    return "; to split at blanks, say dataset.delimiter=' '" if len(names) == 1 and name in names[0].split() else ""


def _identifiers(
    raw: RawTable, kept: Collection[str], dates: Collection[str], min_count: int
) -> tuple[dict[str, str], list[str]]:
    """Column -> why it is no feature: it tells rows apart, so that a model learns labels by heart; and lines on columns that
    may be identifiers, or the label in other words, and yet are features.

    Texts of which hardly any comes twice; whole numbers that differ in every row and are consecutive, or whose column is
    called like an identifier. Numbers with a fraction are measurements and stay. kept: columns that the user has given a
    type. dates: columns of dates. min_count: above 1, rare texts share one id.
    """
    why: dict[str, str] = {}
    doubts: list[str] = []
    rows, are_many = len(raw), len(raw) >= _LEAST_RUN
    for name, size in zip(raw.categorical_names, raw.sizes, strict=True) if rows >= _LEAST and min_count == 1 else ():
        if name not in kept and size >= _NEARLY * rows:
            why[name] = "different in every row" if size == rows else f"{size:,} different values in {rows:,} rows"
        elif name not in kept and are_many and size >= _MANY * rows:
            doubts.append(
                f"column {shown(name, 60)} has {size:,} different texts in {rows:,} rows, which a model can learn by heart; "
                f"leave it out with dataset.types={{{shown(name, 60)}: ignore}}, or set dataset.min_count=10"
            )
    for name in raw.numeric_names:
        values = None if rows < _LEAST or name in kept or name in dates else _different_wholes(raw, name)
        if values is None:
            continue
        if looks_like_identifier(name):
            why[name] = "a different number in every row"
        elif are_many and values[-1] - values[0] == len(values) - 1:
            why[name] = "consecutive numbers, one for each row"
        elif are_many:
            doubts.append(
                f"column {shown(name, 60)} has a different whole number in every row and is used as a number; "
                f"if it is an identifier, leave it out with dataset.types={{{shown(name, 60)}: ignore}}"
            )
    indicators = {name + MISSING_PART: f"says where {shown(name, 40)} is missing" for name in why}
    why |= {name: reason for name, reason in indicators.items() if name in raw.numeric_names}
    return why, [*doubts, *(_copies(raw, {*kept, *why}) if are_many else ())]


def looks_like_identifier(name: str) -> bool:
    """Whether a column is called as identifiers are: id, customer_id, customerId, account number, ..."""
    return bool(_NAMES.search(name) or _CAMEL.search(name))


def _different_wholes(raw: RawTable, name: str) -> np.ndarray | None:
    """The column in the first rows, sorted, without missing values; None unless all are whole numbers and differ."""
    values = raw.numeric[: min(len(raw), _SAMPLE), raw.numeric_names.index(name)].astype(np.float64)
    values = values[~np.isnan(values)]
    for some in (values[:1000], values):  # most columns are told by few rows
        if len(some) < _LEAST or (some != np.floor(some)).any() or len(distinct := np.unique(some)) < len(some):
            return None
    return distinct


def _copies(raw: RawTable, but: Collection[str]) -> list[str]:
    """Lines on columns of few values each of which stands in rows of one class alone: perhaps the label in other words."""
    labels = np.asarray(raw.labels[: min(len(raw), _SAMPLE)])
    if len(labels) - np.bincount(labels).max() < _LEAST_OF_CLASS:
        return []
    out: list[str] = []
    for name in raw.names:
        is_number = name in raw.numeric_names
        names, table = (raw.numeric_names, raw.numeric) if is_number else (raw.categorical_names, raw.categorical)
        values = table[: len(labels), names.index(name)]
        if name in but or len(np.unique(values[:1000])) > _FEW:
            continue
        known, places = np.unique(values, return_inverse=True)
        if len(known) <= _FEW and len(np.unique(places * raw.classes + labels)) == len(known):
            out.append(
                f"column {shown(name, 60)} determines the label: each of its {len(known)} values stands in rows of one "
                f"class alone; if it is known only after the label, leave it out with "
                f"dataset.types={{{shown(name, 60)}: ignore}}"
            )
    return out


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
    made = {f"{name}{part}" for name in dates for part in ("", *_PARTS)}
    made |= {f"{name}{MISSING_PART}" for name in raw.numeric_names}
    numbers = [name for name in raw.numeric_names if name not in left_out and name not in made]
    texts = [name for name in raw.categorical_names if name not in left_out]
    kinds = ((numbers, "number", "numbers"), (dates, "date", "dates"), (texts, "category", "categories"))
    said = [f"{len(names):,} {one if len(names) == 1 else many} ({_some(names)})" for names, one, many in kinds if names]
    lines = _wrapped(f"{owner}columns: {', '.join(said) or 'none'}")
    if left_out:
        lines += _wrapped(f"{owner}left out: {_some([f'{name} ({why})' for name, why in left_out.items()])}")
    return lines


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f", {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name, 80) for name in names[:most]) + more


def column_table(
    raw: RawTable, facts: Mapping[str, Any], label: str, identifier: str | None, left_out: Mapping[str, str]
) -> list[str]:
    """A table of all columns of the file, what each was taken for, and its values."""
    read_as: Mapping[str, Any] = facts.get("read_as", {})
    words, missing = read_as.get("columns", {}), read_as.get("missing", {})
    limits = dict(zip(raw.numeric_names, _limits(raw).T, strict=True))
    rows: list[tuple[str, str, str]] = []
    for name in raw.names:
        count = missing.get(name, 0)
        if name in left_out:
            kind, values = "left out", left_out[name]
        elif name in raw.categorical_names:
            size = raw.sizes[raw.categorical_names.index(name)]
            kind, values = "category", f"{size:,} different value{'' if size == 1 else 's'}"
        else:
            kind, values = _number(words.get(name, ""), read_as.get("first", {}).get(name), *limits[name])
            base = name.rpartition(".")[0]
            is_indicator = name.endswith(MISSING_PART) and (missing.get(base) or base in words)
            if is_indicator or words.get(base, "").startswith("dates"):
                kind = "whether missing" if is_indicator else "part of the date"
        as_zero = ", used as 0" if name in raw.numeric_names and name not in left_out else ""
        rows.append((name, kind, values + (f"; {count:,} missing{as_zero}" if count else "")))
    rows += [(name, "left out", why) for name, why in read_as.get("ignored", {}).items()]
    if identifier:
        rows.append((identifier, "identifier", "identifies the rows that belong together; no feature"))
    if label:
        rows.append((label, "label", _classes(facts.get("class_rows", {}))))
    rows = [("column", "taken for", "values"), *rows]
    widths = [min(24, max(len(shown(row[k], 24)) for row in rows)) for k in (0, 1)]
    lines: list[str] = []
    for name, kind, values in rows:
        before = f"{shown(name, 24):{widths[0]}}  {shown(kind, 24):{widths[1]}}  "
        lines += textwrap.wrap(
            shown(values, 200), 80, initial_indent=before, subsequent_indent=" " * len(before), break_on_hyphens=False
        )
    return lines


def _number(words: str, first: str | None, low: float, high: float) -> tuple[str, str]:
    """What a numeric column is called, and its least and largest value. first: the day that dates are counted from."""
    if words.startswith("dates"):
        begin = np.datetime64(first or "1970-01-01", "D")
        last = begin + (0 if np.isnan(high) else int(np.floor(high)))
        return "date and time" if "times" in words else "date", f"{begin} .. {last} ({words.split(' (')[1].rstrip(')')})"
    values = "no value" if np.isnan(low) else f"{low:,.6g} .. {high:,.6g}"
    return "number", f"{values} (decimal comma)" if words.endswith("comma") else values


def _limits(raw: RawTable) -> np.ndarray:
    """(2, k) least and largest of the values that are there; NaN where none is."""
    low, high = np.full((2, len(raw.numeric_names)), np.nan)
    for start in range(0, len(raw), _SAMPLE):
        values = raw.take(np.arange(start, min(start + _SAMPLE, len(raw)))).numeric
        low, high = np.fmin(low, np.fmin.reduce(values)), np.fmax(high, np.fmax.reduce(values))
    return np.stack([low, high])


def _classes(rows: Mapping[str, int]) -> str:
    if len(rows) != 2:
        return f"{len(rows)} classes: {listed_rows(rows, 4)}"
    negative, positive = rows
    return f"positive: {shown(positive, 20)} ({rows[positive]:,}); negative: {shown(negative, 20)} ({rows[negative]:,})"
