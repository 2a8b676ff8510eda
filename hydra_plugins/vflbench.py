"""What Hydra finds of vflbench: it takes sweepers and launchers only from modules of this namespace package."""

from vflbench.cli.launcher import ProcessesLauncher
from vflbench.cli.sweep import RunsSweeper


class Processes(ProcessesLauncher):
    """`hydra/launcher=processes`, the default."""


class Runs(RunsSweeper):
    """`hydra/sweeper=runs`, the default."""
