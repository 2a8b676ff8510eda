"""Text files -> a prepared table in the cache, made once."""

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
from vflbench.data.encode import RawTable
from vflbench.data.files import open_parts
from vflbench.data.streaming import Preparation, Request
from vflbench.errors import UserError


@dataclass(frozen=True)
class Prepared:
    """table: the rows, mapped from `folder`. facts: for the manifest. made: it was not there before."""

    table: RawTable
    folder: Path
    facts: dict[str, Any]
    made: bool

    def line(self) -> str:
        """For a person."""
        size = sum(file.stat().st_size for file in self.folder.iterdir())
        bad = self.facts.get("bad_rows", {"count": 0})["count"]
        return (
            f"{'prepared' if self.made else 'already prepared'}: {len(self.table):,} rows, "
            f"{len(self.table.names)} columns, {sum(self.table.sizes):,} ids"
            f"{f', bad rows left out: {bad:,}' if bad else ''}; {size / 1e6:,.1f} MB in {self.folder}"
        )


def cache_folder() -> Path:
    """VFLBENCH_CACHE, or the platform's folder for caches."""
    return Path(os.environ.get("VFLBENCH_CACHE") or platformdirs.user_cache_dir("vflbench", appauthor=False)).expanduser()


def prepare(request: Request) -> Prepared:
    """The prepared table of these texts: as it lies in the cache, or made now.

    A table is found by the paths, sizes and modification times of its texts, or, where these are new, by the SHA-256 of
    their content. One that is damaged is made again. Whoever asks for what another process is making waits for it.
    """
    cache, signature = cache_folder(), _signature(request)
    found = _known(cache, signature)
    if found is not None:
        return _prepared(found, request, made=False)
    with _lock(cache, signature):
        found = _known(cache, signature) or _same_content(cache, signature, request)
        if found is not None:
            return _prepared(found, request, made=False)
        return _prepared(_make(cache, signature, request), request, made=True)


def _prepared(found: store.Store, request: Request, *, made: bool) -> Prepared:
    facts = dict(found.schema["facts"])
    paths = [str(Path(part.file).resolve()) + (f"::{part.member}" if part.member else "") for part in request.parts]
    hashes = facts.pop("file_sha256")
    facts = {
        "path": paths[0] if len(paths) == 1 else paths,
        "file_sha256": hashes[0] if len(hashes) == 1 else hashes,
        **facts,
    }
    return Prepared(found.table(), found.folder, facts, made)


def _signature(request: Request) -> str:
    """Tells files apart without reading them."""
    states = [(str(part), _state(part.file)) for part in request.parts]
    return hashlib.sha256(json.dumps([states, request.options_key()]).encode()).hexdigest()[:32]


def _state(file: Path) -> tuple[str, int, int, int]:
    status = file.stat()
    return str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ino


def _known(cache: Path, signature: str) -> store.Store | None:
    """The store that was made of files in this very state."""
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
        tqdm.write(f"the prepared data in {folder} is damaged ({error}); preparing it again")
        store.remove(folder)
        return None


def _same_content(cache: Path, signature: str, request: Request) -> store.Store | None:
    """The store of files with the same bytes and options, which were copied, moved or touched since."""
    size = sum(part.file.stat().st_size for part in request.parts)
    for schema in (cache / "prepared").glob("*/schema.json"):
        try:
            facts = store.read_schema(schema.parent)
        except store.DamagedStoreError:
            continue
        hashes = facts["facts"]["file_sha256"]
        if (facts["raw_bytes"], facts["options"]) != (size, request.options_key()) or None in hashes:
            continue
        if hashes == [opened.raw.hexdigest() for opened in open_parts(request.parts)]:
            found = _open(schema.parent)
            if found is not None:
                _remember(cache, signature, schema.parent.name)
            return found
    return None


@contextmanager
def _lock(cache: Path, signature: str) -> Iterator[None]:
    """One process at a time makes the table of this signature; the lock dies with its process."""
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
    shutil.rmtree(building, ignore_errors=True)  # what a killed process left
    before = [_state(part.file) for part in request.parts]
    try:
        building.mkdir()
        schema = Preparation(request, building).run()
        if before != [_state(part.file) for part in request.parts]:
            raise UserError("a file was changed while it was read", key="dataset.path", value=str(request.parts[0].file))
        target = cache / "prepared" / schema["key"]
        if _open(target) is None:
            building.rename(target)
        _remember(cache, signature, target.name)
    except OSError as error:
        raise _unwritable(cache, error) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return store.Store(target)


def _remember(cache: Path, signature: str, key: str) -> None:
    temporary = cache / "known" / f".{signature}.{os.getpid()}"
    temporary.write_text(key + "\n")
    temporary.replace(cache / "known" / signature)


def _unwritable(cache: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        problem = (
            "the disk is full: prepared data takes about as much space as the text, and twice that while it is made; "
            "nothing half-written is left. Make room, or name a folder on another disk in VFLBENCH_CACHE"
        )
    else:
        problem = f"prepared data can't be kept there: {error.strerror or error}; name another folder in VFLBENCH_CACHE"
    return UserError(problem, key="VFLBENCH_CACHE", value=cache)
