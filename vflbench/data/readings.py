"""Texts that stand for numbers: plain ones, ones with a decimal comma or separators of thousands, and dates.

Each reading looks at the different values of a column, which are few beside its rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


class Reading(Protocol):
    """How the texts of one column are read. words: of what it holds, for messages."""

    @property
    def words(self) -> str: ...

    def made(self, values: pa.Array, name: str = "") -> dict[str, Any]:
        """What is made of a column's different texts: name -> (n,) float64, NaN where one can't be read, or texts."""


@dataclass(frozen=True)
class Plain:
    """Numbers as programs write them, such as -1.5e3 (or inf, which no table may hold); whole: integers alone."""

    whole: bool = False

    @property
    def words(self) -> str:
        return "integers" if self.whole else "numbers"

    def made(self, values: pa.Array, name: str = "") -> dict[str, np.ndarray]:
        try:
            if self.whole and pc.any(pc.match_substring(values, "x", ignore_case=True)).as_py():
                raise pa.ArrowInvalid("the library reads 0x10 as an integer")
            plain = values.cast(pa.int64() if self.whole else pa.float64()).cast(pa.float64(), safe=False)
            return {name: plain.to_numpy(zero_copy_only=False)}
        except pa.ArrowInvalid:
            if self.whole:
                digits = pc.utf8_lpad(pc.utf8_ltrim(values, "-0"), 19, "0")  # 64 bits hold those up to
                most = pc.if_else(pc.starts_with(values, "-"), "9223372036854775808", "9223372036854775807")
                short = pc.and_(pc.equal(pc.utf8_length(digits), 19), pc.less_equal(digits, most))
                fits = pc.and_(short, pc.match_substring_regex(values, r"^-?[0-9]+$"))
                return {name: _finite(pc.if_else(fits, values, None).cast(pa.float64())) + 0.0}  # -0 is 0, as of integers
            fits = pc.match_substring_regex(values, r"^[ \t]*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[ \t]*$")
            return {name: _finite(pc.if_else(fits, pc.ascii_trim_whitespace(values), None).cast(pa.float64()))}


NUMBER, INTEGER = Plain(), Plain(whole=True)


@dataclass(frozen=True)
class Amount:
    """Numbers with a mark of their own before decimals, or with one before thousands: `1.234,56`, `1,234.56`, `3,5`.

    mark: of decimals. Of thousands it is the other one.
    """

    mark: Mark

    @property
    def words(self) -> str:
        return "amounts" if self.mark == "." else "numbers with a decimal comma"

    def made(self, values: pa.Array, name: str = "") -> dict[str, np.ndarray]:
        group = "," if self.mark == "." else "."
        digits = rf"(?:[1-9]\d{{0,2}}(?:\{group}\d{{3}})+|\d+)(?:\{self.mark}\d*)?|\{self.mark}\d+"
        fits = pc.match_substring_regex(values, rf"^ *[-+]?(?:{digits})(?:[eE][-+]?\d+)? *$")
        plain = pc.replace_substring(pc.replace_substring(values, group, ""), self.mark, ".")
        return {name: _finite(pc.if_else(fits, pc.ascii_trim_whitespace(plain), None).cast(pa.float64()))}


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

    def made(self, values: pa.Array, name: str = "") -> dict[str, np.ndarray]:
        found = pc.extract_regex(values, _DATES[self.order])
        year, month, day, hour, minute, second = (_group(found, name) for name in "ymdHMS")
        half = pc.utf8_lower(pc.fill_null(found.field("p"), "")).to_numpy(zero_copy_only=False)
        hour = np.where((half == "pm") & (hour < 12), hour + 12, np.where((half == "am") & (hour == 12), 0, hour))
        start = np.where((month >= 1) & (month <= 12), (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
        length = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(int)
        right = (day >= 1) & (day <= length) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 61)
        days = start.astype("M8[D]").astype(int) + day - 1
        clock = hour + minute / 60 + second / 3600
        columns = {"": days - self.first + clock / 24, ".month": month, ".weekday": (days + 3) % 7}  # 1970 began on Thursday
        columns |= {".hour": clock} if self.timed else {}
        return {name + end: np.where(right, column, np.nan) for end, column in columns.items()}

    def day(self, number: float) -> str:
        """The date of a number of days."""
        return str(np.datetime64(int(np.floor(number)) + self.first, "D"))


def _finite(numbers: pa.Array) -> np.ndarray:
    values = numbers.to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), values, np.nan)


def _group(found: pa.StructArray, name: str) -> np.ndarray:
    """(n,) float64; 0 where there is none."""
    texts = pc.replace_substring(pc.fill_null(found.field(name), ""), ",", ".")
    return pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.float64()).to_numpy(zero_copy_only=False)


_BOTH = {Amount("."), Amount(",")}
_ALL: tuple[Reading, ...] = (NUMBER, Amount("."), Amount(","), Date("ymd"), Date("dmy"), Date("mdy"))


def _reads(reading: Reading, values: pa.Array) -> bool:
    return not np.isnan(reading.made(values)[""]).any()


def _first(date: Date, values: pa.Array) -> int:
    return int(np.floor(date.made(values)[""].min()))


@dataclass(frozen=True)
class Shape:
    """What all values of a column can be read as.

    can: the readings that fit all values. example: a value. differs: a value that the two decimal marks read differently.
    dotted: whether points stand in all of them. doubt: why texts may be no texts.
    """

    can: tuple[Reading, ...] = (NUMBER,)
    example: str = ""
    differs: str = ""
    dotted: bool = False
    doubt: str = ""

    @classmethod
    def of(cls, values: pa.Array) -> "Shape":
        """values: (n,) different texts, none of them missing."""
        if not len(values):
            return cls()
        can = list(_ALL)
        for sample in (values[:_SAMPLE], values):
            is_plain = NUMBER in can and _reads(NUMBER, sample)
            can = [one for one in can[NUMBER in can :] if (is_plain and one == Amount(".")) or _reads(one, sample)]
            can = [NUMBER, *can] if is_plain else can
        example = values[0].as_py()
        if not can:
            return cls((), example, doubt=_what_is_odd(values))
        if NUMBER in can and not pc.any(pc.match_substring(values, ".")).as_py():
            return cls((NUMBER,), example)  # whole numbers: both decimal marks read the same
        marks = [one.made(values)[""] for one in can if isinstance(one, Amount)] if {*can} >= _BOTH else []
        apart = np.flatnonzero(marks[0] != marks[-1]) if marks else np.empty(0)
        timed = pc.any(pc.match_substring(values, ":")).as_py()
        can = [replace(one, first=_first(one, values), timed=timed) if isinstance(one, Date) else one for one in can]
        dotted = pc.all(pc.match_substring(values, ".")).as_py()
        return cls(tuple(can), example, values[int(apart[0])].as_py() if len(apart) else "", dotted)

    def date(self, day_first: bool | None) -> Date | None:
        """How its dates are read; None if they are none, or day and month can't be told apart."""
        orders = {reading.order: reading for reading in self.can if isinstance(reading, Date)}
        if len(orders) > 1:
            day_first = True if day_first is None and self.dotted else day_first
            return None if day_first is None else orders["dmy" if day_first else "mdy"]
        return next(iter(orders.values()), None)

    def amount(self, mark: Mark | None) -> Reading | None:
        """How its numbers are read; None if they are none, or may be read in two ways. mark: that of the table, if known."""
        marks = {reading.mark: reading for reading in self.can if isinstance(reading, Amount)}
        if NUMBER in self.can and not (self.differs and mark == ","):
            return NUMBER
        return marks.get(mark) if mark and self.differs else next(iter(marks.values()), None) if not self.differs else None

    def doubts(self, name: str, mark: Mark | None, day_first: bool | None) -> list[str]:
        """What to say of a column that may be read in two ways."""
        if self.differs and mark is None:
            taken = "" if NUMBER in self.can else ", so it is taken for texts"
            return [
                f"column {name} holds numbers such as {shown(self.differs, 40)}, whose comma or point may stand before "
                f"decimals or thousands{taken}; say dataset.decimal='.' or dataset.decimal=','"
            ]
        if any(isinstance(reading, Date) for reading in self.can) and self.date(day_first) is None:
            return [
                f"column {name} holds dates such as {shown(self.example, 40)}, whose day and month can't be told apart, so "
                "it is taken for texts; say dataset.day_first=true or false"
            ]
        return [f"column {name} {self.doubt}"] if self.doubt else []


