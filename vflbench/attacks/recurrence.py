"""Recurrence attack: whose gradients lie along directions that come back?"""

from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.mixture import fit_two_normals
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import eigenvectors, top_eigenvector
from vflbench.options import Number, options

_RANKS = (4, 8, 12, 16, 24, 32)
_NEAREST = 4  # rows that count for a score
_COMPARED = 1024  # rows of a batch, spread evenly, that each is compared with
_ITERATIONS = 5  # of the fits among which the rule chooses
_LEAST_ROWS = 16
_RARE = 1e-9  # of 1 - |cos|: rows that are the same
_NOTHING = 1e-12  # of the largest variance: what is below is rounding
_MEMORY = 0.9  # weight of the last batch's gains beside this one's


@options
class Recurrence(Attack):
    """Score each row by how close other rows come to the line of its gradient, outside the leading direction v of the batch.

        s_i = - mean_j log(1 - |cos(z_i, z_j)|),   over the four rows j of the batch that come closest,
        z = W^T (g - v v^T g),   W: the first r principal directions of what is left of the batch, whitened

    The gradients of a network take few directions: they are (p - y) J, with one J for each set of active units, and the same
    J recurs in other rows. Noise doesn't recur. If only one class has noise outside v, as with marvell's noise=full, the
    rows that recur are those of the other class, although the covariances of both are equal.

    rank: r, or `auto`: of 4, 8, ..., 32 the one at which two normal distributions of s, whose upper one has the share of
    positives or of negatives, gain most likelihood over one (`mixture.TwoNormals`). Which of the shares gains more also
    says which class recurs, with a given rank too. The gains of earlier batches count as well, each with 0.9 of the weight
    of the next. At a prior of 1/2 the shares say nothing, and the attack assumes that positives recur.

    Layers with fewer than three coordinates, batches of fewer than 16 rows, and gradients on one line are left out.

    Source: ours.
    """

    rank: Literal["auto"] | Number = "auto"
    threat = Threat(knows={Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._gains: dict[str, Tensor] = {}  # layer -> (2, ranks), where positives and where negatives recur

    def batch(self, view: View) -> Scores:
        prior, scores = view[ClassShares].positive, {}
        for layer, g in view[Gradients].layers.items():
            rest = off_the_leading_direction(g) if g.shape[1] > 2 and len(g) >= _LEAST_ROWS else None
            if rest is not None and 0 < prior < 1:
                scores[layer] = self._scores(layer, rest, prior)
        return Scores(view.ids, scores)

    def _scores(self, layer: str, rest: Tensor, prior: float) -> Tensor:
        s = recurrences(rest, _RANKS if self.rank == "auto" else (self.rank,))
        gains = torch.stack([fit_two_normals(s, share, _ITERATIONS).gain for share in (prior, 1 - prior)])
        gains = gains + _MEMORY * self._gains.get(layer, torch.zeros_like(gains)).to(gains)
        self._gains[layer] = gains
        positives, negatives = gains.amax(dim=1).tolist()
        return s[gains[0].argmax()] if positives >= negatives else -s[gains[1].argmax()]


def off_the_leading_direction(g: Tensor) -> Tensor | None:
    """(n, d) float64, what is left of each row of g (n, d) without its part along the top singular vector, not centred.

    None where nothing but rounding is left. In units of the largest entry.
    """
    if not bool(g.any()):
        return None
    scaled = g.double() / g.abs().max()
    v = top_eigenvector(scaled.T @ scaled)
    rest = scaled - torch.outer(scaled @ v, v)
    rounding = torch.finfo(g.dtype).eps * scaled.norm()
    return rest if bool(rest.norm() > rounding) else None


def recurrences(rest: Tensor, ranks: tuple[int, ...]) -> Tensor:
    """(k, n) float64: s of each row, at each of k ranks. rest: (n, d), off the leading direction. Higher ranks than that of
    the rows count as it.
    """
    values, vectors = eigenvectors(rest.T @ rest / len(rest))
    most = int((values > _NOTHING * values[0]).sum())
    compared = torch.linspace(0, len(rest) - 1, min(len(rest), _COMPARED), dtype=torch.float64, device=rest.device).long()
    itself = torch.arange(len(rest), device=rest.device)[:, None] == compared
    scores = []
    for r in (min(r, most) for r in ranks):
        z = torch.nn.functional.normalize(rest @ (vectors[:, :r] / values[:r].sqrt()), dim=1).float()
        closeness = (z @ z[compared].T).abs_().masked_fill_(itself, 0)
        nearest = closeness.topk(_NEAREST, dim=1).values.double()
        scores.append(-(1 - nearest).clamp_min(_RARE).log().mean(dim=1))
    return torch.stack(scores)
