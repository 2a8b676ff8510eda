"""Spectral attack: the main direction in which a batch of embeddings varies is the label."""

from collections.abc import Mapping
from typing import Literal

import torch
from scipy.linalg import LinAlgError, eigh
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.options import options
from vflbench.transcript import Knowledge, View
from vflbench.wire import Kind

_SAFE_RANGE = (1e-12, 1e12)


@options
class Spectral(Attack):
    """Project a batch on the top right singular vector v of its centred activations, at every layer.

        s_i = <x_i - mean, v>

    score: `signed` (as in Algorithm 1: the s_i form two clusters, and v is turned so that the smaller one, the larger one
    for a prior above 1/2, has the higher scores: it is taken for the positive class) or `abs` (|s_i|: positives are the
    outliers; on click data, with a quarter of the rows positive, both classes have long tails and it sees little).

    The rule that the smaller cluster is positive can point the wrong way, and the leak AUC then lies far below 0.5: that
    is as much of a leak, one bit short. Read the two-sided value.

    Source: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022,
    Algorithm 1 and section 5.
    """

    knows = frozenset({Knowledge.EMBEDDINGS, Knowledge.PRIOR})
    scores = Kind.EMBEDDING

    score: Literal["signed", "abs"] = "signed"

    def infer(self, view: View) -> Mapping[str, Tensor]:
        projections = {layer: spectral_projection(x) for layer, x in view.embeddings.items()}
        if self.score == "abs":
            return {layer: s.abs() for layer, s in projections.items()}
        return {layer: point_to_positives(s, view.prior) for layer, s in projections.items()}


def spectral_projection(x: Tensor) -> Tensor:
    """<x_i - mean, v>, v the top eigenvector of the batch covariance; the sign of v is arbitrary.

    x: (n, d). Returns (n,) of x's type. By way of the (d, d) covariance, of which only the top vector is computed, in
    float64: many times faster than an SVD of (n, d). A constant layer gives zeros.
    """
    centred = x - x.mean(dim=0)
    largest = float(centred.abs().max())
    if largest and not _SAFE_RANGE[0] < largest < _SAFE_RANGE[1]:  # squares would leave the range of float32
        return spectral_projection(centred.double() / largest).to(x) * largest
    covariance = (centred.T @ centred).double().cpu()
    alive = covariance.diagonal() > 0  # units that are off for the whole batch say nothing
    top = torch.zeros(x.shape[1], dtype=torch.float64)
    if alive.any():
        top[alive] = _top_eigenvector(covariance[alive][:, alive])
    return centred @ top.to(x)


def _top_eigenvector(covariance: Tensor) -> Tensor:
    """Of a positive semidefinite (d, d) float64 matrix in any units."""
    scaled = (covariance / covariance.diagonal().max()).numpy()
    last = len(scaled) - 1
    try:
        return torch.from_numpy(eigh(scaled, subset_by_index=[last, last], driver="evr")[1][:, 0])
    except LinAlgError:  # it gives up on some ordinary matrices; the slower SVD does not
        return torch.linalg.svd(torch.from_numpy(scaled))[0][:, 0]


def point_to_positives(s: Tensor, prior: float) -> Tensor:
    """s or -s, whichever gives the cluster that is taken for positive the higher values.

    s: (n,), centred. The smaller cluster is taken for positive if prior <= 1/2, else the larger. Two clusters with a share q
    of the rows in the upper one have the skewness (1 - 2q) / sqrt(q (1 - q)), so the sign of the third moment tells which
    is smaller; counting the rows on either side of the mean does too, but the rows near the mean decide it at random.
    """
    upper_is_smaller = (s / s.abs().max().clamp_min(torch.finfo(s.dtype).tiny)).pow(3).sum() > 0
    return s if upper_is_smaller == (prior <= 0.5) else -s
