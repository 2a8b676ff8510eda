"""What a column is, from its values: numbers, texts, or texts that stand for numbers or dates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflbench.data.readings import Amount, Date, Mark, Order, Reading
from vflbench.errors import shown

Kind = Literal["null", "number", "text"]
_ORDERS: tuple[Order, ...] = ("ymd", "dmy", "mdy")
_MARKS: tuple[Mark, ...] = (".", ",")
_PLAIN = r"^[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?$"
_FIRST = 100  # values that settle most columns of texts
_LEAST, _NEARLY = 10, 0.8  # different values of a column, and the share of them that makes the others look odd
_COUNTED = 1000  # values of a block that are looked at for it


@dataclass
class ColumnShape:
    """What all values of a column so far can be read as.

    kind: the narrowest that fits: null (nothing but missing values), number, text. marks: decimal marks with which all can
    be read as amounts; orders: those of year, month and day with which all are dates, each with its first day. fraction,
    timed: whether one is a number with a fraction, has a time of day. plain: whether all texts are plain numbers, which
    whoever wrote the file took for texts. differs: an amount that the two marks read differently. dotted: whether points
    stand in all dates. rows, missing: of how many rows how many are missing. readable, others: values of the blocks that
    are numbers or dates, and that are neither, such as `odd`. beside: a number such as 1.234 in a column where whole
    numbers have no point.
    """

    kind: Kind = "null"
    fraction: bool = False
    marks: set[Mark] = field(default_factory=lambda: set(_MARKS))
    orders: dict[Order, float] = field(default_factory=lambda: dict.fromkeys(_ORDERS, np.inf))
    timed: bool = False
    plain: bool = True
    differs: str = ""
    example: str = ""
    dotted: bool = True
    rows: int = 0
    missing: int = 0
    readable: int = 0
    others: int = 0
    odd: str = ""
    beside: str = ""

    @property
    def is_open(self) -> bool:
        """Whether values must be looked at to know what the column is."""
        return bool(self.marks or self.orders)

    def add_numbers(self, *, fraction: bool) -> None:
        """A block of plain numbers, such as 12 or 1.5."""
        self.kind = "text" if self.kind == "text" else "number"
        self.readable += _LEAST
        self.fraction |= fraction
        self.orders.clear()
        if fraction:
            self.marks.discard(",")

    def close(self) -> None:
        """A block of texts that are nothing else."""
        self.kind = "text"
        self.marks.clear()
        self.orders.clear()

    def add_texts(self, values: pa.Array) -> None:
        """A block of texts. values: those that occur, each once, without missing ones."""
        if not len(values):
            return
        self.kind = "text"
        self.example = self.example or values[0].as_py()
        for sample in (values[:_FIRST], values) if len(values) > _FIRST else (values,):
            if self.is_open:
                self.plain &= bool(pc.all(pc.match_substring_regex(sample, _PLAIN)).as_py())
                self._narrow(sample)

    def count(self, values: pa.Array) -> None:
        """Count the texts of a block that are numbers or dates, and those that are neither. values: each once."""
        values = values[:_COUNTED]
        readings: list[Reading] = [Amount("."), Amount(","), *map(Date, _ORDERS)]
        read = [reading.numbers(values)[0] for reading in readings]
        can = np.isfinite(read).any(axis=0)
        self.readable, self.others = self.readable + int(can.sum()), self.others + int((~can).sum())
        if not self.odd and not can.all():
            self.odd = values[int(np.flatnonzero(~can)[0])].as_py()

    def _narrow(self, values: pa.Array) -> None:
        read = {mark: Amount(mark).numbers(values)[0] for mark in sorted(self.marks)}
        self.marks -= {mark for mark, numbers in read.items() if np.isnan(numbers).any()}
        if len(self.marks) == 2:
            other = np.flatnonzero(read["."] != read[","])
            self.differs = self.differs or (values[int(other[0])].as_py() if len(other) else "")
        for order in list(self.orders):
            days = Date(order).numbers(values)[0]
            if np.isnan(days).any():
                del self.orders[order]
            else:
                self.orders[order] = min(self.orders[order], float(np.floor(days.min())))
        if self.orders:
            self.timed |= Date("ymd").has_times(values)
            self.dotted &= bool(pc.all(pc.match_substring(values, ".")).as_py())

    def date(self, day_first: bool | None) -> Date | None:
        """How its dates are read; None if they are none, or day and month can't be told apart."""
        if self.kind != "text" or not self.orders:
            return None
        order = next(iter(self.orders)) if len(self.orders) == 1 else None
        if order is None:
            order = "dmy" if day_first or (day_first is None and self.dotted) else "mdy" if day_first is False else None
        return None if order is None else Date(order, int(self.orders[order]), self.timed)

    def amount(self, mark: Mark | None) -> Amount | None:
        """How its amounts are read; None if they are none, or may be read in two ways. mark: that of the table, if known."""
        if self.kind != "text" or self.plain or not self.marks:
            return None
        if mark in self.marks:
            return Amount(mark)
        if len(self.marks) == 1 or not self.differs:
            return Amount(min(self.marks, key=_MARKS.index))
        return None

    def reading(self, mark: Mark | None, day_first: bool | None) -> Reading | None:
        return self.date(day_first) or self.amount(mark)

    def doubt(self, name: str, mark: Mark | None, day_first: bool | None) -> str:
        """What to say of a column that may be read in two ways and is therefore taken for texts; empty for others."""
        if self.kind == "number" and self.beside and mark != ",":
            return (
                f"column {name} holds {self.beside} beside whole numbers without a point; if the point stands before "
                "thousands, say dataset.decimal=','"
            )
        if self.kind != "text" or self.reading(mark, day_first) is not None:
            return ""
        if len(self.orders) > 1:
            return (
                f"column {name} holds dates such as {self.example}, whose day and month can't be told apart, so it is taken "
                "for texts; say dataset.day_first=true or false"
            )
        if len(self.marks) > 1 and not self.plain:
            return (
                f"column {name} holds numbers such as {self.differs}, whose comma or point may stand before decimals or "
                "thousands, so it is taken for texts; say dataset.decimal='.' or dataset.decimal=','"
            )
        if not self.marks and not self.orders and self.readable >= max(_LEAST, _NEARLY * (self.readable + self.others)):
            if not self.odd:
                return f"column {name} holds numbers or dates that are written in different ways, so it is taken for texts"
            odd = shown(self.odd, 40)
            return (
                f"column {name} holds numbers or dates, but also {odd!r}, so it is taken for texts; if that stands for a "
                f"missing value, say dataset.missing=[NA,{odd}], and name all such words"
            )
        return ""


def decimal_mark(shapes: dict[str, ColumnShape]) -> Mark | None:
    """The decimal mark of a table: what its columns agree on, where one of them leaves no doubt."""
    texts = [shape for shape in shapes.values() if shape.kind == "text" and not shape.plain]
    sure = {next(iter(shape.marks)) for shape in texts if len(shape.marks) == 1}
    sure |= {"."} if any(shape.kind == "number" and shape.fraction for shape in shapes.values()) else set()
    return next(iter(sure)) if len(sure) == 1 else None
