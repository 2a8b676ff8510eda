"""Folders that only this user can write to, and what may be deleted from them."""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vflbench.errors import UserError
from vflbench.plain_files import is_there, open_plain, temporary_beside

MARK = ".vflbench"
"""Stands in every folder that this cache has made, and may delete."""
_PART = re.compile(r"(numeric|categorical|labels|counts|checksums|schema\.json|\d{1,9}\.npz)")
"""The files of a prepared table, and of one that is being made: nothing else is deleted."""


def cache_folder() -> Path:
    """The folder in VFLBENCH_CACHE, by default the platform's folder for caches."""
    import platformdirs

    named = os.environ.get("VFLBENCH_CACHE") or platformdirs.user_cache_dir("vflbench", appauthor=False)
    return Path(os.path.expanduser(named))


def make_private(folder: Path) -> None:
    """Make the folder, for its owner alone, or check that only its owner can write to one that is there.

    Raises UserError where it belongs to somebody else, where others can write to it, and for a link that isn't the user's
    own; raises OSError where it can't be made.
    """
    if not is_there(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process of ours was faster, or somebody else: looked at below
            folder.mkdir(mode=0o700)
    own = {os.getuid()} if hasattr(os, "getuid") else set()
    if folder.is_symlink() and own and folder.lstat().st_uid not in own:
        raise _shared(folder, "it is somebody else's link")
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "it is no folder", str(folder))
    if own and status.st_uid not in own:
        raise _shared(folder, f"it belongs to another user (number {status.st_uid})")
    if own and (status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid))):
        raise _shared(folder, "others can write to it")


def make_part(cache: Path, name: str) -> Path:
    """A folder of the cache, private, and no link: what is deleted there lies in the cache."""
    folder = cache / name
    if folder.is_symlink():
        raise _shared(folder, "it is a link")
    make_private(folder)
    return folder


def is_ours(folder: Path) -> bool:
    """Whether it is a folder, no link, of this user's and with our mark."""
    try:
        status = folder.lstat()
        mark = (folder / MARK).lstat()
    except OSError:
        return False
    own = os.getuid() if hasattr(os, "getuid") else status.st_uid
    return stat.S_ISDIR(status.st_mode) and stat.S_ISREG(mark.st_mode) and status.st_uid == mark.st_uid == own


def make_marked(folder: Path) -> None:
    """A new folder with our mark, for its owner alone."""
    folder.mkdir(mode=0o700)
    temporary_beside(folder / MARK, private=True).rename(folder / MARK)


def remove(folder: Path) -> bool:
    """Delete a folder of ours: the files of a table, the mark, the folder. Returns False where it is still there.

    Without our mark, or with something else in it, nothing is touched. It is renamed first, so that it disappears for other
    processes at once.
    """
    if not is_ours(folder) or not all(_is_part(name) for name in os.listdir(folder)):
        return False
    gone = folder.with_name(f".removed-{secrets.token_hex(8)}")
    try:
        folder.rename(gone)
    except OSError:
        return False
    return _delete(gone)


def remove_left_overs(parent: Path, prefix: str) -> None:
    """Delete what killed processes have left in this folder under names that begin so."""
    with suppress(OSError):
        for folder in parent.iterdir():
            if not folder.name.startswith((prefix, ".removed-")) or folder.is_symlink():
                continue
            with suppress(OSError):  # empty: its process was killed before it could mark it
                folder.rmdir()
            if is_ours(folder):
                with suppress(OSError):
                    _delete(folder)


def _is_own_group(number: int) -> bool:
    """Whether it is the group of this user alone, as many systems make one for each user."""
    try:
        import grp
        import pwd

        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except (ImportError, KeyError):
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _delete(folder: Path) -> bool:
    for file in folder.iterdir():
        if file.name != MARK and _is_part(file.name):
            with suppress(OSError):
                file.unlink()
    if [file.name for file in folder.iterdir()] != [MARK]:  # what somebody has put there stays, and the mark with it
        return False
    with suppress(OSError):
        (folder / MARK).unlink()
        folder.rmdir()
    return not is_there(folder)


def read_own(file: Path, most: int) -> bytes:
    """The content of a plain file of this user's, of at most so many bytes. Raises ValueError for another."""
    with open_own(file) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most:,} bytes")
    return data


def open_own(file: Path) -> BinaryIO:
    """A plain file of this user's, for reading. Raises ValueError for another."""
    stream = open_plain(file)
    if hasattr(os, "getuid") and os.fstat(stream.fileno()).st_uid != os.getuid():
        stream.close()
        raise ValueError("it belongs to another user")
    return stream


def _is_part(name: str) -> bool:
    """Whether a file of this name is one of a table's."""
    return name == MARK or _PART.fullmatch(name) is not None or re.fullmatch(r"\..+\.[0-9a-f]{16}\.tmp", name) is not None


def _shared(folder: Path, reason: str) -> UserError:
    problem = f"{reason}, so what it holds can't be trusted; take it from the others (chmod go-w), or set VFLBENCH_CACHE"
    return UserError(f"{problem} to a folder of your own", key="VFLBENCH_CACHE", value=folder)
