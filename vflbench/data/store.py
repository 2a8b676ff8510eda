"""A prepared table on disk: memory-mapped arrays, a JSON schema, and a checksum of each chunk of rows."""

import hashlib
import json
import math
import mmap
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data.private_folders import read_own
from vflbench.data.store_schema import check_schema
from vflbench.data.stored_columns import DamagedStoreError, StoredColumns, damaged, mapped
from vflbench.data.table import CHUNK_ROWS, RawTable, Statistics
from vflbench.plain_files import in_a_line, open_to_write, written_whole

VERSION = 1
"""Version of this layout. Stores of another version are prepared again."""

_MOST_SCHEMA = 1 << 30  # bytes
CHECKED_AT_ONCE = 512 << 20
"""Bytes of a store that are checked when it is opened to be read; the rest is checked when first read."""
_CHUNKS_MAPPED = 256  # chunks checked before their memory is released
_TABLES = ("numeric", "categorical", "labels")


class ArrayWriter:
    """Appends rows to a file and computes a checksum of each chunk and the SHA-256 of all.

    width: numbers in a row; None for a one-dimensional array.
    """

    def __init__(self, file: Path, dtype: np.dtype, width: int | None):
        self.dtype, self.width = np.dtype(dtype), width
        self._file = open_to_write(file, "wb", private=True)
        self._row_bytes = self.dtype.itemsize * (1 if width is None else width)
        self._checksum, self._filled = 0, 0
        self.checksums: list[int] = []
        self.digest = hashlib.sha256()

    def write(self, rows: np.ndarray) -> None:
        data = memoryview(np.ascontiguousarray(rows, dtype=self.dtype)).cast("B") if rows.size else memoryview(b"")
        self._file.write(data)
        self.digest.update(data)
        start = 0
        for _ in range(0, self._filled + len(rows), CHUNK_ROWS):
            stop = min(len(rows), start + CHUNK_ROWS - self._filled)
            self._checksum = zlib.crc32(data[start * self._row_bytes : stop * self._row_bytes], self._checksum)
            self._filled += stop - start
            start = stop
            if self._filled == CHUNK_ROWS:
                self._end_chunk()

    def close(self) -> None:
        if self._filled:
            self._end_chunk()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close the file and ignore errors."""
        with suppress(OSError):
            self._file.close()

    def _end_chunk(self) -> None:
        self.checksums.append(self._checksum)
        self._checksum, self._filled = 0, 0


def write_schema(folder: Path, writers: Mapping[str, ArrayWriter], counts: np.ndarray, facts: Mapping[str, Any]) -> None:
    """Close the arrays and write counts, checksums and schema. The folder is a complete store afterwards, and on disk."""
    for writer in writers.values():
        writer.close()
    _write_array(folder / "counts", counts)
    checksums = np.array([writers[name].checksums for name in _TABLES], dtype=np.uint32).reshape(len(_TABLES), -1)
    _write_array(folder / "checksums", checksums)
    arrays = {name: {"dtype": w.dtype.name, "width": w.width} for name, w in writers.items()}
    sums = {name: zlib.crc32((folder / name).read_bytes()) for name in ("counts", "checksums")}
    schema = json.dumps({**facts, "version": VERSION, "arrays": arrays, "checksums": sums}, indent=1)
    with written_whole(folder / "schema.json", "w", private=True) as file:
        file.write(f"{schema}\n{zlib.crc32(schema.encode()):08x}\n")


def read_schema(folder: Path) -> dict[str, Any]:
    """The schema of a store. Raises DamagedStoreError if it is missing or damaged."""
    try:
        content = read_own(folder / "schema.json", _MOST_SCHEMA).decode()
        text, checksum = content.rstrip("\n").rsplit("\n", 1)
        if int(checksum, 16) != zlib.crc32(text.encode()):
            raise ValueError("it differs from its checksum")
        schema = json.loads(text)
        version = schema.get("version") if isinstance(schema, dict) else None
        if version != VERSION:
            raise ValueError(f"its layout is version {str(version)[:20]}, and this program writes version {VERSION}")
        return check_schema(schema)
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedStoreError(f"schema.json can't be read: {in_a_line(error, 200)}") from error


class Store:
    """An open prepared table. Raises DamagedStoreError if sizes or checksums differ.

    most: bytes to check now, evenly spaced; None: CHECKED_AT_ONCE. Every chunk of rows is checked when it is first read.
    """

    def __init__(self, folder: Path, most: int | None = None):
        self.folder, self.schema = folder, read_schema(folder)
        rows, arrays = self.schema["rows"], self.schema["arrays"]
        chunks = -(-rows // CHUNK_ROWS)
        self._tables = {name: mapped(folder / name, rows, **arrays[name]) for name in _TABLES}
        self._checksums = self._small("checksums", np.uint32, (len(_TABLES), chunks))
        self._counts = self._small("counts", np.int64, (sum(self.schema["sizes"]),))
        ends = np.cumsum([0, *self.schema["sizes"]])
        if (self._counts < 0).any() or any(self._counts[a:b].sum() != rows for a, b in pairwise(ends)):
            raise DamagedStoreError("counts are not those of its rows")
        self._checked = np.zeros(chunks, dtype=bool)
        self._check_some(CHECKED_AT_ONCE if most is None else most)

    def table(self) -> RawTable:
        """The rows, memory-mapped, so that only rows that are read take memory."""
        schema = self.schema
        ends = np.cumsum(schema["sizes"], dtype=np.int64)
        counts = tuple(np.split(self._counts, ends[:-1])) if len(ends) else ()
        statistics = Statistics(np.array(schema["low"], float), np.array(schema["high"], float), counts)
        return RawTable(
            names=tuple(schema["names"]),
            numeric_names=tuple(schema["numeric_names"]),
            categorical_names=tuple(schema["categorical_names"]),
            sizes=tuple(schema["sizes"]),
            numeric=self._tables["numeric"].array,
            categorical=self._tables["categorical"].array,
            labels=self._tables["labels"].array,
            classes=schema["classes"],
            fingerprint=schema["fingerprint"],
            check=self._check_or_remove,
            forget=self._forget,
            statistics=statistics,
            stored=self._stored,
        )

    def _stored(self, name: str, columns: np.ndarray | None) -> StoredColumns:
        most = {"categorical": self.schema["sizes"], "labels": [self.schema["classes"]]}.get(name)
        limits = None if most is None else np.array(most if columns is None else [most[j] for j in columns], np.int64)
        array, checksums = self.schema["arrays"][name], self._checksums[_TABLES.index(name)].copy()
        return StoredColumns(self.folder / name, self.schema["rows"], **array, columns=columns, sums=checksums, below=limits)

    def _small(self, name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        try:
            data = read_own(self.folder / name, np.dtype(dtype).itemsize * math.prod(shape))
        except (OSError, ValueError) as error:
            raise DamagedStoreError(f"{name} can't be read: {in_a_line(error, 200)}") from error
        if zlib.crc32(data) != self.schema["checksums"][name] or len(data) != np.dtype(dtype).itemsize * np.prod(shape):
            raise DamagedStoreError(f"{name} differs from its checksum")
        return np.frombuffer(data, dtype).reshape(shape)

    def _check_some(self, most: int) -> None:
        """Check chunks, evenly spaced, up to a limit of bytes; in most stores these are all chunks."""
        size = sum(table.array.nbytes for table in self._tables.values())
        chunks = np.arange(0, len(self._checked), max(1, -(-size // most))) if most else np.arange(0)
        for start in range(0, len(chunks), _CHUNKS_MAPPED):
            self._check(chunks[start : start + _CHUNKS_MAPPED])
            self._forget()

    def _check(self, chunks: np.ndarray) -> None:
        """Raise DamagedStoreError if a chunk of rows differs from its checksum."""
        for chunk in chunks[~self._checked[chunks]]:
            for name, table, checksums in zip(_TABLES, self._tables.values(), self._checksums, strict=True):
                if zlib.crc32(table.array[chunk * CHUNK_ROWS : (chunk + 1) * CHUNK_ROWS]) != checksums[chunk]:
                    raise DamagedStoreError(f"{name} differs from its checksum near row {chunk * CHUNK_ROWS}")
            self._check_codes(slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS))
            self._checked[chunk] = True

    def _check_codes(self, rows: slice) -> None:
        """Compiled steps take them as positions in tables."""
        codes, labels = self._tables["categorical"].array[rows], self._tables["labels"].array[rows]
        beyond = codes.size and (codes.min() < 0 or (codes.max(0) >= self.schema["sizes"]).any())
        if beyond or labels.min() < 0 or labels.max() >= self.schema["classes"]:
            raise DamagedStoreError(f"there is no such category or class near row {rows.start}")

    def _check_or_remove(self, chunks: np.ndarray) -> None:
        try:
            self._check(chunks)
        except DamagedStoreError as error:
            raise damaged(self.folder, error) from error

    def _forget(self) -> None:
        for table in self._tables.values():
            if table.map is not None and hasattr(mmap, "MADV_DONTNEED"):
                table.map.madvise(mmap.MADV_DONTNEED)  # read-only, so it can be read again


def _write_array(file: Path, values: np.ndarray) -> None:
    with open_to_write(file, "wb", private=True) as stream:
        stream.write(np.ascontiguousarray(values))
        stream.flush()
        os.fsync(stream.fileno())
