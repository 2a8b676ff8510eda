"""What a run's folder holds already, and whether another process is at work in it."""

import glob
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.plain_files import written_whole
from vflbench.results.files import ERROR, LOCK, is_begun, is_finished
from vflbench.results.provenance import differences, differing
from vflbench.results.read import read_config, read_error, read_manifest
from vflbench.results.schema import Manifest
from vflbench.results.untrusted import Unreadable, shown

_NAMED_DIFFERENCES = 4
_DIGITS = 8  # of the digest at the end of a folder's name


class FolderError(UserError):
    """The folder holds something else, or belongs to another process for now."""


class BusyError(FolderError):
    """Another process is at work there."""


class Earlier(Enum):
    """How far an earlier run of the same configuration came in this folder."""

    NOTHING = "nothing"
    BEGUN = "begun"
    FINISHED = "finished"


def look(folder: Path, config: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> Earlier:
    """How far the run with this resolved configuration and this origin (see `results.provenance`) came in this folder.

    Raises FolderError if the folder holds a run of other options, or one that another code, other plug-ins or other data
    made. origin: None leaves that open.
    """
    finished = is_finished(folder)
    if not finished and not is_begun(folder):
        return Earlier.NOTHING
    different = differences(recorded_config(folder), config)
    if different:
        more = f" and {len(different) - _NAMED_DIFFERENCES} more" if len(different) > _NAMED_DIFFERENCES else ""
        named = shown("; ".join(different[:_NAMED_DIFFERENCES]), 500)
        raise FolderError(
            f"this folder holds a run of another configuration ({named}{more}), which "
            "stays as it is; name another folder, or replace it with overwrite=true",
            key="hydra.run.dir",
            value=folder,
        )
    manifest = _recorded_manifest(folder)
    change = "" if origin is None else differing(manifest.identity, origin)
    if change:
        raise FolderError(
            f"this folder holds a run of these options {change}; the run stays as it is; name another folder, or "
            "replace it with overwrite=true",
            key="hydra.run.dir",
            value=folder,
        )
    return Earlier.FINISHED if finished else Earlier.BEGUN


def recorded_config(folder: Path) -> dict[str, Any]:
    """The config.yaml of the run that a folder holds."""
    try:
        return read_config(folder)
    except (OSError, Unreadable) as error:
        problem = f"this folder holds results without a config.yaml that can be read ({type(error).__name__}); name another"
        raise FolderError(f"{problem}, or replace them with overwrite=true", key="hydra.run.dir", value=folder) from error


def other_versions(folder: Path, config: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    """A line for each finished run beside this folder, of the same options and another origin: why it is not the answer.

    Looks at folders whose names differ in their digest alone.
    """
    head, _, end = folder.name.rpartition("_")
    lines = []
    for other in sorted(folder.parent.glob(f"{glob.escape(head)}_*")) if head and len(end) == _DIGITS else ():
        if other.name == folder.name or len(other.name) != len(folder.name) or not is_finished(other):
            continue
        manifest = _recorded_manifest(other)
        with suppress(FolderError):
            if not differences(recorded_config(other), config) and (why := differing(manifest.identity, origin)):
                lines.append(f"{other} holds a run of these options {why}, so it is computed anew")
    return lines


def _recorded_manifest(folder: Path) -> Manifest:
    """manifest.json; an empty one if it can't be read."""
    with suppress(OSError, Unreadable):
        return read_manifest(folder)
    return Manifest()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While entered, no other process runs in this folder. The lock ends with its process, however that ends.

    A folder in which nothing was begun is left empty. Raises BusyError.
    """
    from filelock import FileLock, Timeout  # late: it imports more than the rest of this module

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        problem = "another process is at work in this folder; wait for it, or stop it"
        raise BusyError(problem, key="hydra.run.dir", value=folder) from None
    try:
        yield
    finally:
        if [file.name for file in folder.iterdir()] == [LOCK]:
            with suppress(OSError):
                (folder / LOCK).unlink()
        lock.release()


def remove_if_empty(folder: Path) -> None:
    """A run that could not begin leaves nothing behind."""
    with suppress(OSError):
        folder.rmdir()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work there now."""
    if not (folder / LOCK).exists():
        return False
    try:
        with alone_in(folder):
            return False
    except BusyError:
        return True


def leave_error(folder: Path, text: str, error: BaseException) -> None:
    """Write error.txt: a paragraph for the user, an empty line, the traceback. If the disk is full, nothing is written."""
    trace = "".join(traceback.format_exception(error))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / ERROR, "w") as file:
            file.write(f"{' '.join(text.split())}\n\n{trace}")


def error_in(folder: Path) -> str | None:
    """The paragraph of error.txt; None if the last attempt did not fail. Raises Unreadable."""
    return read_error(folder)


def clear_error(folder: Path) -> None:
    """Remove error.txt, as a new attempt begins."""
    (folder / ERROR).unlink(missing_ok=True)
