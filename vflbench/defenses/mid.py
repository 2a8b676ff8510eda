"""Mutual information regularization: between slot and top, a noisy bottleneck that may pass little."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.defenses.base import LabelDefense
from vflbench.numerics.optim import BareLinear
from vflbench.options import Weight, Width, options

_STD_SHIFT = 0.5  # this, and the form of the networks, are those of the authors' VFLAIR, `MID_model`
_DECODER = 5  # width of the decoder's hidden layer, in widths of the bottleneck


@options
class Mid(LabelDefense):
    """A variational bottleneck in front of the top, which passes on little of each embedding. Falls to `posterior`, which
    needs no label and reads as much from gradients as without a defense.

        m, r = ReLU(W h + b),   s = softplus(r - 1/2),   z = m + s e,  e ~ N(0, I),   h' = ReLU(W2 ReLU(W1 z + b1) + b2)
        L = L_c + beta sum_parties mean_i KL(N(m_i, diag s_i^2) || N(0, I))
        KL(N(m, diag s^2) || N(0, I)) = 1/2 sum_j (m_j^2 + s_j^2 - 1 - 2 log s_j)

    There is one bottleneck for each non-label party. It is trained with the top. The top reads h' in place of h. The mean KL
    bounds the mutual information of h and z, in nats. When rows are predicted, there is no noise: z = m.

    beta: weight, published as lambda; 0 leaves the noise, whose s is at least softplus(-1/2) = 0.474. width: of z; that of
    the embedding if left out. A large weight, such as 0.1 on Criteo, leaves no model.

    It changes nothing that crosses. Embeddings go up before the bottleneck, and the gradient of its input comes down: p - y
    times a noisy derivative of the logit, whose sign is the label. The logits of a linear part (`wide`) do not pass the
    bottleneck, and the label party's own columns need not pass it.

    Source: Zou, Liu and Zhang, "Mutual Information Regularization for Vertical Federated Learning", arXiv 2301.01142, 2023;
    after Wang, Zhang and Jia, "Improving Robustness to Model Inversion Attacks via Mutual Information Regularization", 2021.
    """

    beta: Weight = 0.01
    width: Width | None = None

    def __post_init__(self) -> None:
        self._kl: Tensor | None = None  # of the last forward pass in training mode

    def entrance(self, widths: Sequence[int], rng: torch.Generator) -> nn.Module:
        """One bottleneck a non-label party. The noise has a generator of its own, whose seed comes from rng."""
        return Bottlenecks(widths, self.width, rng, partial(setattr, self, "_kl"))

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """beta times the KL of the forward pass before it."""
        kl, self._kl = self._kl, None
        if kl is None:
            return 0.0
        self.tally("kl", kl.item(), of=1)  # of a row, all parties together, in nats
        return self.beta * kl


class Bottlenecks(nn.Module):
    """One bottleneck a party. passed: gets the KL of each forward pass in training mode, mean over rows, sum over parties.

    noise: the generator of e, on the CPU wherever the network is. Its state is saved with the weights.
    """

    def __init__(self, widths: Sequence[int], width: int | None, rng: torch.Generator, passed: Callable[[Tensor], None]):
        super().__init__()
        sizes = [width or d for d in widths]
        self.encoders = nn.ModuleList(_linear(d, 2 * z, rng) for d, z in zip(widths, sizes, strict=True))
        self.decoders = nn.ModuleList(
            nn.Sequential(_linear(z, _DECODER * z, rng), nn.ReLU(), _linear(_DECODER * z, d, rng), nn.ReLU())
            for d, z in zip(widths, sizes, strict=True)
        )
        self.noise = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng)))
        self.passed = passed

    def get_extra_state(self) -> Tensor:
        return self.noise.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.noise.set_state(state.clone())

    def forward(self, embeddings: Sequence[Tensor]) -> list[Tensor]:
        """embeddings: (n, d) each; so is what it returns."""
        decoded, kl = [], torch.zeros((), device=embeddings[0].device)
        for h, encoder, decoder in zip(embeddings, self.encoders, self.decoders, strict=True):
            mean, raw = F.relu(encoder(h)).float().chunk(2, dim=1)
            deviation = F.softplus(raw - _STD_SHIFT)
            z = mean
            if self.training:
                z = mean + deviation * torch.randn(mean.shape, generator=self.noise).to(mean)
                kl = kl + divergence(mean, deviation).mean()
            decoded.append(decoder(z))
        if self.training:
            self.passed(kl)
        return decoded


def divergence(mean: Tensor, deviation: Tensor) -> Tensor:
    """KL(N(m, diag s^2) || N(0, I)) of each row, (n,) nats. mean, deviation: (n, z)."""
    return (mean.square() + deviation.square() - 1 - 2 * deviation.log()).sum(dim=1) / 2


def _linear(inputs: int, outputs: int, rng: torch.Generator) -> nn.Linear:
    """Weights U(-b, b), b = sqrt(6 / inputs), which suits a ReLU (He et al. 2015); zero bias."""
    layer = BareLinear(inputs, outputs)
    bound = math.sqrt(6 / inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=rng)
        layer.bias.zero_()
    return layer
