"""The cache of prepared tables: each is made once from its text files."""

import errno
import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from vflbench.data import store
from vflbench.data.blocks import open_parts
from vflbench.data.labels import listed_rows
from vflbench.data.private_folders import (
    cache_folder,
    is_ours,
    make_marked,
    make_part,
    make_private,
    read_own,
    remove,
    remove_left_overs,
)
from vflbench.data.request import Request
from vflbench.data.stored_columns import DamagedStoreError
from vflbench.data.table import RawTable
from vflbench.errors import UserError
from vflbench.plain_files import is_there, sync_folder, written_whole

_KEY = re.compile("[0-9a-f]{32}")
_MOST_KEY = 100  # bytes


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


def prepare(request: Request, check: int | None = None) -> Prepared:
    """Return the prepared table of these texts, from the cache or made now.

    The cache looks up a table by the paths, sizes and modification times of its texts, and then by the SHA-256 of their
    content. A damaged table is made again. If another process is making the table, wait for it.

    check: bytes of a table in the cache to look at for damage now; None: as many as for reading all of it.
    """
    cache, signature = cache_folder(), _signature(request)
    _make_folders(cache)
    cached = _with_signature(cache, signature, request, check)
    if cached is not None:
        return _prepared(cached, request, made=False)
    with _lock(cache, signature):
        cached = _with_signature(cache, signature, request, check) or _with_same_content(cache, signature, request, check)
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


def _state(file: Path) -> tuple[str, int, int, int, int]:
    """With the time of change, which can't be set back: other bytes of the same size and time are another state."""
    status = file.stat()
    return str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _with_signature(cache: Path, signature: str, request: Request, check: int | None) -> store.Store | None:
    """The store that was made from files in the same state."""
    try:
        key = read_own(cache / "known" / signature, _MOST_KEY).decode().removesuffix("\n")
    except (OSError, ValueError):
        return None
    return _open(cache / "prepared" / key, request, check) if _KEY.fullmatch(key) else None


def _open(folder: Path, request: Request, check: int | None = None) -> store.Store | None:
    """The store in that folder, if it is whole and of this request."""
    if not is_ours(folder):
        return None
    try:
        opened = store.Store(folder, check)
        if (opened.schema["key"], opened.schema["options"]) != (folder.name, request.options_key()):
            raise DamagedStoreError("it is another table than its name says")
        return opened
    except DamagedStoreError as error:
        tqdm.write(f"the prepared data in {folder} is damaged ({error}) and will be prepared again")
        if not remove(folder):
            raise _in_the_way(folder) from error
        return None


def _in_the_way(folder: Path) -> UserError:
    problem = "this folder holds files that vflbench has not put there, so it is left as it is; move it away"
    return UserError(f"{problem}, or set VFLBENCH_CACHE to another folder", key="VFLBENCH_CACHE", value=folder)


def _with_same_content(cache: Path, signature: str, request: Request, check: int | None) -> store.Store | None:
    """The store that was made from the same bytes with the same options, under another path or time."""
    size = sum(part.file.stat().st_size for part in request.parts)
    for folder in sorted((cache / "prepared").iterdir()):
        if not (_KEY.fullmatch(folder.name) and is_ours(folder)):
            continue
        try:
            content = store.read_schema(folder)
        except DamagedStoreError:
            continue
        hashes = content["facts"]["file_sha256"]
        if (content["raw_bytes"], content["options"]) != (size, request.options_key()) or None in hashes:
            continue
        if hashes == [part.raw.hexdigest() for part in open_parts(request.parts)]:
            opened = _open(folder, request, check)
            if opened is not None:
                _remember(cache, signature, folder.name)
            return opened
    return None


def _make_folders(cache: Path) -> None:
    try:
        make_private(cache)
        for name in ("locks", "known", "prepared", "building"):
            make_part(cache, name)
    except OSError as error:
        raise _unwritable(cache, error) from error


@contextmanager
def _lock(cache: Path, signature: str) -> Iterator[None]:
    """Let one process at a time make the table of this signature. The lock ends with its process."""
    try:
        lock = FileLock(cache / "locks" / signature, mode=0o600)
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
    from vflbench.data.streaming import Preparation  # with what parses

    building = cache / "building" / f"{signature}.{secrets.token_hex(8)}"
    remove_left_overs(building.parent, f"{signature}.")
    remove_left_overs(cache / "prepared", ".removed-")
    before = [_state(part.file) for part in request.parts]
    try:
        make_marked(building)
        schema = Preparation(request, building).run()
        if before != [_state(part.file) for part in request.parts]:
            raise UserError("a file changed while it was read", key="dataset.path", value=str(request.parts[0].file))
        target = cache / "prepared" / schema["key"]
        if _open(target, request) is None:
            if is_there(target):
                raise _in_the_way(target)
            sync_folder(building)
            building.rename(target)
            sync_folder(target.parent)
        _remember(cache, signature, target.name)
    except OSError as error:
        raise _unreadable(request, error) or _unwritable(cache, error) from error
    finally:
        remove(building)
    return store.Store(target, 0)  # just written; what is read of it is checked


def _remember(cache: Path, signature: str, key: str) -> None:
    with written_whole(cache / "known" / signature, "w", private=True) as file:
        file.write(f"{key}\n")


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
