"""What texts stand for: numbers, plain or with a decimal comma or separators of thousands; dates; and classes."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflbench.data.files import listed
from vflbench.errors import UserError, shown

Mark = Literal[".", ","]
Order = Literal["ymd", "dmy", "mdy"]
TypeOf = Literal["numeric", "categorical", "date", "ignore"]
MissingAs = Literal["indicator", "zero"]
MISSING_PART = ".missing"
"""What is added to a column's name for the column that says whether its value is missing, 0 or 1."""

_FEW_MISSING = 0.01  # of the rows: more have an indicator
_SAMPLE = 300  # values that settle most columns of texts
_LEAST, _NEARLY = 10, 0.8  # different values of a column, and the share that can be read, which makes the others look odd
_END_OF_TIME = r"(?:Z|UTC|[-+]\d{2}:?\d{2})?"
_TIME = rf"(?:[T ] *(?P<H>\d{{1,2}}):(?P<M>\d{{2}})(?::(?P<S>\d{{2}}(?:[.,]\d+)?))? *(?P<p>[AaPp][Mm])? *{_END_OF_TIME})?"
_DATES: Mapping[str, str] = {
    "ymd": rf"^ *(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){_TIME} *$",
    "dmy": rf"^ *(?P<d>\d{{1,2}})[-/.](?P<m>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME} *$",
    "mdy": rf"^ *(?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME} *$",
}
_WORDS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}


@dataclass(frozen=True)
class Plain:
    """Numbers as programs write them, such as -1.5e3 (or inf, which no table may hold)."""

    parts: tuple[str, ...] = ("",)

    @property
    def words(self) -> str:
        return "numbers"

    def numbers(self, values: pa.Array) -> list[np.ndarray]:
        try:
            return [values.cast(pa.float64()).to_numpy(zero_copy_only=False)]
        except pa.ArrowInvalid:
            pattern = r"^[ \t]*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[ \t]*$"
            return [_finite(_where(pc.match_substring_regex(values, pattern), pc.ascii_trim_whitespace(values)))]


NUMBER = Plain()


@dataclass(frozen=True)
class Amount:
    """Numbers with a mark of their own before decimals, or with one before thousands: `1.234,56`, `1,234.56`, `3,5`.

    mark: of decimals. Of thousands it is the other one.
    """

    mark: Mark
    parts: tuple[str, ...] = ("",)

    @property
    def words(self) -> str:
        return "amounts" if self.mark == "." else "numbers with a decimal comma"

    def numbers(self, values: pa.Array) -> list[np.ndarray]:
        group = "," if self.mark == "." else "."
        digits = rf"(?:[1-9]\d{{0,2}}(?:\{group}\d{{3}})+|\d+)(?:\{self.mark}\d*)?|\{self.mark}\d+"
        fits = pc.match_substring_regex(values, rf"^ *[-+]?(?:{digits})(?:[eE][-+]?\d+)? *$")
        plain = pc.replace_substring(pc.replace_substring(values, group, ""), self.mark, ".")
        return [_finite(_where(fits, pc.ascii_trim_whitespace(plain)))]


@dataclass(frozen=True)
class Date:
    """Dates, some with a time of day: days since the first one (with the time as a fraction), the month 1 .. 12, the
    weekday 0 (Monday) .. 6, and of times the hour 0 .. 24. What follows a time to name its zone is left out.

    order: of year, month and day. first: the day that counts as 0, from 1970 on. timed: whether there are times.
    """

    order: Order
    first: int = 0
    timed: bool = False

    @property
    def words(self) -> str:
        return f"{'dates and times' if self.timed else 'dates'} ({_WORDS[self.order]})"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("", ".month", ".weekday", *([".hour"] if self.timed else []))

    def numbers(self, values: pa.Array) -> list[np.ndarray]:
        fields = pc.extract_regex(values, _DATES[self.order])
        year, month, day, hour, minute, second = (_group(fields, name) for name in "ymdHMS")
        half = pc.utf8_lower(pc.fill_null(fields.field("p"), "")).to_numpy(zero_copy_only=False)
        hour = np.where((half == "pm") & (hour < 12), hour + 12, np.where((half == "am") & (hour == 12), 0, hour))
        start = np.where((month >= 1) & (month <= 12), (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
        length = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(int)
        right = (day >= 1) & (day <= length) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 61)
        days = start.astype("M8[D]").astype(int) + day - 1
        clock = hour + minute / 60 + second / 3600
        weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
        columns = [days - self.first + clock / 24, month, weekday, *([clock] if self.timed else [])]
        return [np.where(right, column, np.nan) for column in columns]

    def day(self, number: float) -> str:
        """The date of a number of days."""
        return str(np.datetime64(int(np.floor(number)) + self.first, "D"))


ColumnReading: TypeAlias = Plain | Amount | Date
"""How the texts of one column are read as numbers. parts: what is added to its name, for each column that comes of it; the
first is empty. words: for messages. numbers: (n,) texts -> a column (n,) float64 for each part, NaN where one is missing or
can't be read.
"""


def _where(fits: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(fits, texts, None).cast(pa.float64())


def _finite(numbers: pa.Array) -> np.ndarray:
    values = numbers.to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), values, np.nan)


