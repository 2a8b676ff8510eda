"""The cache of prepared tables: each is made once from its files, and found again by their paths, sizes and times."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from vflbench.data.text import Rows, TextFormat, texts
from vflbench.errors import UserError
from vflbench.plain_files import in_a_line, open_plain, sync_folder, written_whole

_VERSION = 5
"""Of what is accepted as a row, and of the files of a table. Tables of another version are prepared again."""
_TABLE = re.compile(r"[0-9a-f]{32}(\.part)?")
_DAMAGED = (OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Request:
    """What to prepare.

    parts: the files, in the order of their rows. form: returns the layout; it may read the files for that.
    classes: all labels, each with its rows, and the number of rows -> names of the classes, and the class of each label.
    options: everything a prepared table depends on besides the content of the files. rows: limit on the number of good rows.
    skip: leave bad rows out; the preparation fails if their share exceeds `max_bad_fraction`. blocks: reads a part.
    """

    parts: Sequence[Part]
    form: Callable[[], TextFormat]
    classes: Callable[[Mapping[str, int], int], tuple[list[str], np.ndarray]]
    options: Mapping[str, Any]
    rows: int | None = None
    skip: bool = False
    max_bad_fraction: float = 0.01
    blocks: Callable[[Part, Any, TextFormat], Iterator[Rows]] = texts

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
    """table: the rows, memory-mapped from `folder`. facts: for the manifest. made: whether this call made the table.
    ids: the identifiers of the rows, where they were asked for.
    """

    table: RawTable
    folder: Path
    facts: dict[str, Any]
    ids: list[str]
    made: bool

    def notes(self, owner: str = "") -> list[str]:
        """Lines to print: where a copy is kept, once, on the terminal; and rows that were left out. owner: of the file."""
        if self.made:
            note = f"an encoded copy of the table is kept in {self.folder}; vflbench prepare --clear deletes all copies"
            tqdm.write(note, file=sys.stderr)
        bad = self.facts.get("bad_rows", {"count": 0, "first": []})
        more = "; ..." if bad["count"] > len(bad["first"]) else ""
        return [f"bad rows{owner} left out: {bad['count']:,} ({'; '.join(bad['first'])}{more})"] if bad["count"] else []

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
            f"{f', bad rows left out: {bad:,}' if bad else ''}; "
            f"{f'classes {classes}; ' if classes else ''}{size / 1e6:,.1f} MB in {self.folder}"
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
    """Return the prepared table of these files, from the cache or made now.

    A damaged table is made again. If another process is making the table, wait for it. Folders are for their owner alone.
    A table that is there whole needs no lock, and no right to write: it was brought to its place in one step.
    """
    folder = cache_folder() / "prepared" / request.key()
    with suppress(*_DAMAGED):
        return _prepared(request, folder, made=False)
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
            if os.path.lexists(folder):
                try:
                    return _prepared(request, folder, made=False)
                except _DAMAGED as error:
                    reason = in_a_line(error, 200)
                    tqdm.write(f"the prepared data in {folder} is damaged ({reason}) and will be prepared again")
                    shutil.rmtree(folder)
            _make(folder, request)
            return _prepared(request, folder, made=True)
        finally:
            lock.release()
    except OSError as error:
        raise _unwritable(error) from error


def _make(folder: Path, request: Request) -> None:
    from vflbench.data.streaming import Preparation

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


def _prepared(request: Request, folder: Path, *, made: bool) -> Prepared:
    """The rows, memory-mapped, so that only rows that are read take memory; and facts."""
    schema, arrays = read_arrays(folder)
    counts = np.split(arrays.pop("counts"), np.cumsum(schema["sizes"], dtype=np.int64))[:-1]
    columns: dict[str, Any] = {key: tuple(schema[key]) for key in ("names", "numeric_names", "categorical_names", "sizes")}
    content = json.dumps([columns, schema["classes"], schema["arrays"]])
    table = RawTable(
        **columns,
        **arrays,
        classes=schema["classes"],
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        statistics=Statistics(np.array(schema["low"], float), np.array(schema["high"], float), tuple(counts)),
        folder=folder,
    )
    paths = [str(part.file.resolve()) + (f"::{part.member}" if part.member else "") for part in request.parts]
    files = {"path": paths, "file_sha256": schema["facts"].pop("file_sha256")}
    facts = {key: several[0] if len(several) == 1 else several for key, several in files.items()}
    return Prepared(table, folder, {**facts, **schema["facts"]}, schema["ids"], made)


def write_arrays(folder: Path, arrays: Mapping[str, tuple[str, tuple[int, ...]]], schema: Mapping[str, Any]) -> None:
    """Describe files of numbers in a folder: name -> type and shape. The folder is whole afterwards, and on disk."""
    described = {}
    for name, (dtype, shape) in arrays.items():
        described[name] = (dtype, shape, _digest(folder / name))
    text = json.dumps({**schema, "arrays": described}, indent=1)
    with written_whole(folder / "schema.json", "w", private=True) as file:
        file.write(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}")


def _digest(file: Path) -> str:
    """Of a file that is on disk afterwards."""
    with open_plain(file) as stream:
        os.fsync(stream.fileno())
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def read_arrays(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description, and the arrays, mapped from their files. Every byte is checked: damage is an OSError or a ValueError
    that names the file.
    """
    text, _, digest = (folder / "schema.json").read_bytes().rpartition(b"\n")
    if hashlib.sha256(text).hexdigest() != digest.decode("ascii", "replace"):
        raise ValueError("schema.json differs from its digest")
    schema, arrays = json.loads(text), {}
    for name, (dtype, shape, digest) in schema["arrays"].items():
        try:
            if _digest(folder / name) != digest:
                raise ValueError("its content differs from its digest")
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}: {in_a_line(error, 200)}") from error
        arrays[name] = (
            np.asarray(np.memmap(folder / name, dtype, "r", shape=tuple(shape)))
            if math.prod(shape)
            else np.empty(shape, dtype)
        )
    return schema, arrays


def _unwritable(error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        problem = (
            "the disk is full; prepared data takes about as much space as the text. "
            "Incomplete files were removed. Free space, or set VFLBENCH_CACHE to a folder on another disk"
        )
    else:
        problem = f"prepared data can't be stored there: {error.strerror or error}; set VFLBENCH_CACHE to another folder"
    return UserError(problem, key="VFLBENCH_CACHE", value=cache_folder())
