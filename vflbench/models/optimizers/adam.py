"""Adam on every parameter."""

from torch import nn

from vflbench.models.optimizers.base import Optimizer
from vflbench.numerics.optim import AdamSteps
from vflbench.options import Decay, Rate, RootTerm, WeightDecay, options


@options
class Adam(Optimizer):
    """Adam on every parameter, embedding tables included, at every step.

    lr: step size. beta1, beta2: decay of the moments. eps: added to the root of the second moment. weight_decay: L2 penalty.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    lr: Rate = 5e-4
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: RootTerm = 1e-8
    weight_decay: WeightDecay = 0.0

    def attach(self, network: nn.Module) -> AdamSteps:
        betas = (self.beta1, self.beta2)
        return AdamSteps(
            network.parameters(), lr=self.lr, betas=betas, eps=self.eps, weight_decay=self.weight_decay, fused=True
        )
