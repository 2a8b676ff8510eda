"""Conditional mixture attack: in each class the gradient is another function of the embedding, with noise of its own."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Scores
from vflbench.attacks.mixture import ClassNormal
from vflbench.attacks.residual_sum import CutRows
from vflbench.attacks.rows import with_rows
from vflbench.messages.facts import ClassShares, Embeddings, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import leading_components
from vflbench.options import Rows, options

_RARER, _LEAST_ROWS = 256, 64  # rows of the rarer class in a window; rows of both in an epoch
_COMPONENTS, _ROWS_A_COMPONENT = 16, 16  # of either message, at most; rows of the rarer class for each
_ITERATIONS = 15
_CLEARLY = 0.01  # nats a row by which a split must be better than one from a likelier start


@dataclass(frozen=True)
class Window:
    """Rows that were met one after the other, as z (n, r), whitened gradients, and u (n, k), a 1 and whitened embeddings.

    messages: gradients and embeddings. centers, axes: of each of them, (d,) and (d, r) or (d, k - 1).
    """

    messages: tuple[Tensor, Tensor]
    centers: tuple[Tensor, ...]
    axes: tuple[Tensor, ...]

    @classmethod
    def of(cls, g: Tensor, h: Tensor, count: int) -> Self:
        """g, h: (n, d) float64, gradients and embeddings. count: their components, at most."""
        axes, centers = [], (g.mean(dim=0), h.mean(dim=0))
        for x, center in zip((g, h), centers, strict=True):
            spreads, vectors = leading_components(x - center, min(count, x.shape[1]))
            axes.append(vectors[:, spreads > 0] / spreads[spreads > 0])
        return cls((g, h), centers, tuple(axes))

    def coordinates(self, of: "Window") -> tuple[Tensor, Tensor]:
        """z and u of the rows of a window, in the coordinates of this one."""
        z, t = ((x - at) @ axes for x, at, axes in zip(of.messages, self.centers, self.axes, strict=True))
        return z, torch.nn.functional.pad(t, (1, 0), value=1.0)


@dataclass(frozen=True)
class _Split:
    """A window in two classes. normals: of negatives and positives. ratio: (n,). quality: in nats a row."""

    window: Window
    normals: tuple[ClassNormal, ClassNormal]
    ratio: Tensor
    quality: float

    @classmethod
    def of(cls, window: Window, guess: Tensor, share: float) -> Self:
        """By expectation-maximisation. guess: (n,) log-likelihood ratios to start from. share: of positives, in (0, 1)."""
        (z, u), ratio = window.coordinates(window), guess
        shares = z.new_tensor([1 - share, share]).log()[:, None]
        for _ in range(_ITERATIONS):
            positive = torch.sigmoid(shares[1] - shares[0] + ratio)
            weights = 1 - positive, positive
            normals = ClassNormal.fitted(z, weights[0], u), ClassNormal.fitted(z, weights[1], u)
            densities = torch.stack([normal.log_density(z, u) for normal in normals])
            ratio = densities[1] - densities[0]
        quality = float((shares + densities).logsumexp(dim=0).mean())
        for normal, of_class in zip(normals, weights, strict=True):
            without_u = ClassNormal.fitted(z, of_class)
            quality += float(of_class.mean() * (without_u.root.diagonal() / normal.root.diagonal()).log().sum())
        return cls(window, normals, ratio, quality)

    def log_ratio(self, window: Window) -> Tensor:
        """(n,) of the rows of another window, under the distributions of this one."""
        z, u = self.window.coordinates(window)
        return self.normals[1].log_density(z, u) - self.normals[0].log_density(z, u)


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
    of a window are the most likely ones (expectation-maximisation, with the classes' shares).

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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prior = 0.0
        self._ids = torch.empty(0, dtype=torch.int64)  # sorted
        self._sums = {"ratios": torch.empty(0, 1, dtype=torch.float64)}  # (n, 1)

    def keep(self, view: View, g: Tensor) -> list[Tensor]:
        """Ids (b,), gradients (b, d), embeddings (b, d)."""
        self._prior = view[ClassShares].positive
        g, h = g.double(), view[Embeddings].layers[self._layer].cpu().double()
        return [view.ids.cpu(), g / g.square().sum(dim=1).mean().sqrt().clamp_min(1e-300), h]

    def epoch(self, view: View) -> Answers:
        self.end_epoch()
        asked = view.ids.cpu()[torch.isin(view.ids.cpu(), self._ids)]
        scores = self._sums["ratios"][torch.searchsorted(self._ids, asked), 0]
        return Scores(asked.to(view.ids.device), {self._layer: scores}) if len(asked) else None

    def join(self, met: list[list[Tensor]]) -> None:
        ids, g, h = (torch.cat(values) for values in zip(*met, strict=True))
        rarer = min(self._prior, 1 - self._prior) * len(ids)
        if len(ids) < _LEAST_ROWS or rarer <= 0 or not bool(g.any()):
            return
        self._ids, self._sums = with_rows(self._ids, self._sums, ids)
        windows = max(1, round(rarer / _RARER))
        count = min(_COMPONENTS, math.ceil(rarer / windows / _ROWS_A_COMPONENT))
        splits: list[_Split] = []
        for of, of_g, of_h in zip(*(values.tensor_split(windows) for values in (ids, g, h)), strict=True):
            window = Window.of(of_g, of_h, count)
            before = self._sums["ratios"][torch.searchsorted(self._ids, of), 0]
            along = window.coordinates(window)[0][:, :1].sum(dim=1)
            guesses = [one.log_ratio(window) for one in splits[-1:]] + [before] * bool(before.any()) + [along, -along]
            splits.append(best_split([_Split.of(window, guess, self._prior) for guess in guesses]))
        for at in reversed(range(windows - 1)):
            window = splits[at].window
            splits[at] = best_split([splits[at], _Split.of(window, splits[at + 1].log_ratio(window), self._prior)])
        ratios = torch.cat([one.ratio for one in splits])
        self._sums["ratios"].index_add_(0, torch.searchsorted(self._ids, ids), ratios[:, None])
