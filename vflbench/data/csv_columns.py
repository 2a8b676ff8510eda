"""A first pass over delimited text: the names of its columns, and what the values of each can be read as."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from vflbench.data.blocks import Block, open_parts, read_blocks
from vflbench.data.cleaning import Cleaning
from vflbench.data.column_shapes import ColumnShape
from vflbench.data.files import Part
from vflbench.data.line_errors import names_error
from vflbench.data.readings import Amount
from vflbench.data.text import complete_records, fields_of, first_names, numbered_lines
from vflbench.errors import UserError

_START = 1 << 20  # bytes in which the delimiter is found
_SAMPLE = 300  # rows of a block that settle most columns of texts


@dataclass(frozen=True)
class TextLayout:
    """How to split a text, whatever its columns. columns: their names where there is no header."""

    delimiter: str
    header: bool
    columns: tuple[str, ...] | None
    missing: tuple[str, ...]
    cleaning: Cleaning
    multiline: bool
    encoding: str

    def blocks(self, part: Part) -> Iterator[tuple[tuple[str, ...], Block]]:
        """The names of the columns, and each block of rows. Raises UserError for an empty part and for a bad header."""
        names: tuple[str, ...] = ()
        for opened in open_parts([part]):
            for block in map(self.cleaning, read_blocks(opened, quotes=self.multiline, encoding=self.encoding)):
                if not names:
                    names, block = self._names(block)
                if names:
                    yield names, block
        if not names:
            problem = f"the file is empty; a table with{'' if self.header else 'out'} a header was expected"
            raise UserError(problem, key="dataset.path", value=str(part))

    def start(self, part: Part) -> Block:
        """The first lines of a part, cleaned."""
        for opened in open_parts([part]):
            for block in map(self.cleaning, read_blocks(opened, quotes=self.multiline, encoding=self.encoding)):
                return replace(block, data=block.data[:_START])
        return Block(part, 1, b"")

    def names(self, part: Part) -> tuple[str, ...]:
        """The columns of a part."""
        return next(iter(self.blocks(part)))[0]

    def shapes(self, parts: Sequence[Part]) -> dict[str, ColumnShape]:
        """What each column can be read as, from all rows."""
        shapes: dict[str, ColumnShape] = {}
        for part in parts:
            for names, block in self.blocks(part):
                shapes = shapes or {name: ColumnShape() for name in names}
                self._add(block, names, shapes)
        return shapes

    def fits(self, parts: Sequence[Part], columns: Sequence[str], reading: Amount) -> list[str]:
        """Those of these columns whose values can all be read so."""
        left = list(columns)
        for part in parts if left else ():
            for names, block in self.blocks(part):
                table = self._table(block, names, left)
                for name in left if table is not None else ():
                    values = cast(pa.Table, table)[name].drop_null().unique()
                    if pc.any(pc.is_nan(pa.array(reading.numbers(values)[0]))).as_py():
                        left = [other for other in left if other != name]
        return left

    def _names(self, block: Block) -> tuple[tuple[str, ...], Block]:
        """The names of the columns, and the rows of a part's first block; no names if every line is empty."""
        if not self.header:
            if self.columns is not None:
                return self.columns, block
            _, line, _ = next(numbered_lines(block, self.delimiter, multiline=self.multiline), (0, b"", b""))
            fields = fields_of(line, self.delimiter, quotes=True) if line else []
            return tuple(f"c{number}" for number, _ in enumerate(fields or [], 1)), block
        names, rest = first_names(block, self.delimiter)
        problem = names_error(names)
        if problem:
            raise UserError(f"line {rest.first_line - 1}: {problem}", key="dataset.path", value=str(block.part))
        return names, rest

    def _add(self, block: Block, names: tuple[str, ...], shapes: dict[str, ColumnShape]) -> None:
        table = self._table(block, names)
        if table is None:
            return
        again = []
        for field in table.schema:
            shape = shapes.setdefault(field.name, ColumnShape())
            shape.rows += len(table)
            shape.missing += table[field.name].null_count
            if pa.types.is_null(field.type):
                continue
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
                shape.add_numbers(fraction=pa.types.is_floating(field.type))
                if not shape.beside and pa.types.is_floating(field.type) and _may_be_thousands(table[field.name]):
                    texts = self._table(block, names, [field.name])
                    shape.beside = _beside_whole(texts[field.name]) if texts is not None else ""
            elif pa.types.is_string(field.type):
                _add_texts(shape, table[field.name])
            else:  # dates, times and booleans, which are wanted as they are written
                again.append(field.name)
        texts = self._table(block, names, again) if again else None
        for name in again:
            if texts is None:  # they are not valid UTF-8, of which the second pass says where
                shapes[name].close()
            else:
                _add_texts(shapes[name], texts[name])

    def _table(self, block: Block, names: Sequence[str], texts: Sequence[str] | None = None) -> pa.Table | None:
        """A block with the types that pyarrow infers, or these columns alone, as texts. Lines with too few or too many
        fields are ignored. None if the block can't be parsed; the second pass then reports the error.
        """
        for complete_only in (False, True):
            data = b"\n".join(complete_records(block, self.delimiter, len(names))) if complete_only else block.data
            if not data.strip(b"\r\n"):
                return None
            with suppress(pa.ArrowException):
                return csv.read_csv(
                    pa.BufferReader(data),
                    read_options=csv.ReadOptions(column_names=list(names), block_size=len(data) + 1),
                    parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        null_values=list(self.missing),
                        strings_can_be_null=True,
                        column_types=dict.fromkeys(texts or (), pa.string()),
                        include_columns=None if texts is None else list(texts),
                    ),
                )
        return None


def _add_texts(shape: ColumnShape, column: pa.ChunkedArray) -> None:
    values = column.slice(0, _SAMPLE).drop_null().unique()
    shape.add_texts(values)
    if shape.is_open:
        values = column.drop_null().unique()
        shape.add_texts(values)
    shape.count(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
    shape.kind = "text" if column.null_count < len(column) else shape.kind


def _may_be_thousands(column: pa.ChunkedArray) -> bool:
    """Whether these may be whole numbers with a point before thousands: below 1,000, with at most three decimals."""
    values = np.abs(column.drop_null().to_numpy())
    if not len(values) or values.max() >= 1000 or not (values % 1 != 0).any():
        return False
    thousands = values * 1000
    return bool((np.abs(thousands - np.rint(thousands)) < 1e-6).all())


def _beside_whole(column: pa.ChunkedArray) -> str:
    """A number such as 1.234, where all with a point have three decimals and others have none; else empty."""
    values = column.drop_null().unique()
    pointed = values.filter(pc.match_substring(values, "."))
    is_grouped = pc.all(pc.match_substring_regex(pointed, r"^ *[-+]?[1-9]\d{0,2}\.\d{3} *$")).as_py()
    return str(pointed[0]) if is_grouped and 0 < len(pointed) < len(values) else ""