def _group(fields: pa.StructArray, name: str) -> np.ndarray:
    """(n,) float64; 0 where there is none."""
    texts = pc.replace_substring(pc.fill_null(fields.field(name), ""), ",", ".")
    return pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.float64()).to_numpy(zero_copy_only=False)


@dataclass
class ColumnShape:
    """What all values of a column so far can be read as.

    rows, missing: of how many rows how many are missing. can: the readings that fit all values; of dates, each with the
    first day. timed: whether one has a time of day. dotted: whether points stand in all dates. example: a value. differs: a
    value that the two decimal marks read differently. doubt: why texts may be no texts. is_typed: whether the file holds
    numbers, and no texts.
    """

    rows: int = 0
    missing: int = 0
    can: dict[ColumnReading, float] = field(
        default_factory=lambda: dict.fromkeys(
            (NUMBER, Amount("."), Amount(","), Date("ymd"), Date("dmy"), Date("mdy")), np.inf
        )
    )
    timed: bool = False
    dotted: bool = True
    example: str = ""
    differs: str = ""
    doubt: str = ""
    is_typed: bool = False

    def add(self, column: pa.Array) -> None:
        """More values. column: (n,) texts, or float64 of a file with types, null where missing."""
        self.rows, self.missing = self.rows + len(column), self.missing + column.null_count
        if pa.types.is_floating(column.type):
            self.is_typed = True
            if column.null_count < len(column):
                self.can = {reading: first for reading, first in self.can.items() if reading == NUMBER}
            return
        values = column.drop_null()
        if not len(values) or not self.can:
            return
        self.example = self.example or values[0].as_py()
        pointed = NUMBER not in self.can or pc.any(pc.match_substring(values, ".")).as_py()
        if not pointed and not np.isnan(NUMBER.numbers(values)[0]).any():  # whole numbers: both decimal marks read the same
            self.can = {reading: first for reading, first in self.can.items() if not isinstance(reading, Date)}
            return
        for sample in (values[:_SAMPLE], values):
            distinct = sample.unique()
            self._narrow(distinct)
            if not self.can:
                self._say_what_is_odd(distinct[:1000])
                return

    def _narrow(self, values: pa.Array) -> None:
        for reading in list(self.can):
            if reading == Amount(".") and NUMBER in self.can:
                continue  # which it reads as well
            numbers = reading.numbers(values)[0]
            if np.isnan(numbers).any():
                del self.can[reading]
            elif isinstance(reading, Date):
                self.can[reading] = min(self.can[reading], float(np.floor(numbers.min())))
        if {Amount("."), Amount(",")} <= set(self.can) and not self.differs:
            different = np.flatnonzero(Amount(".").numbers(values)[0] != Amount(",").numbers(values)[0])
            self.differs = values[int(different[0])].as_py() if len(different) else ""
        if self._orders:
            self.timed |= bool(pc.any(pc.match_substring(values, ":")).as_py())
            self.dotted &= bool(pc.all(pc.match_substring(values, ".")).as_py())

    def _say_what_is_odd(self, values: pa.Array) -> None:
        read = [reading.numbers(values)[0] for reading in ColumnShape().can]
        can: np.ndarray = np.any(np.isfinite(read), axis=0)
        if can.sum() < max(_LEAST, _NEARLY * len(can)):
            return
        if can.all():
            self.doubt = "holds numbers or dates that are written in different ways, so it is taken for texts"
            return
        odd = shown(values[int(np.flatnonzero(~can)[0])].as_py(), 40)
        self.doubt = (
            f"holds numbers or dates, but also {odd!r}, so it is taken for texts; if that stands for a missing value, "
            f"say dataset.missing=[NA,{odd}], and name all such words"
        )

    @property
    def _orders(self) -> dict[Order, float]:
        """Those of year, month and day in which all values are dates, each with its first day."""
        orders = {reading.order: first for reading, first in self.can.items() if isinstance(reading, Date)}
        return orders if self.rows > self.missing else {}

    def date(self, day_first: bool | None) -> Date | None:
        """How its dates are read; None if they are none, or day and month can't be told apart."""
        orders = self._orders
        order: Order | None = next(iter(orders)) if len(orders) == 1 else None
        if len(orders) > 1:
            order = "dmy" if day_first or (day_first is None and self.dotted) else "mdy" if day_first is False else None
        return None if order is None else Date(order, int(orders[order]), self.timed)

    def amount(self, mark: Mark | None) -> Plain | Amount | None:
        """How its numbers are read; None if they are none, or may be read in two ways. mark: that of the table, if known."""
        if self.differs and mark == "," and Amount(mark) in self.can:
            return Amount(mark)
        if NUMBER in self.can:
            return NUMBER
        marks = [reading for reading in self.can if isinstance(reading, Amount)]
        if len(marks) == 2 and self.differs:
            return None if mark is None else Amount(mark)
        return marks[0] if marks else None

    def doubts(self, name: str, mark: Mark | None, day_first: bool | None) -> list[str]:
        """What to say of a column that may be read in two ways."""
        if self.differs and mark is None and Amount(".") in self.can and Amount(",") in self.can:
            taken = "" if NUMBER in self.can else ", so it is taken for texts"
            return [
                f"column {name} holds numbers such as {shown(self.differs, 40)}, whose comma or point may stand before "
                f"decimals or thousands{taken}; say dataset.decimal='.' or dataset.decimal=','"
            ]
        if self._orders and self.date(day_first) is None:
            return [
                f"column {name} holds dates such as {shown(self.example, 40)}, whose day and month can't be told apart, so "
                "it is taken for texts; say dataset.day_first=true or false"
            ]
        return [f"column {name} {self.doubt}"] if self.doubt else []


