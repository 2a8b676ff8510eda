"""Confusional autoencoder: a network trains on soft fake labels, and its predictions are decoded."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context, LabelDefense
from vflbench.defenses.label_noise import prior, soft_loss
from vflbench.numerics.optim import AdamSteps
from vflbench.options import Count, Range, Weight, options

_RECONSTRUCTION = 10.0  # weight beside the contrast, which has 1
_STEPS, _ROWS, _RATE = 500, 32, 1e-2  # of training; a row is a random soft label
_STARTS = 5
_SHARPNESS = 40.0  # of a random label: 1 / 0.025
_WIDEST = 1024


@options
class Cae(LabelDefense):
    """Training on soft fake labels that an autoencoder makes from the classes; predictions are decoded. Falls to `direct`,
    which needs no label and reads as much as without a defense, also with discrete gradients.

        L = CE(softmax(logits), E(onehot(y))),   prediction: D(softmax(logits)),
        E, D = argmin  10 CE(y, D(E(y))) - CE(y, softmax(E(y))) - entropy H(E(y)) / K

    E, D: K -> (6 K + 2)^2, 1024 at most -> K, ReLU between, softmax after; trained at the first batch, on random labels that
    are nearly one-hot (softmax of 40 uniform numbers), by Adam, from numbers that the label party draws. The contrast makes
    E(y) unlike y: two classes exchange their places. The entropy makes E(y) soft, while D can still distinguish the classes.
    If a fake label is still largest at its own class, the autoencoder is trained again, five times at most.

    entropy: lambda_2 of the paper; a larger one makes fake labels more alike. discrete: DCAE, whose gradients are rounded as
    well, each number of a message to the nearest of bins + 1 values, equally spaced from mean - 2 deviations to mean + 2
    deviations of all numbers of the message, and those beyond to the ends.

    It claims nothing: a fake label is a function of the class, the same for each row, so gradients are those of another
    labelling of the same classes. Other defenses get the classes as they are, so that label DP before it keeps its
    promise.

    Source: Zou et al., "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", IEEE
    Transactions on Big Data 2022 (a first version: Liu et al., arXiv 2112.05409). Weights and widths are those of the
    authors' code, VFLAIR, which takes the softmax of E(y) once more within the contrast: that bounds it. FATE's, without
    this softmax, has no minimum.
    """

    entropy: Weight = 1.0
    discrete: bool = False
    bins: Annotated[Count, Range(1, 10**6)] = 12

    def __post_init__(self) -> None:
        self._weights: list[Tensor] = []  # of E, then of D: matrix, bias, matrix, bias each

    def labels(self, y: Tensor, logits: Tensor, context: Context) -> Tensor:
        """y: (n,) classes; logits: (n, 1) for two classes, (n, K) for K > 2."""
        if not self._weights:
            seed = int(torch.randint(2**62, (), generator=context.rng, device=context.rng.device))
            classes = max(2, logits.shape[1])
            self._weights = trained(classes, self.entropy, torch.Generator().manual_seed(seed))
        return y

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        onehot = F.one_hot(y, max(2, logits.shape[1])).float()
        return soft_loss(logits, _network(onehot, self._on(logits)[:4]).softmax(dim=1))

    def prediction(self, logits: Tensor) -> Tensor:
        """Logits of the classes; before the first batch, those that it was given."""
        if not self._weights:
            return logits
        decoded = _network(prior(logits).float(), self._on(logits)[4:])
        return decoded[:, 1:] - decoded[:, :1] if logits.shape[1] == 1 else decoded

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        return rounded(g, self.bins) if self.discrete else g

    def _on(self, logits: Tensor) -> list[Tensor]:
        return [weight.to(logits.device) for weight in self._weights]


def trained(classes: int, entropy: float, rng: torch.Generator) -> list[Tensor]:
    """Weights of encoder and decoder, matrix and bias of two layers each: of the first of five starts that confuses and
    decodes every class, else of the last. All numbers that are drawn are rng's.
    """
    onehot, true, width = torch.eye(classes), torch.arange(classes), min((6 * classes + 2) ** 2, _WIDEST)
    shapes = [((width, classes), classes), ((width,), classes), ((classes, width), width), ((classes,), width)]
    for _ in range(_STARTS):
        weights = [(2 * torch.rand(shape, generator=rng) - 1) * inputs**-0.5 for shape, inputs in shapes * 2]
        optimizer = AdamSteps([weight.requires_grad_() for weight in weights], lr=_RATE)
        for step in range(1, _STEPS + 1):
            y = (_SHARPNESS * torch.rand(_ROWS, classes, generator=rng)).softmax(dim=1)
            optimizer.zero_grad()
            confusion(y, weights, entropy).backward()
            optimizer.param_groups[0]["lr"] = _RATE * min(1.0, 2 - 2 * step / _STEPS)
            optimizer.step()
        weights = [weight.detach() for weight in weights]
        fake = _network(onehot, weights[:4]).softmax(dim=1)
        if (fake.argmax(dim=1) != true).all() and (_network(fake, weights[4:]).argmax(dim=1) == true).all():
            break
    return weights


def confusion(y: Tensor, weights: Sequence[Tensor], entropy: float) -> Tensor:
    """What the autoencoder minimises over labels y (n, K)."""
    log_fake = _network(y, weights[:4]).log_softmax(dim=1)
    fake = log_fake.exp()
    reconstruction = -(y * _network(fake, weights[4:]).log_softmax(dim=1)).sum(dim=1).mean()
    contrast = -(y * fake.log_softmax(dim=1)).sum(dim=1).mean()
    return _RECONSTRUCTION * reconstruction - contrast + entropy * (fake * log_fake).mean()


def _network(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Logits (n, K) of one half, encoder or decoder."""
    return F.linear(F.linear(x, weights[0], weights[1]).relu(), weights[2], weights[3])


def rounded(g: Tensor, bins: int) -> Tensor:
    """Each number to the nearest of bins + 1 values, equally spaced from mean - 2 s to mean + 2 s, s their deviation."""
    middle, deviation = g.mean(), g.std(correction=0)
    if deviation == 0:
        return g
    low, step = middle - 2 * deviation, 4 * deviation / bins
    return low + ((g - low) / step).round().clamp(0, bins) * step
