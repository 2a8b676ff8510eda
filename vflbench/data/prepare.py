"""The cache of prepared tables: each is made once from its text files."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout
from tqdm import tqdm

from vflbench.data import store
from vflbench.data.blocks import open_parts
from vflbench.data.labels import listed_rows
from vflbench.data.raw import RawTable
from vflbench.data.streaming import Preparation, Request
from vflbench.errors import UserError


@dataclass(frozen=True)
class Prepared:
    """table: the rows, memory-mapped from `folder`. facts: for the manifest. made: whether this call made the table."""

    table: RawTable
    folder: Path
    facts: dict[str, Any]
    made: bool

    def line(self) -> str:
        """A summary to print."""
        size = sum(file.stat().st_size for file in self.folder.iterdir())
        bad, classes = self.facts.get("bad_rows", {"count": 0})["count"], listed_rows(self.facts["class_rows"])
        return (
            f"{'prepared' if self.made else 'already prepared'}: {len(self.table):,} rows, "
            f"{len(self.table.names)} columns, {sum(self.table.sizes):,} ids"
            f"{f', bad rows left out: {bad:,}' if bad else ''}; classes {classes}; {size / 1e6:,.1f} MB in {self.folder}"
        )


def cache_folder() -> Path:
    """The folder in VFLBENCH_CACHE, by default the platform's folder for caches."""
    return Path(os.environ.get("VFLBENCH_CACHE") or platformdirs.user_cache_dir("vflbench", appauthor=False)).expanduser()


def prepare(request: Request) -> Prepared:
    """Return the prepared table of these texts, from the cache or made now.

    The cache looks up a table by the paths, sizes and modification times of its texts, and then by the SHA-256 of their
    content. A damaged table is made again. If another process is making the table, wait for it.
    """
    cache, signature = cache_folder(), _signature(request)
    cached = _with_signature(cache, signature)
    if cached is not None:
        return _prepared(cached, request, made=False)
    with _lock(cache, signature):
        cached = _with_signature(cache, signature) or _with_same_content(cache, signature, request)
        if cached is not None:
            return _prepared(cached, request, made=False)
        return _prepared(_make(cache, signature, request), request, made=True)


def _prepared(opened: store.Store, request: Request, *, made: bool) -> Prepared:
    facts = dict(opened.schema["facts"])
    paths = [str(Path(part.file).resolve()) + (f"::{part.member}" if part.member else "") for part in request.parts]
    hashes = facts.pop("file_sha256")
    facts = {
        "path": paths[0] if len(paths) == 1 else paths,
        "file_sha256": hashes[0] if len(hashes) == 1 else hashes,
        **facts,
    }
    return Prepared(opened.table(), opened.folder, facts, made)


def _signature(request: Request) -> str:
    """A digest of the options and of the state of the files, which are not read."""
    states = [(str(part), _state(part.file)) for part in request.parts]
    return hashlib.sha256(json.dumps([states, request.options_key()]).encode()).hexdigest()[:32]


def _state(file: Path) -> tuple[str, int, int, int]:
    status = file.stat()
    return str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ino


def _with_signature(cache: Path, signature: str) -> store.Store | None:
    """The store that was made from files in the same state."""
    try:
        key = (cache / "known" / signature).read_text().strip()
    except OSError:
        return None
    return _open(cache / "prepared" / key)


def _open(folder: Path) -> store.Store | None:
    if not folder.is_dir():
        return None
    try:
        return store.Store(folder)
    except store.DamagedStoreError as error:
        tqdm.write(f"the prepared data in {folder} is damaged ({error}) and will be prepared again")
        store.remove(folder)
        return None


def _with_same_content(cache: Path, signature: str, request: Request) -> store.Store | None:
    """The store that was made from the same bytes with the same options, under another path or time."""
    size = sum(part.file.stat().st_size for part in request.parts)
    for schema in (cache / "prepared").glob("*/schema.json"):
        try:
            content = store.read_schema(schema.parent)
        except store.DamagedStoreError:
            continue
        hashes = content["facts"]["file_sha256"]
        if (content["raw_bytes"], content["options"]) != (size, request.options_key()) or None in hashes:
            continue
        if hashes == [part.raw.hexdigest() for part in open_parts(request.parts)]:
            opened = _open(schema.parent)
            if opened is not None:
                _remember(cache, signature, schema.parent.name)
            return opened
    return None


@contextmanager
def _lock(cache: Path, signature: str) -> Iterator[None]:
    """Let one process at a time make the table of this signature. The lock ends with its process."""
    try:
        for name in ("locks", "known", "prepared", "building"):
            (cache / name).mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / "locks" / signature)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tqdm.write("another process is preparing this data; waiting for it")
            lock.acquire()
    except OSError as error:
        raise _unwritable(cache, error) from error
    try:
        yield
    finally:
        lock.release()


def _make(cache: Path, signature: str, request: Request) -> store.Store:
    building = cache / "building" / signature
    shutil.rmtree(building, ignore_errors=True)  # left by a killed process
    before = [_state(part.file) for part in request.parts]
    try:
        building.mkdir()
        schema = Preparation(request, building).run()
        if before != [_state(part.file) for part in request.parts]:
            raise UserError("a file changed while it was read", key="dataset.path", value=str(request.parts[0].file))
        target = cache / "prepared" / schema["key"]
        if _open(target) is None:
            building.rename(target)
        _remember(cache, signature, target.name)
    except OSError as error:
        raise _unreadable(request, error) or _unwritable(cache, error) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return store.Store(target)


def _remember(cache: Path, signature: str, key: str) -> None:
    temporary = cache / "known" / f".{signature}.{os.getpid()}"
    temporary.write_text(key + "\n")
    temporary.replace(cache / "known" / signature)


def _unreadable(request: Request, error: OSError) -> UserError | None:
    """The error of a data file that can't be read; None for one of the cache."""
    if str(error.filename) not in {str(part.file) for part in request.parts}:
        return None
    return UserError(f"it can't be read: {error.strerror}", key="dataset.path", value=error.filename)


def _unwritable(cache: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        problem = (
            "the disk is full; prepared data takes about as much space as the text, and twice as much while it is made. "
            "Incomplete files were removed. Free space, or set VFLBENCH_CACHE to a folder on another disk"
        )
    else:
        problem = f"prepared data can't be stored there: {error.strerror or error}; set VFLBENCH_CACHE to another folder"
    return UserError(problem, key="VFLBENCH_CACHE", value=cache)
