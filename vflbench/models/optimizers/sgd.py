"""Stochastic gradient descent."""

from typing import Annotated

from pydantic import Field
from torch import nn, optim

from vflbench.models.optimizers.base import Optimizer
from vflbench.options import NonNegative, Positive, options


@options
class Sgd(Optimizer):
    """Gradient steps, with optional momentum.

    lr: step size. momentum: decay of the velocity. weight_decay: L2 penalty.
    """

    lr: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegative = 0.0

    def attach(self, network: nn.Module) -> optim.Optimizer:
        return optim.SGD(network.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
