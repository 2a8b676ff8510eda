"""Stochastic gradient descent."""

from torch import nn

from vflbench.models.optimizers.base import Optimizer
from vflbench.numerics.optim import SgdSteps
from vflbench.options import Decay, Rate, WeightDecay, options


@options
class Sgd(Optimizer):
    """Gradient steps, with optional momentum.

    lr: step size. momentum: decay of the velocity. weight_decay: L2 penalty.
    """

    lr: Rate = 0.1
    momentum: Decay = 0.0
    weight_decay: WeightDecay = 0.0

    def attach(self, network: nn.Module) -> SgdSteps:
        return SgdSteps(network.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
