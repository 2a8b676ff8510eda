"""What Hydra finds of vflbench: it takes sweepers and launchers only from modules of this namespace package."""

from vflbench.cli.sweeper import RunsSweeper


class Runs(RunsSweeper):
    """`hydra/sweeper=runs`, the default."""
