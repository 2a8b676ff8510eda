"""Conditional mixture attack: in each class the gradient is another function of the embedding, with noise of its own."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Scores
from vflbench.attacks.residual_sum import CutRows
from vflbench.messages.facts import ClassShares, Embeddings, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import leading_components
from vflbench.options import Rows, options

_RARER, _LEAST_ROWS = 256, 64  # rows of the rarer class in a window; rows of both in an epoch
_COMPONENTS, _ROWS_A_COMPONENT = 16, 16  # of either message, at most; rows of the rarer class for each
_ITERATIONS, _STILL = 15, 1e-3  # at most; the mean change of a row's probability at which they end
_ADDED = 1e-9  # of the mean square, added to each
_CLEARLY = 0.01  # nats a row by which a split must be better than one from a likelier start


@dataclass(frozen=True)
class Window:
    """Rows that were met one after the other: embeddings h (n, d) and gradients g (n, d).

    centers, axes: of h and g, (d,) and (d, k - 1) or (d, r). x: (k + r, n), the rows in these coordinates.
    """

    messages: tuple[Tensor, Tensor]
    centers: tuple[Tensor, ...]
    axes: tuple[Tensor, ...]

    @classmethod
    def of(cls, h: Tensor, g: Tensor, count: int) -> Self:
        """h, g: (n, d) float64, embeddings and gradients. count: their components, at most."""
        axes, centers = [], (h.mean(dim=0), g.mean(dim=0))
        for message, center in zip((h, g), centers, strict=True):
            spreads, vectors = leading_components(message - center, min(count, message.shape[1]))
            axes.append(vectors[:, spreads > 0] / spreads[spreads > 0])
        return cls((h, g), centers, tuple(axes))

    @cached_property
    def x(self) -> Tensor:
        return self.coordinates(self)

    def coordinates(self, of: "Window") -> Tensor:
        """x (k + r, n), u over z, of the rows of a window: a 1 and whitened embeddings u; whitened gradients z."""
        t, z = (axes.T @ (rows - at).T for rows, at, axes in zip(of.messages, self.centers, self.axes, strict=True))
        return torch.cat([torch.ones_like(z[:1]), t, z])


@dataclass(frozen=True)
class _Split:
    """A window in two classes, negatives first: z_i ~ N(B^T u_i, S), S = R R^T.

    whiteners: (2, r, k + r), W x_i = R^-1 (z_i - B^T u_i). log_roots: (2, 1), log |R|. ratio: (n,) log-likelihood ratios.
    quality: in nats a row.
    """

    window: Window
    whiteners: Tensor
    log_roots: Tensor
    ratio: Tensor
    quality: float

    @classmethod
    def of(cls, window: Window, ratio: Tensor, share: float) -> Self:
        """By expectation-maximisation. ratio: (n,) to start from. share: of positives, in (0, 1).

        With moments M_y = sum_i w_i x_i x_i^T / sum_i w_i = L L^T, the last r rows of L^-1 are W_y: what is left of z when u
        has explained its part.
        """
        x, k = window.x, 1 + window.axes[0].shape[1]
        identity = torch.eye(len(x), dtype=x.dtype)
        shares = x.new_tensor([[1 - share], [share]]).log()
        positive = torch.sigmoid(shares[1] - shares[0] + ratio)
        for _ in range(_ITERATIONS):
            moments = torch.stack([(x * (1 - positive)) @ x.T, (x * positive) @ x.T])
            moments = moments / moments[:, :1, :1].clamp_min(1e-9)
            roots = _root(moments)
            whiteners = torch.linalg.solve_triangular(roots, identity, upper=False)[:, k:]
            log_roots = _log_diagonal(roots[:, k:, k:])
            densities = _log_densities(whiteners, log_roots, x)
            ratio = densities[1] - densities[0]
            before, positive = positive, torch.sigmoid(shares[1] - shares[0] + ratio)
            if float((positive - before).abs().mean()) < _STILL:
                break
        without_u = moments[:, k:, k:] - moments[:, k:, :1] @ moments[:, :1, k:]
        gains = (_log_diagonal(_root(without_u)) - log_roots)[:, 0]
        likelihood = (shares + densities).logsumexp(dim=0).mean()
        return cls(window, whiteners, log_roots, ratio, float(likelihood + gains[0].lerp(gains[1], positive.mean())))

    def log_ratio(self, window: Window) -> Tensor:
        """(n,) of the rows of another window, under the distributions of this one."""
        negative, positive = _log_densities(self.whiteners, self.log_roots, self.window.coordinates(window))
        return positive - negative


def _root(moments: Tensor) -> Tensor:
    """(2, d, d) lower triangular. A little is added to the diagonals, so that moments of low rank have a root."""
    added = _ADDED * moments.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True) + 1e-12
    return torch.linalg.cholesky(moments + torch.diag_embed(added.expand(moments.shape[:2])))


def _log_diagonal(roots: Tensor) -> Tensor:
    """(2, 1), the logarithm of each determinant."""
    return roots.diagonal(dim1=1, dim2=2).log().sum(dim=1, keepdim=True)


def _log_densities(whiteners: Tensor, log_roots: Tensor, x: Tensor) -> Tensor:
    """(2, n) up to a constant. x: (k + r, n)."""
    white = (whiteners.flatten(0, 1) @ x).unflatten(0, whiteners.shape[:2])
    return -0.5 * white.square().sum(dim=1) - log_roots


def best_split(splits: list[_Split]) -> _Split:
    """The first one, or a clearly better one: with equal shares, some differ in the classes' names alone."""
    return max(splits, key=lambda it: it.quality + _CLEARLY * (it is splits[0]))


