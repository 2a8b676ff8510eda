"""The name of a run, and the folder that the command line gives it: checked before anything is written there."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.results.files import CONFIG, ERROR, LOCK, MARKS

_NAME = re.compile(r"\w[\w .,+=@()-]*(?<![ .])")
_LONGEST_NAME = 200  # bytes; a folder's name has 255 at most, and a digest follows
_LOGS = {".log", ".txt", ".out", ".err"}  # what a shell writes there at the same time
_OURS = MARKS - {CONFIG} | {LOCK, ERROR}


def run_name(name: Any) -> str:
    """The name as text. Raises UserError unless it can be the beginning of a folder's name, on every system."""
    given = str(name) if isinstance(name, str | int | float) else ""
    if not _NAME.fullmatch(given) or len(given.encode()) > _LONGEST_NAME:
        problem = (
            "it is the beginning of the folder's name: 1 to 200 letters, digits, spaces and . , _ + - = @ ( ), of which the "
            "first is a letter, a digit or _ and the last is neither a space nor a dot"
        )
        raise UserError(problem, key="name", value=name if given else repr(name))
    return given


def check_folder(typed: Any, folder: Path) -> None:
    """Raise UserError for a run's folder that is none, or that holds what no run has written.

    typed: the value of hydra.run.dir, which Hydra has made an absolute folder of.
    """
    text = "" if typed is None else str(typed)
    if not text.strip() or "\0" in text:
        raise UserError("it must name a folder", key="hydra.run.dir", value=repr(typed))
    try:
        names = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise UserError(f"{error.strerror}", key="hydra.run.dir", value=typed) from error
    foreign = sorted(name for name in names if Path(name).suffix not in _LOGS)
    if foreign and _OURS.isdisjoint(names):
        listed = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
        problem = f"this folder holds what no run has written ({listed}); name a new one, or that of a run"
        raise UserError(problem, key="hydra.run.dir", value=typed)


def refuse_shared(runs: Iterable[tuple[Path, Any]]) -> None:
    """Raise UserError where runs of a sweep have other options and the same folder. runs: folder and options of each."""
    first: dict[Path, Any] = {}
    for folder, options in runs:
        if first.setdefault(folder, options) != options:
            problem = "runs of other options would share this folder; it must depend on what is swept"
            raise UserError(problem, key="hydra.sweep.subdir", value=folder.name)
