"""Texts that stand for numbers: amounts with a decimal comma or separators of thousands, and dates."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mark = Literal[".", ","]
Order = Literal["ymd", "dmy", "mdy"]

_END_OF_TIME = r"(?:Z|UTC|[-+]\d{2}:?\d{2})?"
_TIME = rf"(?:[T ] *(?P<H>\d{{1,2}}):(?P<M>\d{{2}})(?::(?P<S>\d{{2}}(?:[.,]\d+)?))? *(?P<p>[AaPp][Mm])? *{_END_OF_TIME})?"
_DATES: Mapping[str, str] = {
    "ymd": rf"^ *(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){_TIME} *$",
    "dmy": rf"^ *(?P<d>\d{{1,2}})[-/.](?P<m>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME} *$",
    "mdy": rf"^ *(?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME} *$",
}
_WORDS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}


class Reading(Protocol):
    """How the texts of one column are read as numbers.

    parts: what is added to the column's name, for each column that comes of it; the first is empty. words: for messages.
    """

    @property
    def parts(self) -> tuple[str, ...]: ...

    @property
    def words(self) -> str: ...

    def numbers(self, values: pa.Array) -> Sequence[np.ndarray]:
        """A column for each part, (n,) float64, NaN where a text can't be read or is missing. values: (n,) texts."""


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
        numbers = pc.if_else(fits, pc.utf8_trim(plain, " +"), None).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return [np.where(np.isfinite(numbers), numbers, np.nan)]


@dataclass(frozen=True)
class Date:
    """Dates, some with a time of day: days since the first one (with the time as a fraction), the month 1 .. 12, the
    weekday 0 (Monday) .. 6, and of times the hour 0 .. 24. What follows a time to name its zone is left out.

    order: of year, month and day. first: the day that counts as 0, from 1970 on. timed: whether there are times.
    """

    order: Order
    first: int = 0
    timed: bool = False
    words: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", f"{'dates and times' if self.timed else 'dates'} ({_WORDS[self.order]})")

    @property
    def parts(self) -> tuple[str, ...]:
        return ("", ".month", ".weekday", *([".hour"] if self.timed else []))

    def numbers(self, values: pa.Array) -> list[np.ndarray]:
        found = pc.extract_regex(values, _DATES[self.order])
        year, month, day = (_whole(found, name) for name in "ymd")
        hour, minute, second = _whole(found, "H"), _whole(found, "M"), _real(found, "S")
        half = pc.utf8_lower(pc.fill_null(found.field("p"), "")).to_numpy(zero_copy_only=False)
        hour = np.where((half == "pm") & (hour < 12), hour + 12, np.where((half == "am") & (hour == 12), 0, hour))
        start = (np.where((month >= 1) & (month <= 12), (year - 1970) * 12 + month - 1, 0)).astype("M8[M]")
        length = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(int)
        right = _mask(found.is_valid()) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
        right &= (hour < 24) & (minute < 60) & (second < 61)
        days = start.astype("M8[D]").astype(int) + day - 1
        clock = hour + minute / 60 + second / 3600
        weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
        columns = [days - self.first + clock / 24, month, weekday, *([clock] if self.timed else [])]
        return [np.where(right, column, np.nan) for column in columns]

    def has_times(self, values: pa.Array) -> bool:
        return bool(pc.any(pc.match_substring(pc.fill_null(values, ""), ":")).as_py())

    def day(self, number: float) -> str:
        """The date of a number of days."""
        return str(np.datetime64(int(np.floor(number)) + self.first, "D"))


def _whole(found: pa.StructArray, name: str) -> np.ndarray:
    """(n,) int64; 0 where there is none."""
    texts = pc.fill_null(found.field(name), "")
    filled = pc.if_else(pc.equal(texts, ""), "0", texts)
    return filled.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _real(found: pa.StructArray, name: str) -> np.ndarray:
    texts = pc.replace_substring(pc.fill_null(found.field(name), ""), ",", ".")
    filled = pc.if_else(pc.equal(texts, ""), "0", texts)
    return filled.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _mask(values: pa.Array) -> np.ndarray:
    mask: np.ndarray = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def accepts(reading: Reading, text: str) -> bool:
    """Whether this text can be read so."""
    return bool(np.isfinite(reading.numbers(pa.array([text], pa.string()))[0][0]))


MissingAs = Literal["indicator", "zero"]
MISSING_PART = ".missing"
"""What is added to a column's name for the column that says whether its value is missing, 0 or 1."""
_FEW_MISSING = 0.01  # of the rows: more have an indicator


def has_indicator(choice: MissingAs | None, missing: int, rows: int) -> bool:
    """Whether a column of numbers has an indicator beside it. choice: of the user. missing: how many values are."""
    return choice != "zero" and 0 < missing < rows and (choice == "indicator" or missing > _FEW_MISSING * rows)


@dataclass(frozen=True)
class Derive:
    """Replaces columns of texts by the numbers that they stand for, and adds indicators of missing values.

    readings: column -> how it is read. indicators: columns of numbers that have one.
    """

    readings: Mapping[str, Reading]
    indicators: Collection[str] = ()

    def __call__(self, table: pa.Table) -> pa.Table:
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for name in table.column_names:
            made = columns_of(table[name], self.readings[name]) if name in self.readings else {"": table[name]}
            if name in self.indicators:
                made[MISSING_PART] = table[name].is_null().cast(pa.float64())
            columns |= {name + part: made[part] for part in made if not part or name + part not in table.column_names}
        return pa.table(columns)


def columns_of(column: pa.ChunkedArray, reading: Reading) -> dict[str, pa.Array]:
    """Part of the name -> (n,) float64 with null where missing. column: of texts, perhaps as a dictionary."""
    array = pa.chunked_array(column.chunks, column.type).combine_chunks()
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = array.indices.fill_null(len(array.dictionary)).to_numpy(zero_copy_only=False)
    made = zip(reading.parts, reading.numbers(array.dictionary), strict=True)
    return {part: pa.array(np.append(values, np.nan)[codes], from_pandas=True) for part, values in made}
