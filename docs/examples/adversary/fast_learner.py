"""Fast learner: a party learns faster than it agreed to, so that its own network learns the labels."""

from torch import Tensor, nn, optim

from vflbench import Adversary, Context, Optimizer
from vflbench.options import Positive, options


@options
class FastLearner(Adversary):
    """It scales the gradients that it receives, and trains its bottom model with a step size of its own.

    lr: of its own Adam. scale: of received gradients.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, section 4.2.
    """

    lr: Positive = 0.005
    scale: Positive = 1.0

    def attach(self, network: nn.Module, optimizer: Optimizer) -> optim.Optimizer:
        return optim.Adam(network.parameters(), lr=self.lr, fused=True)

    def gradient(self, layer: str, g: Tensor, h: Tensor, context: Context) -> Tensor:
        return self.scale * g