def readings_of(
    wishes: Any, shapes: Mapping[str, ColumnShape], but: Collection[str | None]
) -> tuple[dict[str, ColumnReading], list[str]]:
    """How columns are read as numbers, and lines on those that may be read in two ways. but: other columns. wishes: a
    data set with the options `types`, `decimal` and `day_first`.

    The decimal mark of a table is what its columns agree on, where one of them leaves no doubt. Raises UserError where a
    column that the user calls a date is none.
    """
    marks = [[reading.mark for reading in shape.can if isinstance(reading, Amount)] for shape in shapes.values()]
    sure = {mark[0] for mark in marks if len(mark) == 1}
    mark: Mark | None = wishes.decimal or (sure.pop() if len(sure) == 1 else None)
    readings: dict[str, ColumnReading] = {}
    doubts: list[str] = []
    for name, shape in shapes.items():
        wanted = (wishes.types or {}).get(name)
        if name in but or wanted in ("ignore", "categorical"):
            continue
        date = shape.date(wishes.day_first)
        if wanted == "date" and date is None:
            problem = (
                f"it holds values such as {shown(shape.example, 40)!r}; dates are written 2020-12-31, 31.12.2020 or "
                "12/31/2020; where day and month can't be told apart, say dataset.day_first=true or false"
            )
            raise UserError(problem, key=f"dataset.types.{shown(name, 60)}", value="date")
        number = shape.amount(mark) or (NUMBER if wanted == "numeric" else None)
        reading: ColumnReading | None = date if wanted == "date" else number if wanted == "numeric" else date or number
        if reading is not None:
            readings[name] = reading
        if wanted is None:
            doubts += shape.doubts(shown(name, 60), mark, wishes.day_first)
    return readings, doubts


def described(
    readings: Mapping[str, ColumnReading], missing: Mapping[str, int], ignored: Sequence[str], doubts: Sequence[str]
) -> dict[str, Any]:
    """How the columns of a table were read, for the manifest and for `vflbench prepare`. missing: values of each column."""
    gaps = {name: count for name, count in missing.items() if count}
    return {
        "columns": {name: reading.words for name, reading in readings.items() if reading != NUMBER},
        "first": {name: reading.day(0) for name, reading in readings.items() if isinstance(reading, Date)},
        **({"missing": gaps} if gaps else {}),
        **({"ignored": dict.fromkeys(sorted(ignored), "as dataset.types says")} if ignored else {}),
        **({"doubts": list(doubts)} if doubts else {}),
    }


def has_indicator(choice: MissingAs | None, missing: int, rows: int) -> bool:
    """Whether a column of numbers has an indicator beside it. choice: of the user. missing: how many values are."""
    return choice != "zero" and 0 < missing < rows and (choice == "indicator" or missing > _FEW_MISSING * rows)


def numeric_columns(column: pa.Array, reading: ColumnReading) -> dict[str, np.ndarray]:
    """Part of the name -> (n,) float64 with NaN where missing or not to be read. column: texts, perhaps as
    a dictionary, or float64."""
    if pa.types.is_floating(column.type):
        return {"": column.to_numpy(zero_copy_only=False)}
    if not pa.types.is_dictionary(column.type):
        return dict(zip(reading.parts, reading.numbers(column), strict=True))
    codes = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
    made = zip(reading.parts, reading.numbers(column.dictionary), strict=True)
    return {part: np.append(values, np.nan)[codes] for part, values in made}


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
