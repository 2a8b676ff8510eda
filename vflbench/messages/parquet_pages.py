"""What the pages of a Parquet file claim to hold, checked before any of them is unpacked.

A page's header says how many bytes and values it unpacks to, up to 2^31 each, and a reader allocates these. A file of 10 KB
may thus ask for gigabytes. The headers are read here, and the pages themselves are skipped.

Source: "Apache Parquet Format", parquet.thrift, struct PageHeader, in Thrift's compact protocol.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

from vflbench.messages.plain_files import check_plain

MOST_PAGE = 2**28  # bytes that a page unpacks to
MOST_CHUNKS = 10**6
MOST_COLUMNS = 20_000
MOST_GROWTH = 1000
"""A file may unpack to this many times its size, and to what its reader allows any file."""

_STRUCT, _BINARY, _LISTS, _MAP = 12, 8, (9, 10), 11
_DATA, _DATA_2 = 5, 8  # fields of a page's header that describe values; in each, field 1 is their number
_LONGEST_HEADER = 2**20


def open_parquet(path: Path, free: int | None = 2**29, *, links: bool = False) -> pq.ParquetFile:
    """A plain file whose footer and pages may be hostile: nothing in them is allowed to claim much memory.

    free: bytes that it may unpack to, whatever its size; None for a file whose pages were checked before. Text reads as
    codes of a dictionary. Raises ValueError, or what pyarrow raises.
    """
    check_plain(path, links=links)
    options = {"memory_map": False, "pre_buffer": False, "buffer_size": 2**16, "arrow_extensions_enabled": False}
    limits = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**20, "schema_depth_limit": 16}
    with pq.ParquetFile(path, **options, **limits) as file:
        metadata = file.metadata
        if metadata.num_columns > MOST_COLUMNS:
            raise ValueError(f"it has {metadata.num_columns:,} columns, and {MOST_COLUMNS:,} are read at most")
        if free is not None:
            _check_pages(path, metadata, free)
        names = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        texts = [
            column.path for column in names if column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0
        ]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, **options, **limits)


def _check_pages(path: Path, metadata: pq.FileMetaData, free: int) -> None:
    size, claimed, rows = os.path.getsize(path), 0, 0
    if metadata.num_row_groups * metadata.num_columns > MOST_CHUNKS:
        raise ValueError(f"it has more than {MOST_CHUNKS:,} parts, a column of a row group each")
    with path.open("rb") as file:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows += group.num_rows
            for place in range(group.num_columns):
                chunk = group.column(place)
                if not group.num_rows and not chunk.num_values:
                    continue  # a reader doesn't look for its pages
                values = 0
                for page in _pages(file, chunk, size):
                    values += page.values
                    claimed += page.bytes
                if values != chunk.num_values or chunk.num_values < group.num_rows:
                    where = f"column {chunk.path_in_schema[:80]}, row group {number}"
                    raise ValueError(f"{where}: its pages hold {values:,} values, and it claims {chunk.num_values:,}")
                claimed += 8 * values
                if claimed > free + MOST_GROWTH * size:
                    raise ValueError(f"its {size:,} bytes claim to unpack to over {claimed:,}, more than real data does")
    if rows != metadata.num_rows:
        raise ValueError(f"its row groups have {rows:,} rows, and it claims {metadata.num_rows:,}")


@dataclass(frozen=True)
class _Page:
    """bytes: that it unpacks to. values: how many it holds, nulls among them."""

    bytes: int
    values: int


def _pages(file: BinaryIO, chunk: pq.ColumnChunkMetaData, size: int) -> Iterator[_Page]:
    first = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < first:
        first = chunk.dictionary_page_offset
    place, end = first, first + chunk.total_compressed_size
    if not 0 <= place <= end <= size:
        raise ValueError(f"column {chunk.path_in_schema[:80]} claims to lie outside of the file")
    while place < end:
        fields, place = _Compact(file, place, end).page_header()
        unpacked, packed = fields.get((2,), -1), fields.get((3,), -1)
        values = fields.get((_DATA, 1), fields.get((_DATA_2, 1), 0))
        if not 0 <= packed <= end - place or not 0 <= unpacked <= MOST_PAGE or not 0 <= values < 2**31:
            problem = f"a page claims {unpacked:,} bytes and {values:,} values, and {MOST_PAGE:,} bytes are read at most"
            raise ValueError(f"column {chunk.path_in_schema[:80]}: {problem}")
        place += packed
        yield _Page(unpacked, values)


class _Compact:
    """Reads a struct of Thrift's compact protocol."""

    def __init__(self, file: BinaryIO, place: int, end: int):
        file.seek(place)
        self._raw = file.read(min(256, end - place))
        self._file, self._from, self._end, self._at = file, place, end, 0

    def page_header(self) -> tuple[dict[tuple[int, ...], int], int]:
        """Path of field numbers -> whole number; and where the header ends in the file."""
        found: dict[tuple[int, ...], int] = {}
        self._struct((), found)
        return found, self._from + self._at

    def _struct(self, path: tuple[int, ...], found: dict[tuple[int, ...], int]) -> None:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            self._value(head & 15, (*path, number), found, in_list=False)

    def _value(self, kind: int, path: tuple[int, ...], found: dict[tuple[int, ...], int], *, in_list: bool) -> None:
        if len(path) > 8:
            raise ValueError("the header of a page is nested too deeply")
        if kind in (1, 2):
            self._skip(1 if in_list else 0)
        elif kind == 3:
            self._skip(1)
        elif kind in (4, 5, 6):
            found[path] = self._whole()
        elif kind == 7:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            self._struct(path, found)
        elif kind in _LISTS:
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._value(head & 15, (*path, 0), found, in_list=True)
        elif kind == _MAP and self._varint() == 0:
            """An empty map is its length alone."""
        else:
            raise ValueError("the header of a page is damaged, or encrypted")

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
                raise ValueError("the header of a page is damaged, or encrypted")

    def _byte(self) -> int:
        self._skip(1)
        return self._raw[self._at - 1]

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > min(_LONGEST_HEADER, self._end - self._from):
            raise ValueError("the header of a page is damaged, or encrypted")
        if self._at > len(self._raw):
            self._file.seek(self._from + len(self._raw))
            self._raw += self._file.read(max(self._at - len(self._raw), len(self._raw)))
            if self._at > len(self._raw):
                raise ValueError("the file ends too early")
