"""An audit that was asked for, whatever asked for it. It loads neither Hydra nor torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.results.provenance import digest

if TYPE_CHECKING:
    from vflbench.attacks.base import Attack
    from vflbench.results.loggers.base import Logger
    from vflbench.run.offline import AuditOptions


@dataclass(frozen=True)
class AuditPlan:
    """An audit that was asked for.

    config: resolved, as config.yaml has it. unusable: attack -> why it can't be built, where all were asked for. named:
    whether attacks were chosen by name. choices: group -> what was chosen. origin: its provenance.
    """

    config: dict[str, Any]
    attacks: Mapping[str, Attack]
    unusable: Mapping[str, str]
    wanted: AuditOptions
    loggers: Mapping[str, Logger]
    overwrite: bool
    named: bool
    overrides: Sequence[str]
    choices: Mapping[str, Any]
    origin: Mapping[str, Any]

    @property
    def folder_name(self) -> str:
        """audit_RECORDING_ATTACKS_DIGEST."""
        return f"{self.config['name']}_{digest(self.config, self.origin)}"


def slug(name: str) -> str:
    """A recording's name as part of a folder's."""
    return "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in name)[:60] or "recording"


def absolute(path: str | os.PathLike[str]) -> Path:
    """Without following links: the path as the user knows it."""
    return Path(os.path.abspath(os.path.expanduser(path)))
