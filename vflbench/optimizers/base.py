"""Optimizer: what every entry of configs/optimizer builds; each party makes its own from it."""

from torch import nn, optim

from vflbench.options import options


@options
class Optimizer:
    """Settings of an optimiser. A subclass overrides `attach`."""

    def attach(self, network: nn.Module) -> optim.Optimizer:
        """A torch optimiser over the parameters of one party's network."""
        raise NotImplementedError
