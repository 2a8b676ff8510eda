"""Remainder attack: who has noise where no gradient is?"""

import math
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.mixture import fit_two_normals
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import eigenvectors
from vflbench.options import Number, options

_ITERATIONS = 5  # of the fits among which the rule chooses
_ROWS = 512  # of a batch, spread evenly, that the rule for the rank looks at
_ROWS_A_COLUMN = 4  # of the rarer class, for which covariances are fitted
_FITTED = 2048  # rows, at most, to which they are fitted, if these are enough
_SURE, _STEPS = 3.0, 4  # nats for a standard deviation of the length; steps from there
_ADDED = 1e-6  # of the mean variance, added to each: a covariance of low rank has an inverse
_GROWTH = 1.25  # from one rank that it tries to the next
_MEMORY = 0.5  # weight of the last batch's gains beside this one's


@options
class Remainder(Attack):
    """Score each row by the length of what remains of its gradient outside the first r singular directions of the batch.

        s_i = -|g_i - V V^T g_i|_2,   V (d, r): the top right singular vectors of G (n, d), not centred

    Marvell gives isotropic noise to one class only, and real gradients have low rank. So rows with noise in directions
    without gradients belong to that class. With its optimum these are the negatives, whose gradients vary less, in all
    batches but the first few; hence the sign.

    rank: r, or `auto`. The logarithms t_i = log |g_i - V V^T g_i|^2 then form two clusters with the shares of the classes
    if r is right: too few directions leave gradient in the remainder of all rows, too many take the noise away. Of

        r in {1, 2, ...} in steps of about a quarter up to min(3 d / 4, n / 2),   q in {1 - p, p},

    with p the share of positives, the pair is taken for which two normal distributions, the upper with share q, gain most
    likelihood over one (`mixture.TwoNormals`). q = p says that positives have the noise; the sign is then +. At p = 1/2
    the shares say nothing, and the sign is that of the formula. For q, the gains of earlier batches count as well, each with
    half the weight of the next. A rank that is given is lowered to d - 1.

    Narrow layers, with d <= n min(p, 1 - p) / 4, have few directions without gradients. There, with `auto` only, the score
    is a starting point: a normal distribution with a covariance of its own is fitted to each class (`log_ratio_of_normals`),
    and s_i is the log-likelihood ratio. There it reads more than the length.

    Layers of a single unit, or with zero gradients only, are left out: they have no remainder.

    Source: ours; the singular directions are those of Sun et al., 2022 (attack=spectral), of which it takes the others.
    """

    rank: Literal["auto"] | Number = "auto"
    threat = Threat(knows={Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._gains: dict[str, Tensor] = {}  # layer -> (2,), where negatives and where positives have the noise

    def batch(self, view: View) -> Scores:
        prior = view[ClassShares].positive
        alive = {layer: g[:, (g != 0).any(dim=0)] for layer, g in view[Gradients].layers.items()}
        return Scores(view.ids, {layer: self._scores(layer, g, prior) for layer, g in alive.items() if min(g.shape) > 1})

    def _scores(self, layer: str, g: Tensor, prior: float) -> Tensor:
        """g: (n, d), n and d above 1, not all zeros. prior: the share of positives."""
        ranks = ranks_to_try(*g.shape) if self.rank == "auto" else [min(self.rank, g.shape[1] - 1)]
        t = log_remainders(g, ranks)
        if not 0 < prior < 1:
            return -t[0]
        looked_at = t[:, torch.linspace(0, len(g) - 1, min(len(g), _ROWS), device=g.device).long()]
        gains = torch.stack([fit_two_normals(looked_at, share, _ITERATIONS).gain for share in (1 - prior, prior)])
        by_class = gains.amax(dim=1) + _MEMORY * self._gains.get(layer, torch.zeros(2)).to(gains)
        self._gains[layer] = by_class
        scores = -t[gains[0].argmax()] if bool(by_class[0] >= by_class[1]) else t[gains[1].argmax()]
        least = math.ceil(_ROWS_A_COLUMN * g.shape[1] / min(prior, 1 - prior))  # rows of both classes
        if self.rank != "auto" or len(g) < least:
            return scores
        guess = (scores - scores.mean()) / scores.std(correction=0).clamp_min(1e-30)
        return log_ratio_of_normals(g.double(), _SURE * guess, prior, _STEPS, max(least, _FITTED))


def ranks_to_try(n: int, d: int) -> list[int]:
    """1, 2, 3, ..., then in steps of a quarter, up to min(3 d / 4, n / 2). n rows of d coordinates, both above 1."""
    most = max(1, min(3 * d // 4, n // 2))
    ranks = [1]
    while ranks[-1] < most:
        ranks.append(min(most, max(ranks[-1] + 1, round(ranks[-1] * _GROWTH))))
    return ranks


def log_remainders(g: Tensor, ranks: list[int]) -> Tensor:
    """(k, n): log |g_i - V V^T g_i|^2 for V (d, r) the top r right singular vectors of g, for each of k ranks r < d.

    g: (n, d) of a floating type, in any units. Returns float64. A row without a remainder counts as the least one above
    rounding.
    """
    scaled = g / g.abs().max()
    v = eigenvectors(scaled.double().T @ scaled.double())[1]
    outside = torch.arange(g.shape[1], device=g.device)[:, None] >= torch.tensor(ranks, device=g.device)  # (d, k)
    parts = (scaled @ v.to(g)).square()
    rest = (parts @ outside.to(g)).T.double()
    rounding = parts.sum(dim=1).max() * torch.finfo(g.dtype).eps ** 2
    return rest.clamp_min(float(rounding)).log()


def log_ratio_of_normals(x: Tensor, guess: Tensor, share: float, iterations: int, fitted: int = 2048) -> Tensor:
    """log N(x_i; m1, S1) / N(x_i; m0, S0), the most likely means and covariances after steps of expectation-maximisation.

    x: (n, d) float64, in any units. guess: (n,), log-likelihood ratios to start from. share: of class 1, in (0, 1).
    fitted: rows, spread evenly, to which both are fitted, at most. Returns (n,), up to a constant. A row's constant
    coordinates add nothing.
    """
    spread = x.std(dim=0, correction=0)
    unit = (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    places = torch.linspace(0, len(x) - 1, min(len(x), fitted), device=x.device).long()
    prior, sample, ratio = math.log(share / (1 - share)), unit[places], guess[places]
    for step in range(iterations):
        weights, asked = torch.sigmoid(prior + ratio), sample if step + 1 < iterations else unit
        of_1, of_0 = (_log_density(sample, of, asked) for of in (weights, 1 - weights))
        ratio = of_1 - of_0
    return ratio


def _log_density(x: Tensor, weights: Tensor, asked: Tensor) -> Tensor:
    """(n,) up to a constant, of other rows under the most likely normal distribution of weighted rows.

    x: (m, d) float64. weights: (m,). asked: (n, d).
    """
    weights = weights / weights.sum().clamp_min(1e-9)
    mean = weights @ x
    centred = x - mean
    covariance = centred.T @ (centred * weights[:, None])
    covariance.diagonal().add_(_ADDED * covariance.diagonal().mean() + 1e-12)
    root = torch.linalg.cholesky(covariance)
    squares = torch.linalg.solve_triangular(root, (asked - mean).T, upper=False).square().sum(dim=0)
    return -0.5 * squares - root.diagonal().log().sum()
