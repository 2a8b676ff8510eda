"""Optimizer: what every entry of configs/optimizer builds; each party makes its own from it."""

from torch import nn, optim

from vflbench.errors import UserError
from vflbench.options import options


@options
class Optimizer:
    """Settings of an optimiser. A subclass overrides `attach`."""

    def attach(self, network: nn.Module) -> optim.Optimizer:
        """A torch optimiser over the parameters of one party's network."""
        raise NotImplementedError


def diverged(optimizer: Optimizer, what: str) -> UserError:
    """The likely cause, and what is left."""
    return UserError(
        f"{what}; the step size is the likely cause, so try a smaller one. Epochs that were finished are in metrics.csv",
        key="optimizer.lr",
        value=getattr(optimizer, "lr", None),
    )