def _what_is_odd(values: pa.Array) -> str:
    for some in (values[:1000], values):
        can = np.any([np.isfinite(reading.made(some)[""]) for reading in _ALL], axis=0)
        if can.sum() < max(_LEAST, _NEARLY * len(can)):
            return ""
        if not can.all():
            odd = shown(some[int(np.flatnonzero(~can)[0])].as_py(), 40)
            return (
                f"holds numbers or dates, but also {odd!r}, so it is taken for texts; if that stands for a missing value, "
                f"say dataset.missing=[NA,{odd}], and name all such words"
            )
    return "holds numbers or dates that are written in different ways, so it is taken for texts"


def readings_of(
    wishes: Any, shapes: Mapping[str, Shape], but: Collection[str | None]
) -> tuple[dict[str, Reading], list[str]]:
    """How columns are read as numbers, and lines on those that may be read in two ways. but: other columns. wishes: a
    data set with the options `types`, `decimal` and `day_first`.

    The decimal mark of a table is what its columns agree on, where one of them leaves no doubt. Raises UserError where a
    column that the user calls a date is none.
    """
    marks = [[reading.mark for reading in shape.can if isinstance(reading, Amount)] for shape in shapes.values()]
    sure = {found[0] for found in marks if len(found) == 1}
    mark: Mark | None = wishes.decimal or (sure.pop() if len(sure) == 1 else None)
    readings: dict[str, Reading] = {}
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
        found: Reading | None = date if wanted == "date" else number if wanted == "numeric" else date or number
        if found is not None:
            readings[name] = found
        if wanted is None:
            doubts += shape.doubts(shown(name, 60), mark, wishes.day_first)
    return readings, doubts


def has_indicator(choice: MissingAs | None, missing: int, rows: int) -> bool:
    """Whether a column of numbers has an indicator beside it. choice: of the user. missing: how many values are."""
    return choice != "zero" and 0 < missing < rows and (choice == "indicator" or missing > _FEW_MISSING * rows)
