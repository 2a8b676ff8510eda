"""The rows of all parties together under a normal prior: the most likely ones, given everything that was received."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.inversion_prior import ASKED, FEWEST, is_larger
from vflbench.messages.fact import Layers
from vflbench.messages.facts import OwnColumns
from vflbench.messages.peer_facts import PeerModel

_LEAST = 1e-4  # of a received number's variance: the noise that it is taken to have at least
_SILENT = 1e-6  # of the mean variance: a number that varies less than that on known rows says nothing
_STEPS, _PAIRS = 300, 20  # of the quasi-Newton search
_ASIDE = 64  # known rows, at most a fifth of them, to which received messages are compared
_WIDTHS = (1.0, 2.0)  # of the prior, in its own standard deviations


@dataclass(frozen=True)
class NormalPrior:
    """x = clip(mean + root z, 0, 1), z ~ N(0, I). mean: (k,). root: (k, k), of the covariance: its principal directions."""

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, known: Tensor) -> Self:
        """Of known rows (m, k), m > 1; their covariance is shrunk to a multiple of I (Ledoit and Wolf, 2004)."""
        from sklearn.covariance import ledoit_wolf

        mean = known.double().mean(dim=0)
        covariance, _ = ledoit_wolf((known.double() - mean).cpu().numpy(), assume_centered=True)
        variances, directions = torch.linalg.eigh(torch.from_numpy(covariance).to(known.device))
        return cls(mean.to(known.dtype), (directions * variances.clamp_min(0).sqrt()).to(known.dtype))

    def __call__(self, z: Tensor) -> Tensor:
        """(n, k) features at these coordinates."""
        return (self.mean + z @ self.root.T).clamp(0, 1)

    def times(self, width: float) -> Self:
        """The same with standard deviations that are so many times as large."""
        return type(self)(self.mean, width * self.root)


@dataclass(frozen=True)
class Channel:
    """What becomes of an embedding on its way: h = slope f + shift + e, e ~ N(0, C).

    slope, shift: (d,), one for each number. whitening: (d, d), L with L L^T the inverse of C. Clipping, rounding and leaving
    out are taken as the linear map nearest to them and an error (Bussgang).
    """

    slope: Tensor
    shift: Tensor
    whitening: Tensor

    @classmethod
    def of(cls, f: Tensor, h: Tensor) -> Self:
        """Fitted to what a network makes of m known rows, f (m, d), and what was sent for them, h (m, d).

        Slopes are shrunk towards 0 together, by 1 - (d + 2 sqrt(2 d)) / sum_j t_j^2, t_j the slope over its standard error:
        where chance alone would give such slopes, all are 0, and nothing is read into the messages. A number that is equal
        in all known rows takes the mean slope of the others.
        """
        from sklearn.covariance import ledoit_wolf

        f, h = f.double(), h.double()
        f_mean, h_mean = f.mean(dim=0), h.mean(dim=0)
        variance = (f - f_mean).square().mean(dim=0)
        speaks = variance > (_SILENT * variance.mean()).clamp_min(1e-12)
        variance = torch.where(speaks, variance, 1.0)
        slope = torch.where(speaks, ((f - f_mean) * (h - h_mean)).mean(dim=0) / variance, 0.0)
        errors = h - h_mean - slope * (f - f_mean)
        squared_t = slope.square() * variance * len(f) / errors.square().mean(dim=0).clamp_min(1e-30)
        d = float(speaks.sum())
        slope = slope * max(0.0, 1 - (d + 2 * (2 * d) ** 0.5) / max(float(squared_t.sum()), 1e-30))
        slope = torch.where(speaks, slope, slope[speaks].mean() if speaks.any() else 0.0)
        errors = h - h_mean - slope * (f - f_mean)
        covariance = torch.from_numpy(ledoit_wolf(errors.cpu().numpy(), assume_centered=True)[0]).to(f.device)
        floor = _LEAST * (h - h_mean).square().mean().clamp_min(1e-12)
        covariance += floor * torch.eye(len(slope), dtype=f.dtype, device=f.device)
        whitening = torch.linalg.cholesky(torch.linalg.inv(covariance))
        return cls(*(part.float() for part in (slope, h_mean - slope * f_mean, whitening)))


@dataclass(frozen=True)
class MostLikely:
    """x: (n, k). energy: (n,), the least value of the objective; for linear f it is chi-squared with as many degrees of
    freedom as messages have numbers, however noisy they are."""

    x: Tensor
    energy: Tensor


def most_likely(h: Tensor, embed: Callable[[Tensor], Tensor], prior: NormalPrior, channel: Channel) -> MostLikely:
    """The x (n, k) that are most likely behind the messages h (n, d), in the coordinates of the prior:

        z_i = argmin_z |L^T (h_i - slope f(x(z)) - shift)|^2 + |z|^2

    embed: f, differentiable. Messages that say nothing leave z = 0, the mean of the prior. By L-BFGS.
    """
    from scipy.optimize import minimize

    shape = len(h), prior.root.shape[1]

    def energies(z: Tensor) -> Tensor:
        errors = (h - channel.slope * embed(prior(z)) - channel.shift) @ channel.whitening
        return errors.square().sum(dim=1) + z.square().sum(dim=1)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.from_numpy(flat).to(h).view(shape).requires_grad_()
        value = energies(z).sum()
        (gradient,) = torch.autograd.grad(value, z)
        return value.item(), gradient.double().flatten().cpu().numpy()

    options = {"maxiter": _STEPS, "maxcor": _PAIRS, "ftol": 1e-9}
    found = minimize(objective, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=options)
    z = torch.from_numpy(found.x).to(h).view(shape)
    with torch.no_grad():
        return MostLikely(prior(z), energies(z))


def believable(
    h: Tensor, aside: Tensor, embed: Callable[[Tensor], Tensor], prior: NormalPrior, channel: Channel
) -> Tensor | None:
    """The most likely x (n, k) behind h (n, d), under the prior as far as h bears it out; None if it doesn't.

    aside: (m, d) messages of rows that prior and channel aren't fitted to. Where known rows are of another distribution than
    that of the attacked ones, messages have a larger mean log energy than those of rows set aside, by more than three
    standard errors. Then the standard deviations of the prior are doubled; None if messages still contradict it.
    """
    if len(aside) < FEWEST:
        return most_likely(h, embed, prior, channel).x
    usual = most_likely(aside, embed, prior, channel).energy
    for width in _WIDTHS:
        answer = most_likely(h, embed, prior.times(width), channel)
        if not is_larger(answer.energy, usual):
            return answer.x
    return None


def jointly(
    received: Mapping[str, Layers],
    models: Mapping[str, PeerModel],
    known: Mapping[str, Tensor],
    answer: Callable[[], Mapping[str, Layers]],
) -> dict[str, OwnColumns] | None:
    """The most likely numeric columns of every party, with a prior and a channel fitted to known rows; None if the messages
    are none of rows like these (`believable`).

    received: party -> layer -> h (n, d). known: party -> its columns (m, k) of the same m other rows. answer: what the
    parties would send for these, with fresh noise.
    """
    widths = [x.shape[1] for x in known.values()]

    def embed(x: Tensor) -> Tensor:
        no_ids = torch.empty(len(x), 0, dtype=torch.int32, device=x.device)
        parts = x.split(widths, dim=1)
        return _joined(received, {p: models[p].network(part, no_ids) for p, part in zip(known, parts, strict=True)})

    rows = torch.cat(list(known.values()), dim=1)
    fitted = len(rows) - min(_ASIDE, len(rows) // 5)
    with torch.no_grad():
        sent = [_joined(received, answer()) for _ in range(ASKED)]
        embedded = embed(rows[:fitted]).repeat(ASKED, 1)
        channel = Channel.of(embedded, torch.cat([h[:fitted] for h in sent]))
    x = believable(_joined(received, received), sent[0][fitted:], embed, NormalPrior.of(rows[:fitted]), channel)
    if x is None:
        return None
    no_ids = torch.empty(len(x), 0, dtype=torch.int32, device=x.device)
    return {p: OwnColumns(part, no_ids) for p, part in zip(known, x.split(widths, dim=1), strict=True)}


def _joined(received: Mapping[str, Layers], layers: Mapping[str, Layers]) -> Tensor:
    """(n, d) of all parties and layers that are received, side by side."""
    return torch.cat([layers[party][layer].float() for party, sent in received.items() for layer in sent], dim=1)
