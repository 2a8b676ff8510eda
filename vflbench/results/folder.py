"""What a run's folder holds already, and who is at work in it."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from vflbench.errors import UserError
from vflbench.results.identity import differences

_TOLD = 4  # options named where a folder holds another configuration's run


class FolderError(UserError):
    """A folder that is not this run's to write in."""


class BusyError(FolderError):
    """Another process is at work there."""


class Earlier(Enum):
    """How far a run of the same configuration came in this folder before."""

    NOTHING = "nothing"
    BEGUN = "begun"
    FINISHED = "finished"


def look(folder: Path, config: Mapping[str, Any]) -> Earlier:
    """config: the resolved configuration that is to run there. Raises FolderError if the folder holds another one's."""
    finished = (folder / "summary.json").exists()
    if not finished and not (folder / "metrics.csv").exists():
        return Earlier.NOTHING
    different = differences(recorded_config(folder), config)
    if different:
        more = f" and {len(different) - _TOLD} more" if len(different) > _TOLD else ""
        raise FolderError(
            f"this folder holds a run of another configuration ({'; '.join(different[:_TOLD])}{more}), which stays as it "
            "is; name another folder, or replace it with overwrite=true",
            key="hydra.run.dir",
            value=folder,
        )
    return Earlier.FINISHED if finished else Earlier.BEGUN


def recorded_config(folder: Path) -> dict[str, Any]:
    """The config.yaml of the run that a folder holds."""
    try:
        config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    except Exception as error:  # whatever YAML parsers raise
        problem = f"this folder holds results without a config.yaml that can be read ({type(error).__name__}); name another"
        raise FolderError(f"{problem}, or replace them with overwrite=true", key="hydra.run.dir", value=folder) from error
    return config if isinstance(config, dict) else {}


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other process runs in this folder meanwhile. The lock ends with its process, however that ends.

    A folder in which nothing was begun is left empty. Raises BusyError.
    """
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        problem = "another process is at work in this folder; wait for it, or stop it"
        raise BusyError(problem, key="hydra.run.dir", value=folder) from None
    try:
        yield
    finally:
        if [file.name for file in folder.iterdir()] == [".lock"]:
            with suppress(OSError):
                (folder / ".lock").unlink()
        lock.release()


def remove_if_empty(folder: Path) -> None:
    """A run that could not begin leaves nothing behind."""
    with suppress(OSError):
        folder.rmdir()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work there now."""
    if not (folder / ".lock").exists():
        return False
    try:
        with alone_in(folder):
            return False
    except BusyError:
        return True


def leave_error(folder: Path, text: str, error: BaseException) -> None:
    """error.txt: what the user needs in one paragraph, an empty line, the traceback. A disk that is full takes none."""
    told = "".join(traceback.format_exception(error))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / ".error.txt.tmp"
        temporary.write_text(f"{' '.join(text.split())}\n\n{told}")
        temporary.replace(folder / "error.txt")


def error_in(folder: Path) -> str | None:
    """The paragraph of error.txt; None if the last attempt did not fail."""
    try:
        return (folder / "error.txt").read_text().partition("\n\n")[0]
    except FileNotFoundError:
        return None


def clear_error(folder: Path) -> None:
    """A new attempt begins."""
    (folder / "error.txt").unlink(missing_ok=True)