@options
class ConditionalMixture(CutRows):
    """Score each row by the log-likelihood ratio of its gradients at the cut layer, given its embeddings, in a mixture of
    two regressions.

        s_i = sum_e log N(z_ie; B_1^T u_ie, S_1) / N(z_ie; B_0^T u_ie, S_0)

    z: the gradient along its 16 first principal components, whitened. u: a 1 and the embedding along its 16, whitened. A
    window has 256 rows of the rarer class, and an epoch at least one window; fewer rows have fewer components. B_y and S_y
    of a window are the most likely ones (expectation-maximisation with the classes' shares, in at most 15 steps).

    It is the adaptive attack on marvell with noise=full, which makes the classes' gradients alike as long as nothing else is
    known of a row. But g = (p - y) J with noise, and p and J are functions of the embedding: given that, the class without
    noise is nearly exact.

    In each window it starts from the split of the window before, from what earlier epochs say about its rows, and from both
    signs of the gradient along its leading direction; and, once the epoch is over, from the split of the window after. The
    best result has the largest sum of log likelihood and of what u adds to it,

        1/n sum_i log sum_y q_y N(z_i; B_y^T u_i, S_y) + sum_y q_y / 2 log |S_y without u| / |S_y|,

    as the likelihood alone is larger for a split in long and short gradients, which u doesn't predict. With equal shares, a
    sign is a guess, the same one in all windows; without noise it may be wrong with other shares too.

    rows: number of rows that it follows through the run. It needs as many as possible: those of a window are met one after
    the other, under one network. Memory: 8 bytes for each number, two layers' widths for each row within an epoch.

    Source: ours; expectation-maximisation for regressions is that of DeSarbo and Cron, "A maximum likelihood methodology
    for clusterwise linear regression", 1988.
    """

    rows: Rows = 65_536
    threat = Threat(knows={Embeddings, Gradients, ClassShares})

    def epoch(self, view: View) -> Answers:
        self.end_epoch()
        asked = view.ids.cpu()[torch.isin(view.ids.cpu(), self._ids)]
        if not len(asked):
            return None
        return Scores(asked.to(view.ids.device), {self._layer: self._tables["ratios"][self.places(asked), 0]})

    def join(self, met: list[list[Tensor]]) -> None:
        ids, g, h = (torch.cat(values) for values in zip(*met, strict=True))
        rarer = min(self._prior, 1 - self._prior) * len(ids)
        if len(ids) < _LEAST_ROWS or rarer <= 0 or not bool(g.any()):
            return
        self.add(ids, {"ratios": g.new_zeros(len(ids), 1)})
        windows = max(1, round(rarer / _RARER))
        count = min(_COMPONENTS, math.ceil(rarer / windows / _ROWS_A_COMPONENT))
        splits: list[_Split] = []
        for of, of_h, of_g in zip(*(values.tensor_split(windows) for values in (ids, h, g)), strict=True):
            window = Window.of(of_h, of_g, count)
            before = self._tables["ratios"][self.places(of), 0]
            along = window.x[1 + window.axes[0].shape[1] :][:1].sum(dim=0)
            guesses = [one.log_ratio(window) for one in splits[-1:]] + [before] * bool(before.any()) + [along, -along]
            splits.append(best_split([_Split.of(window, guess, self._prior) for guess in guesses]))
        for at in reversed(range(windows - 1)):
            window = splits[at].window
            splits[at] = best_split([splits[at], _Split.of(window, splits[at + 1].log_ratio(window), self._prior)])
        self.add(ids, {"ratios": torch.cat([one.ratio for one in splits])[:, None]})
