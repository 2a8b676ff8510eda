"""What Hydra finds of vflbench: it takes sweepers and launchers only from modules of this namespace package."""

from vflbench.cli.config import Folders, OthersConfigs
from vflbench.cli.launcher import ProcessesLauncher
from vflbench.cli.sweep import RunsSweeper

__all__ = ["Folders", "OthersConfigs", "Processes", "Runs"]


class Processes(ProcessesLauncher):
    """`hydra/launcher=processes`, the default."""


class Runs(RunsSweeper):
    """`hydra/sweeper=runs`, the default."""
