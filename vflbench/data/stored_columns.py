"""Columns of a prepared table on disk, each mapped for as long as a read takes."""

import math
import mmap
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflbench.data.private_folders import open_own, remove
from vflbench.data.table import CHUNK_ROWS
from vflbench.errors import UserError
from vflbench.plain_files import in_a_line


class DamagedStoreError(Exception):
    """The content of a store differs from its schema or its checksums."""


@dataclass
class Mapped:
    """Rows of a file, and the map that they are seen through; None where there are none."""

    array: np.ndarray
    map: mmap.mmap | None


def mapped(file: Path, rows: int, dtype: str, width: int | None) -> Mapped:
    """The rows of a file. Raises DamagedStoreError if it is no file of this user's, or has another size."""
    shape = (rows,) if width is None else (rows, width)
    try:
        with open_own(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != np.dtype(dtype).itemsize * math.prod(shape):
                raise ValueError(f"it has a size of {size} bytes")
            if not size:
                return Mapped(np.empty(shape, dtype), None)
            view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise DamagedStoreError(f"{file.name} can't be read: {in_a_line(error, 200)}") from error
    return Mapped(np.frombuffer(view, dtype).reshape(shape), view)


class StoredColumns:
    """Some columns of a file of rows, as an array that is indexed by rising positions alone.

    It keeps no map of the file, in which all columns stand side by side: a read maps it, takes these columns, and lets go of
    it. Chunks of rows are checked when they are first read.

    columns: positions in the file's rows; None: all, as of a file of labels. sums: (chunks,) CRC-32 of each chunk of whole
    rows. below: (columns,) what categories or classes are smaller than; None for numbers.
    """

    def __init__(
        self,
        file: Path,
        rows: int,
        dtype: str,
        width: int | None,
        *,
        columns: np.ndarray | None,
        sums: np.ndarray,
        below: np.ndarray | None,
    ):
        self._file, self._rows, self._dtype, self._width = file, rows, dtype, width
        self._columns, self._sums, self._below = columns, sums, below
        self._checked = np.zeros(len(sums), dtype=bool)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        try:
            rows = mapped(self._file, self._rows, self._dtype, self._width).array
            chunks = np.unique(positions // CHUNK_ROWS)
            for chunk in chunks[~self._checked[chunks]]:
                self._check(rows[chunk * CHUNK_ROWS : (chunk + 1) * CHUNK_ROWS], chunk)
            values: np.ndarray = rows[positions] if self._columns is None else rows[positions[:, None], self._columns]
            if self._below is not None and len(values) and ((values < 0) | (values >= self._below)).any():
                raise DamagedStoreError(f"there is no such category or class near row {positions[0]}")
        except DamagedStoreError as error:
            raise damaged(self._file.parent, error) from error
        return values

    def _check(self, chunk: np.ndarray, number: int) -> None:
        if zlib.crc32(chunk) != self._sums[number]:
            raise DamagedStoreError(f"{self._file.name} differs from its checksum near row {number * CHUNK_ROWS}")
        self._checked[number] = True


def damaged(folder: Path, error: DamagedStoreError) -> UserError:
    """What to raise for a table that turns out to be damaged; its folder is removed."""
    left = "was removed" if remove(folder) else "can't be removed"
    return UserError(
        f"the prepared data is damaged ({error}) and {left}; run the command again to prepare it anew",
        key="VFLBENCH_CACHE",
        value=folder,
    )
