"""Adam on every parameter."""

from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from vflbench.models.optimizers.base import Optimizer
from vflbench.numerics.adam import AdamSteps
from vflbench.options import Decay, Rate, RootTerm, WeightDecay, options


@options
class Adam(Optimizer):
    """Adam on every parameter, embedding tables included, at every step.

    lr: step size. beta1, beta2: decay of the moments. eps: added to the root of the second moment. weight_decay: L2 penalty.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    usual: ClassVar[Mapping[str, tuple[float, float]]] = {
        "lr": (0, 0.1),
        "beta1": (0, 0.99),
        "beta2": (0.8, 0.99999),
        "eps": (1e-12, 1),
        "weight_decay": (0, 0.1),
    }

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
