"""What rows that aren't trained on say about the features behind an embedding, before its network is looked into."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from vflbench.messages.fact import Layers
from vflbench.messages.facts import OwnColumns
from vflbench.numerics.decoder import fit_decoder

ASKED = 4  # times that each row is asked about, each with noise of its own
FEWEST = 8  # known rows to which received messages can be compared
_ERRORS = 3.0  # standard errors by which received messages may fit worse than those of known rows
_DETERMINISTIC = 0.1  # of the mean square that compression changes counts as noise; a rounded number isn't quite a bin
_QUIETEST = 3e-3  # of a received number's mean square; the search doesn't end where the network fits exactly
_LEAST = 1e-3  # of a column's variance, so that the covariance has an inverse


@dataclass(frozen=True)
class AuxiliaryPrior:
    """A normal distribution of the numeric columns of each row.

    mean: (n, k) of each row. whitening: (k, k), L with L L^T the inverse of the covariance, the same for all rows. noise:
    variance of a received number about what the network and the compression make of the true features, relative to the mean
    square length of a row. slopes: layer -> a, the number a for which a f(x) is nearest to what is received.
    """

    mean: Tensor
    whitening: Tensor
    noise: float
    slopes: Mapping[str, float]

    def rows(self, index: slice) -> Self:
        return type(self)(self.mean[index], self.whitening, self.noise, self.slopes)

    def __call__(self, x: Tensor, rows: Tensor) -> Tensor:
        """noise |L^T (x_i - mean_i)|^2, (m,). x: (m, k)."""
        return self.noise * ((x - self.mean[rows]) @ self.whitening).square().sum(dim=1)


def is_larger(misfits: Tensor, usual: Tensor) -> bool:
    """Whether the mean log of misfits (n,) lies more than three standard errors above that of known rows' misfits (m,)."""
    log, others = misfits.clamp_min(1e-12).log(), usual.clamp_min(1e-12).log()
    return bool(log.mean() > others.mean() + _ERRORS * others.std() * (1 / len(log) + 1 / len(others)) ** 0.5)


def auxiliary_prior(
    received: Layers,
    known: OwnColumns,
    answer: Callable[[], Layers],
    network: Callable[[Tensor, Tensor], Layers],
    compressed: Callable[[str, Tensor], Tensor],
    rng: torch.Generator,
    *,
    width: int,
    steps: int,
) -> AuxiliaryPrior | None:
    """The prior D(h), with the covariance of x' - D(h'): D a decoder fitted to one half of the known rows, x', h' the other.

    D's answer is moved towards the mean of the known rows by the share that is best for x', h': a decoder that has learned
    noise by heart answers with that mean. None if what the network makes of D(h) is clearly farther from h than what it
    makes of D(h') is from h': then the known rows are of another distribution than the attacked ones.

    received: layer -> h (n, d). known: x', the columns of m other rows. answer: what the party would send for these, with
    fresh noise. network: the party's. compressed: what the attacker takes an embedding of a layer to become. width, steps:
    of the decoder.
    """
    with torch.no_grad():
        embedded = network(known.numeric, known.categorical)
        sent = {layer: compressed(layer, embedded[layer]) for layer in received}
    answers = [answer() for _ in range(ASKED)]
    asked = torch.cat([_joined(received, layers) for layers in answers])
    numeric, categorical = known.numeric.repeat(ASKED, 1), known.categorical.repeat(ASKED, 1)
    is_fitted = (torch.arange(len(known.numeric), device=numeric.device) % 2 == 0).repeat(ASKED)
    decoder = fit_decoder(asked[is_fitted], numeric[is_fitted], categorical[is_fitted], rng, width=width, steps=steps)
    mean = known.numeric.mean(dim=0)
    steps_taken, steps_due = (decoder(asked)[0] - mean)[~is_fitted].double(), (numeric - mean)[~is_fitted].double()
    share = float((steps_taken * steps_due).sum() / steps_taken.square().sum().clamp_min(1e-30))
    share = min(1.0, max(0.0, share))
    errors = steps_due - share * steps_taken
    floor = _LEAST * numeric.double().var(dim=0, correction=0).mean().clamp_min(1e-6)
    covariance = errors.T @ errors / max(1, len(errors)) + floor * torch.eye(errors.shape[1], device=errors.device)
    whitening = torch.linalg.cholesky(torch.linalg.inv(covariance)).to(numeric.dtype)
    slopes, noises = {}, []
    for layer, h in received.items():
        h_of, f = torch.cat([layers[layer] for layers in answers]).double(), sent[layer].double().repeat(ASKED, 1)
        slopes[layer] = max(0.0, float((h_of * f).sum() / f.square().sum().clamp_min(1e-30)))
        noise = (h_of - slopes[layer] * f).square().mean()
        noise += _DETERMINISTIC * (sent[layer] - embedded[layer]).double().square().mean()
        energy = h.double().square().sum(dim=1).mean().clamp_min(1e-12)
        noises.append(max(float(noise / energy), _QUIETEST / h.shape[1]))

    def guess(h: Tensor) -> OwnColumns:
        numeric, categorical = decoder(h)
        return OwnColumns(mean + share * (numeric - mean), categorical)

    @torch.no_grad()
    def misfits(rows: OwnColumns, h_of: Layers) -> Tensor:
        made = network(rows.numeric, rows.categorical)
        parts = [
            (slopes[layer] * compressed(layer, made[layer]) - h_of[layer]).square().sum(dim=1)
            / h.square().sum(dim=1).mean().clamp_min(1e-12)
            for layer, h in received.items()
        ]
        return torch.stack(parts).sum(dim=0)

    guessed, aside = guess(_joined(received, received)), {layer: h[1::2] for layer, h in answers[0].items()}
    if len(known.numeric) >= 2 * FEWEST and is_larger(
        misfits(guessed, received), misfits(guess(_joined(received, aside)), aside)
    ):
        return None
    return AuxiliaryPrior(guessed.numeric, whitening, max(noises), slopes)


def _joined(received: Layers, layers: Layers) -> Tensor:
    """(n, d) of all layers that are received, side by side."""
    return torch.cat([layers[layer] for layer in received], dim=1)
