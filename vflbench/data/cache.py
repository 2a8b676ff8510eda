"""The cache of prepared tables: each is made once from its text files, and found again by their paths, sizes and times."""

import errno
import hashlib
import json
import math
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from vflbench.data.files import Part
from vflbench.data.labels import listed_rows
from vflbench.data.table import RawTable, Statistics
from vflbench.data.text import TextFormat
from vflbench.errors import UserError
from vflbench.plain_files import in_a_line, open_plain, open_to_write, sync_folder, written_whole

_VERSION = 4
"""Of what is accepted as a row, and of the files of a table. Tables of another version are prepared again."""
_PIECE_BYTES = 64 << 20  # checked at a time
_TABLE = re.compile(r"[0-9a-f]{32}(\.part)?")


class DamagedStoreError(Exception):
    """The content of a file differs from what was written."""


_DAMAGED = (OSError, ValueError, KeyError, TypeError, DamagedStoreError)


@dataclass(frozen=True)
class Request:
    """What to prepare.

    parts: the texts, in the order of their rows. form: returns the layout; it may read the texts for that.
    classes: all labels, each with its rows, and the number of rows -> names of the classes, and the class of each label.
    options: everything a prepared table depends on besides the content of the texts. rows: limit on the number of good rows.
    skip: leave bad rows out; the preparation fails if their share exceeds `max_bad_fraction`.
    """

    parts: Sequence[Part]
    form: Callable[[], TextFormat]
    classes: Callable[[Mapping[str, int], int], tuple[list[str], np.ndarray]]
    options: Mapping[str, Any]
    rows: int | None = None
    skip: bool = False
    max_bad_fraction: float = 0.01

    def key(self) -> str:
        """A digest of the options and of the state of the files, which are not read."""
        states = [(str(part), str(part.file.resolve()), *_state(part.file)) for part in self.parts]
        limits = [self.rows, self.skip, self.max_bad_fraction if self.skip else None]
        content = json.dumps([_VERSION, states, dict(self.options), limits], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:32]


def _state(file: Path) -> tuple[int, ...]:
    """Its time of change can't be set back, as `cp -p` and `tar` do with that of modification."""
    state = file.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


@dataclass(frozen=True)
class Prepared:
    """table: the rows, memory-mapped from `folder`. facts: for the manifest. made: whether this call made the table."""

    table: RawTable
    folder: Path
    facts: dict[str, Any]
    made: bool

    def line(self, left_out: Collection[str] = ()) -> str:
        """A summary to print. left_out: columns that are no features."""
        size = sum(file.stat().st_size for file in self.folder.iterdir())
        bad, classes = self.facts.get("bad_rows", {"count": 0})["count"], listed_rows(self.facts["class_rows"])
        sizes = dict(zip(self.table.categorical_names, self.table.sizes, strict=True))
        names, ids = [name for name in self.table.names if name not in left_out], sum(sizes.values())
        ids -= sum(size for name, size in sizes.items() if name in left_out)
        more = f" ({len(self.table.names) - len(names)} left out)" if len(names) < len(self.table.names) else ""
        return (
            f"{'prepared' if self.made else 'already prepared'}: {len(self.table):,} rows, "
            f"{len(names)} column{'' if len(names) == 1 else 's'}{more}, {ids:,} ids"
            f"{f', bad rows left out: {bad:,}' if bad else ''}; classes {classes}; {size / 1e6:,.1f} MB in {self.folder}"
        )


def cache_folder() -> Path:
    """The folder in VFLBENCH_CACHE, by default the platform's folder for caches."""
    import platformdirs

    named = os.environ.get("VFLBENCH_CACHE") or platformdirs.user_cache_dir("vflbench", appauthor=False)
    return Path(os.path.expanduser(named))


def clear() -> int:
    """Delete all prepared tables, and nothing else. Returns how many bytes they took."""
    tables = [one for one in (cache_folder() / "prepared").glob("*") if _TABLE.fullmatch(one.name) and one.is_dir()]
    try:
        size = sum(file.lstat().st_size for table in tables for file in table.iterdir())
        for table in tables:
            shutil.rmtree(table)
    except OSError as error:
        raise _unwritable(error) from error
    return size


