"""Checkpoints of a party that lives elsewhere: one for each of the label party's, under a name that it writes down."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.run.checkpoint import Checkpoint

KEPT = 2
"""Checkpoints that a party keeps: the label party may have failed to write the one that belongs to the newest."""


class PartyCheckpoints:
    """folder: where they go, each in a folder of its own. party: whose."""

    def __init__(self, folder: Path, party: str):
        self._folder, self._party = folder, party

    def save(self, state: Mapping[str, Any]) -> str:
        """Keep the state, and forget the oldest. Returns its name. Raises UserError for what no checkpoint can hold."""
        mark = secrets.token_hex(8)
        checkpoint = self._of(mark)
        checkpoint.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not checkpoint.save(state):
            raise UserError(f"no checkpoint of party {self._party} can hold {checkpoint.refused}", key="checkpoint")
        self._drop(self._kept()[KEPT:])
        return mark

    def load(self, mark: str) -> dict[str, Any]:
        """The state of that name. Raises UserError where there is none: the parties are then not at the same step."""
        state = self._of(mark).load()
        if state is None:
            problem = (
                f"party {self._party} has no checkpoint of the step at which the label party is, so the run can't go "
                "on; bring its folder of checkpoints back, or begin anew with overwrite=true"
            )
            raise UserError(problem, key="checkpoint")
        return state

    def forget(self) -> None:
        """The run is complete: nobody will go on from here."""
        self._drop(self._kept())

    def _of(self, mark: str) -> Checkpoint:
        if len(mark) != 16 or not mark.isalnum():
            raise UserError("the label party names a checkpoint by what is no name", key="checkpoint", value=mark)
        return Checkpoint(self._folder / mark, "keep")

    def _kept(self) -> list[Path]:
        """The newest first."""
        return sorted(self._folder.glob("*/checkpoint.pt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)

    @staticmethod
    def _drop(kept: Sequence[Path]) -> None:
        for path in kept:
            path.unlink(missing_ok=True)
            path.parent.rmdir()
