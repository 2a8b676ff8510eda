"""What the pages of a Parquet file claim to hold, checked before any of them is unpacked.

A page's header says how many bytes and values it unpacks to, up to 2^31 each, and a reader allocates these. A file of 10 KB
may thus ask for gigabytes. The headers are read here, and the pages themselves are skipped.

Source: "Apache Parquet Format", parquet.thrift, struct PageHeader, in Thrift's compact protocol.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

from vflbench.plain_files import check_plain

MOST_PAGE = 2**28  # bytes that a page unpacks to
MOST_CHUNKS = 10**5
MOST_COLUMNS = 20_000
MOST_FOOTER = 2**24  # bytes
MOST_GROWTH = 1000
"""A file may unpack to this many times its size, and to what its reader allows any file."""

_STRUCT, _BINARY, _LISTS, _MAP = 12, 8, (9, 10), 11
_UNPACKED, _PACKED, _VALUES, _VALUES_2 = (2,), (3,), (5, 1), (8, 1)  # fields of a page's header
_ROWS, _CHUNK = (4, 3), (4, 1, 3)  # of the footer: rows of a row group, and the description of one of its columns
_LENGTH, _SIZE, _FIRST, _DICTIONARY = (*_CHUNK, 5), (*_CHUNK, 7), (*_CHUNK, 9), (*_CHUNK, 11)
_GROUPED = ((4,), (4, 1))
_LONGEST_HEADER = 2**20

Field = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """A row group. rows: how many it has. values: of each column, how many numbers or texts, nulls among them."""

    rows: int
    values: list[int]


def open_parquet(path: Path, free: int | None = 2**29, *, links: bool = False) -> pq.ParquetFile:
    """A plain file whose footer and pages may be hostile: nothing in them is allowed to claim much memory.

    free: bytes that it may unpack to, whatever its size; None for a file whose pages were checked before. Text reads as
    codes of a dictionary. Raises ValueError, or what pyarrow raises.
    """
    check_plain(path, links=links)
    if free is not None:
        row_groups(path, free)
    options = {"memory_map": False, "pre_buffer": False, "buffer_size": 2**16, "arrow_extensions_enabled": False}
    limits = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**20, "schema_depth_limit": 16}
    with pq.ParquetFile(path, **options, **limits) as file:
        metadata = file.metadata
        if metadata.num_columns > MOST_COLUMNS:
            raise ValueError(f"it has {metadata.num_columns:,} columns, and {MOST_COLUMNS:,} are read at most")
        names = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        texts = [
            column.path for column in names if column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0
        ]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, **options, **limits)


def row_groups(path: Path, free: int) -> list[Group]:
    """The row groups of a file, all of whose pages are checked. Raises ValueError.

    pyarrow's own descriptions of row groups end the process for some damaged footers, so they are not asked.
    """
    made = []
    with path.open("rb") as file:
        size, claimed = os.fstat(file.fileno()).st_size, 0
        found, counts = _footer(file, size)
        for number in range(len(counts)):
            values = []
            for place in range(counts[number]):
                of_chunk: dict[Field, int] = {
                    field: found.get((field, (number, place)), 0) for field in (_LENGTH, _SIZE, _FIRST, _DICTIONARY)
                }
                rows, length = found.get((_ROWS, (number,)), -1), of_chunk[_LENGTH]
                where = f"column {place}, row group {number}"
                unpacked, there = _pages(file, of_chunk, size, where) if rows or length else (0, 0)
                if there != length or not 0 <= rows <= length:
                    raise ValueError(f"{where}: its pages hold {there:,} values, and it claims {length:,} for {rows:,} rows")
                claimed += unpacked + 8 * there
                if claimed > free + MOST_GROWTH * size:
                    raise ValueError(f"its {size:,} bytes claim to unpack to over {claimed:,}, more than real data does")
                values.append(length)
            made.append(Group(found.get((_ROWS, (number,)), 0), values))
    return made


def _footer(file: BinaryIO, size: int) -> tuple[dict[tuple[Field, Field], int], list[int]]:
    """(field, places in lists) -> whole number; and how many columns each row group has."""
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or end[4:] != b"PAR1" or length + 12 > size:
        raise ValueError("it is no Parquet file, or it is cut off, damaged or encrypted")
    if length > MOST_FOOTER:
        raise ValueError(f"its footer claims to have {length:,} bytes, and {MOST_FOOTER:,} are read at most")
    wanted = {_ROWS, _LENGTH, _SIZE, _FIRST, _DICTIONARY}
    reader = _Compact(file, size - 8 - length, size - 8, most=length, wanted=wanted)
    reader.read()
    described = [places for field, places in reader.found if field == _LENGTH]
    if len(described) > MOST_CHUNKS:
        raise ValueError(f"it has more than {MOST_CHUNKS:,} parts, a column of a row group each")
    groups = reader.lengths.get((4,), [0])[-1]
    counts = reader.lengths.get((4, 1), [])
    if len(counts) != groups or sum(counts) != len(described) or len(set(counts)) > 1:
        raise ValueError("its footer is damaged, or encrypted: columns of its row groups are not described")
    return reader.found, counts


def _pages(file: BinaryIO, chunk: dict[Field, int], size: int, where: str) -> tuple[int, int]:
    """The bytes that the pages of a column unpack to, and the values that they hold."""
    place = chunk[_FIRST]
    if 0 < chunk[_DICTIONARY] < place:
        place = chunk[_DICTIONARY]
    end = place + chunk[_SIZE]
    if not 0 <= place <= end <= size:
        raise ValueError(f"{where}: it claims to lie outside of the file")
    total = count = 0
    while place < end:
        reader = _Compact(file, place, end, wanted={_UNPACKED, _PACKED, _VALUES, _VALUES_2})
        place = reader.read()
        fields = {field: number for (field, _), number in reader.found.items()}
        unpacked, packed = fields.get(_UNPACKED, -1), fields.get(_PACKED, -1)
        values = fields.get(_VALUES, fields.get(_VALUES_2, 0))
        if not 0 <= packed <= end - place or not 0 <= unpacked <= MOST_PAGE or not 0 <= values < 2**31:
            problem = f"a page claims {unpacked:,} bytes and {values:,} values, and {MOST_PAGE:,} bytes are read at most"
            raise ValueError(f"{where}: {problem}")
        place, total, count = place + packed, total + unpacked, count + values
    return total, count


class _Compact:
    """Reads a struct of Thrift's compact protocol.

    found: (field numbers, places in lists) -> whole number, of the wanted fields. lengths: field numbers -> of each list
    there, in turn, how many structs.
    """

    def __init__(self, file: BinaryIO, place: int, end: int, *, wanted: Collection[Field], most: int = _LONGEST_HEADER):
        file.seek(place)
        self._raw = file.read(min(256, end - place))
        self._file, self._from, self._at, self._most = file, place, 0, min(most, end - place)
        self._wanted = wanted
        self.found: dict[tuple[Field, Field], int] = {}
        self.lengths: dict[Field, list[int]] = {}

    def read(self) -> int:
        """Where the struct ends in the file."""
        self._struct((), ())
        return self._from + self._at

    def _struct(self, path: Field, places: Field) -> None:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            self._value(head & 15, (*path, number), places, in_list=False)

    def _value(self, kind: int, path: Field, places: Field, *, in_list: bool) -> None:
        if len(path) + len(places) > 16:
            raise ValueError("its description of itself is nested too deeply")
        if kind in (1, 2):
            self._skip(1 if in_list else 0)
        elif kind == 3:
            self._skip(1)
        elif kind in (4, 5, 6):
            number = self._whole()
            if path in self._wanted:
                self.found[path, places] = number
        elif kind == 7:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            self._struct(path, places)
        elif kind in _LISTS:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            if head & 15 == _STRUCT and path in _GROUPED:
                self.lengths.setdefault(path, []).append(count)
            for place in range(count):
                self._value(head & 15, path, (*places, place), in_list=True)
        elif kind == _MAP and self._varint() == 0:
            """An empty map is its length alone."""
        else:
            raise ValueError("its footer or the header of a page is damaged, or encrypted")

    def _whole(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise ValueError("its footer or the header of a page is damaged, or encrypted")

    def _byte(self) -> int:
        self._skip(1)
        return self._raw[self._at - 1]

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > self._most:
            raise ValueError("its footer or the header of a page is damaged, or encrypted")
        if self._at > len(self._raw):
            self._file.seek(self._from + len(self._raw))
            self._raw += self._file.read(max(self._at - len(self._raw), len(self._raw)))
            if self._at > len(self._raw):
                raise ValueError("the file ends too early")