def prepare(request: Request) -> Prepared:
    """Return the prepared table of these texts, from the cache or made now.

    A damaged table is made again. If another process is making the table, wait for it. Folders are for their owner alone.
    A table that is there whole needs no lock, and no right to write: it was brought to its place in one step.
    """
    folder = cache_folder() / "prepared" / request.key()
    with suppress(*_DAMAGED):
        return _prepared(request, folder, *_read(folder), made=False)
    try:
        for parent in (cache_folder(), folder.parent, cache_folder() / "locks"):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(cache_folder() / "locks" / folder.name, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tqdm.write("another process is preparing this data; waiting for it")
            lock.acquire()
        try:
            found = _open(folder)
            if found is None:
                _make(folder, request)
            table, facts = found or _read(folder)
        finally:
            lock.release()
    except OSError as error:
        raise _unwritable(error) from error
    return _prepared(request, folder, table, facts, made=found is None)


def _prepared(request: Request, folder: Path, table: RawTable, facts: dict[str, Any], *, made: bool) -> Prepared:
    paths = [str(part.file.resolve()) + (f"::{part.member}" if part.member else "") for part in request.parts]
    hashes = facts.pop("file_sha256")
    files = {
        "path": paths[0] if len(paths) == 1 else paths,
        "file_sha256": hashes[0] if len(hashes) == 1 else hashes,
    }
    return Prepared(table, folder, {**files, **facts}, made)


def _make(folder: Path, request: Request) -> None:
    from vflbench.data.streaming import Preparation  # with what parses

    building = folder.with_suffix(".part")
    shutil.rmtree(building, ignore_errors=True)  # of a process that was killed
    building.mkdir(mode=0o700)
    before = [_state(part.file) for part in request.parts]
    try:
        Preparation(request, building).run()
        if before != [_state(part.file) for part in request.parts]:
            raise UserError("a file changed while it was read", key="dataset.path", value=str(request.parts[0].file))
        building.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _open(folder: Path) -> tuple[RawTable, dict[str, Any]] | None:
    """The table in that folder, if it is there and whole."""
    if not os.path.lexists(folder):
        return None
    try:
        return _read(folder)
    except _DAMAGED as error:
        tqdm.write(f"the prepared data in {folder} is damaged ({in_a_line(error, 200)}) and will be prepared again")
        shutil.rmtree(folder)
        return None


def _read(folder: Path) -> tuple[RawTable, dict[str, Any]]:
    """The rows, memory-mapped, so that only rows that are read take memory; and facts. Every byte is checked."""
    text, checksum = (folder / "schema.json").read_bytes().rsplit(b"\n", 1)
    if checksum.decode() != f"{zlib.crc32(text):08x}":
        raise DamagedStoreError("schema.json differs from its checksum")
    schema = json.loads(text)
    arrays = {name: Mapped(folder / name, *layout) for name, (*layout, _) in schema["arrays"].items()}
    for name, (*_, checksum) in schema["arrays"].items():
        if arrays[name].checksum() != checksum:
            raise DamagedStoreError(f"{name} differs from its checksum")

    def forget() -> None:
        for array in arrays.values():
            array.forget()

    counts = np.split(arrays["counts"].array, np.cumsum(schema["sizes"], dtype=np.int64))[:-1]
    table = RawTable(
        names=tuple(schema["names"]),
        numeric_names=tuple(schema["numeric_names"]),
        categorical_names=tuple(schema["categorical_names"]),
        sizes=tuple(schema["sizes"]),
        numeric=arrays["numeric"].array,
        categorical=arrays["categorical"].array,
        labels=arrays["labels"].array,
        classes=schema["classes"],
        fingerprint=schema["fingerprint"],
        forget=forget,
        statistics=Statistics(np.array(schema["low"], float), np.array(schema["high"], float), tuple(counts)),
        stored=lambda name, columns: StoredColumns(folder / name, schema["arrays"][name][:3], columns),
    )
    return table, schema["facts"]


class Mapped:
    """Rows of a file. width: None for one dimension. Raises DamagedStoreError if it is no plain file or of another size."""

    def __init__(self, file: Path, rows: int, dtype: str, width: int | None):
        shape = (rows,) if width is None else (rows, width)
        self._map: mmap.mmap | None = None
        try:
            with open_plain(file) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size != np.dtype(dtype).itemsize * math.prod(shape):
                    raise ValueError(f"it has a size of {size} bytes")
                if size:
                    self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DamagedStoreError(f"{file.name} can't be read: {in_a_line(error, 200)}") from error
        self.array = np.empty(shape, dtype) if self._map is None else np.frombuffer(self._map, dtype).reshape(shape)

    def forget(self) -> None:
        """Release the memory pages that reading has mapped."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)  # read-only, so it can be read again

    def checksum(self) -> int:
        checksum = 0
        data = memoryview(b"" if self._map is None else self._map)
        for start in range(0, len(data), _PIECE_BYTES):
            checksum = zlib.crc32(data[start : start + _PIECE_BYTES], checksum)
            self.forget()
        return checksum


class StoredColumns:
    """Some columns of a file of rows, as an array that is indexed by positions alone.

    It keeps no map of the file, in which all columns stand side by side: a read maps it, takes these columns, and lets go of
    it. layout: rows, type and width of the file. columns: positions in the file's rows; None: all, as of labels.
    """

    def __init__(self, file: Path, layout: Sequence[Any], columns: np.ndarray | None):
        self._file, self._layout, self._columns = file, layout, columns

    def __len__(self) -> int:
        return int(self._layout[0])

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        try:
            rows = Mapped(self._file, *self._layout).array
        except DamagedStoreError as error:
            problem = f"the prepared data is damaged ({error}); run the command again to prepare it anew"
            raise UserError(problem, key="VFLBENCH_CACHE", value=self._file.parent) from error
        values: np.ndarray = rows[positions] if self._columns is None else rows[positions[:, None], self._columns]
        return values


class ArrayWriter:
    """Appends rows to a file. width: numbers in a row; None for a one-dimensional array. digest, checksum: of all bytes."""

    def __init__(self, file: Path, dtype: np.dtype, width: int | None):
        self.dtype, self.width, self.rows = np.dtype(dtype), width, 0
        self.digest, self.checksum = hashlib.sha256(), 0
        self._file = open_to_write(file, "wb", private=True)

    def write(self, rows: np.ndarray) -> None:
        data = memoryview(np.ascontiguousarray(rows, dtype=self.dtype)).cast("B") if rows.size else memoryview(b"")
        self._file.write(data)
        self.digest.update(data)
        self.checksum = zlib.crc32(data, self.checksum)
        self.rows += len(rows)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close the file and ignore errors."""
        with suppress(OSError):
            self._file.close()


def write_schema(folder: Path, writers: Mapping[str, ArrayWriter], schema: Mapping[str, Any]) -> None:
    """Close the arrays and describe them. The folder is a complete table afterwards, and on disk."""
    for writer in writers.values():
        writer.close()
    arrays = {name: (w.rows, w.dtype.name, w.width, w.checksum) for name, w in writers.items()}
    text = json.dumps({**schema, "arrays": arrays}, indent=1)
    with written_whole(folder / "schema.json", "w", private=True) as file:
        file.write(f"{text}\n{zlib.crc32(text.encode()):08x}")


def _unwritable(error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        problem = (
            "the disk is full; prepared data takes about as much space as the text, and twice as much while it is made. "
            "Incomplete files were removed. Free space, or set VFLBENCH_CACHE to a folder on another disk"
        )
    else:
        problem = f"prepared data can't be stored there: {error.strerror or error}; set VFLBENCH_CACHE to another folder"
    return UserError(problem, key="VFLBENCH_CACHE", value=cache_folder())
