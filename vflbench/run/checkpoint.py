"""One file that holds everything a run needs to go on, written whole or not at all."""

import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.errors import UserError, causes
from vflbench.files import in_a_line, is_there, open_plain, written_whole
from vflbench.results.folder import CHECKPOINT

_FORMAT = 2
_PLAIN = (type(None), bool, int, float, str)


class UnusableCheckpointError(ValueError):
    """A checkpoint that no run can go on from."""


class Checkpoint:
    """`checkpoint.pt` in a run's folder: tensors, numbers, strings, lists and dicts, and nothing that could be executed.

    wanted: `resume` (deleted when the run has finished), `keep` (stays) or `none` (never written). fresh: ignore what an
    earlier run left. gone_on: whether the run has gone on from it.
    """

    def __init__(self, folder: Path, wanted: Literal["resume", "keep", "none"] = "resume", *, fresh: bool = False):
        self.path = folder / CHECKPOINT
        self.wanted, self.fresh = wanted, fresh
        self.refused: str | None = None
        self.gone_on = False

    def save(self, state: Mapping[str, Any]) -> bool:
        """Replace the file by this state. False if none is wanted, or if the state holds what a checkpoint can't.

        `refused` says where. Tensors are written one by one, uncopied; tensors that share memory are written once.
        Raises UserError if the file can't be written; the former one then stays as it was.
        """
        if self.wanted == "none":
            return False
        self.refused = not_plain(state)
        if self.refused is not None:
            return False
        try:
            with written_whole(self.path) as file:
                torch.save({"format": _FORMAT, **state}, file)
        except (OSError, RuntimeError) as error:
            # What the system said, where torch says that a position is not the expected one.
            reason = next((one.strerror for one in causes(error) if isinstance(one, OSError) and one.strerror), None)
            if reason is None:
                raise
            whole = "The one before it, if there is one, is whole, and the same command goes on from there"
            problem = f"the checkpoint can't be written: {reason}. {whole}"
            raise UserError(problem, key="checkpoint", value=self.wanted) from error
        return True

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, its tensors mapped from the file; None if there is none.

        Raises UnusableCheckpointError for a file that is not one of ours, whole and unchanged.
        """
        if self.fresh or not is_there(self.path):
            return None
        try:
            with open_plain(self.path) as file, zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()  # its checksums, which torch doesn't look at
            if damaged is not None:
                raise ValueError(f"it is damaged (at {damaged})")
            state = torch.load(self.path, weights_only=True, mmap=True)
        except (PermissionError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever a file that is no zip, or no plain one, does to its readers
            raise UnusableCheckpointError(f"{self.path.name} can't be read: {in_a_line(error, 200)}") from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise UnusableCheckpointError(f"{self.path.name} is not of a kind that this version reads")
        return state

    def finish(self) -> None:
        """The run is complete: nobody will go on from here."""
        if self.wanted != "keep":
            self.path.unlink(missing_ok=True)


def not_plain(value: Any, name: str = "") -> str | None:
    """`name: type` of the first thing that is no tensor, number, string, list or dict of them; None if all are."""
    if type(value) in _PLAIN or isinstance(value, Tensor):
        return None
    if type(value) not in (dict, OrderedDict, list, tuple):
        return f"{name}: {type(value).__name__}"
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    named = ((f"{name}.{key}" if name else str(key), key, part) for key, part in parts)
    problems = (not_plain(part, place) or not_plain(key, f"a key of {name}") for place, key, part in named)
    return next(filter(None, problems), None)
