"""Distance correlation: embeddings that depend as little on the labels as training allows."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from vflbench.defenses.base import LabelDefense
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.options import NonNegativeInt, Ratio, Weight, options


class DependencePenalty:
    """The weight of a penalty on a dependence, which rises linearly from 0 over the steps of a warm-up, and its figures."""

    warmup: NonNegativeInt

    def __post_init__(self) -> None:
        self._steps = self._constant = 0
        self._sum, self._count = 0.0, 0

    def warmed(self, weight: float) -> float:
        """The weight of this step."""
        self._steps += 1
        return weight * min(1.0, self._steps / self.warmup) if self.warmup else weight

    def counts(self, value: float) -> bool:
        """Whether a dependence can be lowered: a batch with a constant side has none, and is counted."""
        if value > 0:
            self._sum, self._count = self._sum + value, self._count + 1
            return True
        self._constant += 1
        return False

    def figures(self) -> dict[str, float]:
        """Constant batches, a party each, and the mean of dCor, or of what stands in its place, of the others."""
        if not self._count + self._constant:
            return {}
        figures = {"constant_batches": self._constant} | ({"dcor": self._sum / self._count} if self._count else {})
        self._constant, self._sum, self._count = 0, 0.0, 0
        return figures


@options
class Dcor(DependencePenalty, LabelDefense):
    """A penalty on the dependence between the embeddings and the labels of a batch. Falls to `directions`, which needs no
    label and reads as much as without a defense. The penalty makes one direction without the label larger and leaves the
    others as they are.

        L = L_c + alpha_d sum_parties log dCor(h, Y),   one term a non-label party,

    with the squared distance correlation dCor (`numerics.distance_correlation`), exact over the whole batch, between all
    that a party sends and the labels (classes, or real numbers).

    dependence: what stands in place of dCor(h, Y). `whitened` is dCor of whitened embeddings, `explained` the share of the
    labels that the embeddings explain linearly, R^2 (`whitened`, `explained_share`). A direction with a large variance and
    without the label lowers neither. Both are ours, and they are no better defense: at equal test AUC, attacks read about as
    much as under the published penalty. After one epoch instead of two, without a penalty, they read no more than under the
    best of these penalties (docs/experiments/strongest_attacks.md).
    ridge: ridge of these two, in units of the embeddings' mean variance. Directions of much less variance don't count.

    alpha_d: weight; 0 is no penalty. statistic: `squared` as published, or its `root`, which other code calls dCor and which
    halves alpha_d under the logarithm. warmup: steps over which the weight rises linearly from 0; published with 0. Without
    a warm-up, a large alpha_d delays learning, because the gradient of the log is large if little is left to hide. A batch
    with constant embeddings or labels has no penalty, and is counted.

    Source: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    alpha_d: Weight = 0.003
    statistic: Literal["squared", "root"] = "squared"
    warmup: NonNegativeInt = 0
    dependence: Literal["published", "whitened", "explained"] = "published"
    ridge: Ratio = 0.1

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """embeddings: one (n, d) a non-label party; y: (n,) classes, or numbers."""
        weight = self.warmed(self.alpha_d)
        if weight == 0:
            return 0.0
        values = [self._value(h, y) for h in embeddings]
        return sum((weight * dcor.log() for dcor in values if self.counts(dcor.item())), 0.0)

    def _value(self, h: Tensor, y: Tensor) -> Tensor:
        if self.dependence == "explained":
            share = explained_share(h, y, self.ridge)
            return share if self.statistic == "squared" else share.sqrt()
        seen = h if self.dependence == "published" else whitened(h, self.ridge)
        return distance_correlation(seen, y, self.statistic)


def whitened(x: Tensor, ridge: float) -> Tensor:
    """(n, d) float64: L^-1 (x_i - mean) with C = L L^T. x: (n, d). ridge: r > 0.

    Distances between the rows are those of any other whitening by C, ZCA among them: |L^-1 (x_i - x_j)|^2 =
    (x_i - x_j)^T C^-1 (x_i - x_j). Rows that are all equal give zeros.
    """
    centred = x.double() - x.double().mean(dim=0)
    factor = _cholesky(centred, ridge)
    return centred if factor is None else torch.linalg.solve_triangular(factor, centred.T, upper=False).T


def explained_share(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """How much of y the rows explain linearly: a float64 scalar in [0, 1), R^2 of least squares as the ridge goes to 0.

        sum_c b_c^T C^-1 b_c / (1/n sum_i |y_i - mean|^2),   b_c = 1/n sum_i (x_i - mean) y_ic

    x: (n, d). y: (n,) integers or booleans are classes, one column each; (n,) or (n, k) floating values. 0 where either is
    constant. Never more than the R^2 of the minimiser of 1/n sum_i |y_i - mean - w (x_i - mean)|^2 + r tr(C0) / d |w|^2.
    """
    if y.is_floating_point():
        columns = (y[:, None] if y.dim() == 1 else y).double()
    else:
        columns = torch.nn.functional.one_hot(y.long().unique(return_inverse=True)[1]).double()
    columns = columns - columns.mean(dim=0)
    centred = x.double() - x.double().mean(dim=0)
    factor, total = _cholesky(centred, ridge), columns.square().sum() / len(columns)
    if factor is None or total == 0:
        return centred.sum() * 0
    b = torch.linalg.solve_triangular(factor, centred.T @ columns / len(x), upper=False)
    return b.square().sum() / total


def _cholesky(centred: Tensor, ridge: float) -> Tensor | None:
    """L (d, d) with C = L L^T; None for rows of zeros."""
    n, d = centred.shape
    covariance = centred.T @ centred / n
    level = covariance.diagonal().mean()
    if not bool(level > 0):
        return None
    return torch.linalg.cholesky(covariance + ridge * level * torch.eye(d, dtype=covariance.dtype, device=covariance.device))
