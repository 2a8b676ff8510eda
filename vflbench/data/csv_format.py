"""The layout of one table of one's own: what each column is read as, and what the user says of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from vflbench.data.column_shapes import ColumnShape, decimal_mark
from vflbench.data.csv_columns import TextLayout
from vflbench.data.files import Part
from vflbench.data.numerals import is_real
from vflbench.data.readings import Amount, Date, Derive, Mark, MissingAs, Reading, has_indicator
from vflbench.data.text import TextFormat
from vflbench.errors import UserError, shown

TypeOf = Literal["numeric", "categorical", "date", "ignore"]


class Wishes(Protocol):
    """What the user says of the columns."""

    id: str | None
    types: dict[str, TypeOf] | None
    decimal: Mark | None
    day_first: bool | None
    missing_as: MissingAs | None


def readings_of(
    wishes: Wishes, shapes: Mapping[str, ColumnShape], but: Sequence[str | None]
) -> tuple[dict[str, Reading], list[str]]:
    """How columns of texts are read as numbers, and lines on those that may be read in two ways. but: other columns.

    Raises UserError where a column that the user calls a date is none.
    """
    mark = wishes.decimal or decimal_mark(dict(shapes))
    readings: dict[str, Reading] = {}
    doubts: list[str] = []
    for name, shape in shapes.items():
        wanted = (wishes.types or {}).get(name)
        if name in but or wanted in ("ignore", "categorical"):
            continue
        found: Reading | None
        if wanted == "date":
            found = shape.date(wishes.day_first)
            if found is None:
                raise _no_date(name, shape)
        else:
            found = shape.amount(mark) if wanted == "numeric" else shape.reading(mark, wishes.day_first)
        if found is not None:
            readings[name] = found
        if wanted is None and not (shape.kind == "number" and wishes.decimal):
            doubts += filter(None, [shape.doubt(shown(name, 60), mark, wishes.day_first)])
    return readings, doubts


def format_of(
    wishes: Wishes,
    layout: TextLayout,
    parts: Sequence[Part],
    shapes: Mapping[str, ColumnShape],
    label: str,
    *,
    identified: bool = False,
) -> TextFormat:
    """The layout of a file with these columns. label: empty for a file without labels. identified: whether the identifiers
    are read, as texts; else their column is left out.
    """
    others = (label, wishes.id)
    readings, doubts = readings_of(wishes, shapes, others)
    if (wishes.decimal or decimal_mark(dict(shapes))) == ",":  # then 1.234 is no fraction
        fractions = [name for name, shape in shapes.items() if shape.kind == "number" and shape.fraction]
        readings |= dict.fromkeys(
            layout.fits(parts, [name for name in fractions if name not in others], Amount(",")), Amount(",")
        )
    if layout.header and all(is_real(name) for name in shapes):
        doubts.append(
            "the first line, which names the columns, holds numbers alone; if it is a row, say dataset.header=false"
        )
    types = wishes.types or {}
    numeric = {name for name, shape in shapes.items() if types.get(name, shape.kind) in ("numeric", "number", "null")}
    ignored = {name for name in shapes if types.get(name) == "ignore" and name not in others}
    if wishes.id in shapes and not identified and wishes.id != label:
        ignored.add(str(wishes.id))
    indicators = {
        name
        for name in (numeric | set(readings)) - {*others, *ignored}
        if has_indicator(wishes.missing_as, shapes[name].missing, shapes[name].rows)
    }
    return TextFormat(
        name=f"the table of {len(shapes)} columns",
        columns=tuple(shapes),
        label=label,
        delimiter=layout.delimiter,
        header=layout.header,
        reals=frozenset(numeric - {*others, *readings, *ignored}),
        ignored=frozenset(ignored),
        binary_label=False,
        missing=layout.missing,
        multiline=layout.multiline,
        quotes=True,
        encoding=layout.encoding,
        clean=layout.cleaning,
        readings=readings,
        finish=Derive(readings, indicators),
        read_as=_read_as(layout, shapes, readings, ignored - {wishes.id}, doubts),
    )


def _read_as(
    layout: TextLayout,
    shapes: Mapping[str, ColumnShape],
    readings: Mapping[str, Reading],
    ignored: set[str],
    doubts: list[str],
) -> dict[str, Any]:
    """How the table was read, for the manifest and for `vflbench prepare`."""
    missing = {name: shape.missing for name, shape in shapes.items() if shape.missing}
    return {
        "delimiter": layout.delimiter,
        "columns": {name: reading.words for name, reading in readings.items()},
        "first": {name: reading.day(0) for name, reading in readings.items() if isinstance(reading, Date)},
        **({"missing": missing} if missing else {}),
        **({"ignored": dict.fromkeys(sorted(ignored), "as dataset.types says")} if ignored else {}),
        **({"doubts": doubts} if doubts else {}),
    }


def _no_date(name: str, shape: ColumnShape) -> UserError:
    if shape.kind == "text" and len(shape.orders) > 1:
        dates = f"dates such as {shown(shape.example, 40)}"
        problem = f"day and month of {dates} can't be told apart; say dataset.day_first=true or false"
    else:
        example = f", and it holds values such as {shown(shape.example, 40)!r}" if shape.example else ""
        problem = f"dates are written 2020-12-31, 31.12.2020 or 12/31/2020, perhaps with a time{example}"
    return UserError(problem, key=f"dataset.types.{shown(name, 60)}", value="date")
