"""A classifier, independent of the attacked model, that recognises the class of reconstructed pictures."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.numerics.optim import AdamSteps, BareConv2d, BareLinear

_STEPS, _BATCH, _RATE = 500, 64, 2e-3
_PLACES = 14


class Recogniser:
    """A small convolutional network, trained on whole true pictures and their classes.

        3 x 3 convolutions of 16 and 32 channels, each halving the picture -> ReLU layer of 64 -> logits

    pictures: (n, height, width) or (n, height, width, channels) in [0, 1]; labels: (n,) classes. Trained by 500 steps of
    Adam on batches of 64; on MNIST it recognises about 97 % of true pictures.
    """

    def __init__(self, pictures: Tensor, labels: Tensor, classes: int, rng: torch.Generator):
        x, labels = _planes(pictures).cpu(), labels.cpu()
        sides = [math.ceil(side / 4) for side in x.shape[2:]]
        self.network = nn.Sequential(
            BareConv2d(x.shape[1], 16, 3, stride=2, padding=1),
            nn.ReLU(),
            BareConv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            BareLinear(32 * sides[0] * sides[1], 64),
            nn.ReLU(),
            BareLinear(64, classes),
        )
        for weights in self.network.parameters():
            inputs = weights[0].numel() if weights.ndim > 1 else 0
            nn.init.normal_(weights, 0.0, math.sqrt(2 / inputs), generator=rng) if inputs else nn.init.zeros_(weights)
        optimizer = AdamSteps(self.network.parameters(), lr=_RATE)
        for step in range(_STEPS):
            chosen = torch.randint(len(x), (min(_BATCH, len(x)),), generator=rng)
            optimizer.lr = _RATE * (1 - step / _STEPS)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(self.network(x[chosen]), labels[chosen]).backward()
            optimizer.step()

    @torch.no_grad()
    def hits(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """(n,) 1 where the class of a picture is recognised, else 0; float64."""
        return (self.network(_planes(pictures).cpu()).argmax(dim=1) == labels.cpu()).double()

    @torch.no_grad()
    def features(self, pictures: Tensor) -> Tensor:
        """(n, d): what the network sees of a picture, so that squared distances are feature distances.

            d(x, x') = sum_l mean_places |f_l(x) / |f_l(x)| - f_l(x') / |f_l(x')||^2

        f_l: the channels at each place after convolution l and its ReLU; maps of more than 14 x 14 places are averaged over
        areas first. That is LPIPS with this network and without learned weights; 0 for equal pictures, 4 at most.

        Source: Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", CVPR 2018, eq. 1.
        """
        maps, x = [], _planes(pictures).cpu()
        for layer in list(self.network)[:4]:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                small = F.adaptive_avg_pool2d(x, (min(x.shape[2], _PLACES), min(x.shape[3], _PLACES)))
                places = small.shape[2] * small.shape[3]
                maps.append(F.normalize(small, dim=1).flatten(1) / math.sqrt(places))
        return torch.cat(maps, dim=1)


def _planes(pictures: Tensor) -> Tensor:
    """(n, channels, height, width) float32."""
    return (pictures[:, None] if pictures.ndim == 3 else pictures.movedim(-1, 1)).float()
