"""What was said of a prepared table, for who asks again while its files and those it was made of are as they were.

It is kept in the cache, beside the table. To say it again takes neither the class of the data set nor what reads tables.
"""

import glob
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vflbench.data.private_folders import cache_folder, make_part, make_private, read_own
from vflbench.errors import UserError
from vflbench.plain_files import written_whole

_MOST = 1 << 20  # bytes
_States = list[list[Any]]


def recall(options: Mapping[str, Any], code: str) -> str | None:
    """The line on the table of these options, if nothing has changed since; else None. options: of the data set. code: a
    digest of what decides how it is read.
    """
    try:
        kept = json.loads(read_own(cache_folder() / "lines" / _key(options, code), _MOST))
        if kept["sources"] == _sources(options) and kept["table"] == _table(Path(kept["folder"])):
            return str(kept["line"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def sources_of(options: Mapping[str, Any]) -> _States:
    """The files that the options name, each with size, times and inode. Asked before they are read."""
    try:
        return _sources(options)
    except (OSError, ValueError, TypeError):
        return []


def keep(options: Mapping[str, Any], code: str, sources: _States, line: str, folder: Path) -> None:
    """Keep a line, unless a file has changed since `sources_of`. folder: of the table."""
    with suppress(OSError, ValueError, UserError):
        if not sources or sources != _sources(options):
            return
        make_private(cache_folder())
        place = make_part(cache_folder(), "lines") / _key(options, code)
        content = {"sources": sources, "table": _table(folder), "folder": str(folder), "line": line}
        with written_whole(place, "w", private=True, encoding="utf-8") as file:
            json.dump(content, file)


def _key(options: Mapping[str, Any], code: str) -> str:
    return hashlib.sha256(json.dumps([options, code], sort_keys=True, default=str).encode()).hexdigest()


def _sources(options: Mapping[str, Any]) -> _States:
    path = options.get("path")
    words = [path] if isinstance(path, str) else list(path or ())
    named = [os.path.expanduser(word) for word in words]
    files = {name for word in named for name in ([word] if os.path.lexists(word) else glob.glob(word, recursive=True))}
    if any(isinstance(value, Mapping) or (isinstance(value, str) and os.path.lexists(value)) for value in _others(options)):
        raise ValueError("another option may name a file")
    return [_state(Path(name)) for name in sorted(files)]


def _others(options: Mapping[str, Any]) -> list[Any]:
    values = [value for key, value in options.items() if key not in ("path", "members")]
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def _table(folder: Path) -> _States:
    return [_state(file) for file in sorted(folder.iterdir())]


def _state(file: Path) -> list[Any]:
    """With the time of change, which can't be set back."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no file")
    return [os.path.realpath(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
