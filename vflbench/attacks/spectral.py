"""Spectral attack: the main direction in which a batch of embeddings varies is the label."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.numerics.eigen import top_eigenvectors
from vflbench.options import options
from vflbench.transcript import Knowledge, View
from vflbench.wire import Kind

_SAFE_RANGE = (1e-18, 1e30)  # of sums of squares in float32


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
        projections = spectral_projections(view.embeddings)
        if self.score == "abs":
            return {layer: s.abs() for layer, s in projections.items()}
        return {layer: point_to_positives(s, view.prior) for layer, s in projections.items()}


def spectral_projections(layers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Layer -> <x_i - mean, v>, v the top eigenvector of the batch covariance; the sign of v is arbitrary.

    layers: name -> (n, d). Returns name -> (n,) of the same type. By way of the (d, d) covariances, of which only the top
    vectors are computed, in float64 and together: many times faster than an SVD of (n, d). A constant layer gives zeros.
    """
    centred = {layer: x - x.mean(dim=0) for layer, x in layers.items()}
    top: dict[str, Tensor] = {}
    for width in {x.shape[1] for x in centred.values()}:
        alike = [layer for layer, x in centred.items() if x.shape[1] == width]
        vectors = top_eigenvectors(torch.stack([_scatter(centred[layer]) for layer in alike]))
        top |= dict(zip(alike, vectors, strict=True))
    return {layer: x @ top[layer].to(x) for layer, x in centred.items()}


def _scatter(centred: Tensor) -> Tensor:
    """X^T X (d, d) in float64, of the type's own products where these stay in its range; in any units."""
    scatter = (centred.T @ centred).double()
    if _SAFE_RANGE[0] < float(scatter.diagonal().max()) < _SAFE_RANGE[1]:
        return scatter
    scaled = centred.double() / centred.abs().max().clamp_min(torch.finfo(centred.dtype).tiny)
    return scaled.T @ scaled


def point_to_positives(s: Tensor, prior: float) -> Tensor:
    """s or -s, whichever gives the cluster that is taken for positive the higher values.

    s: (n,), centred. The smaller cluster is taken for positive if prior <= 1/2, else the larger. Two clusters with a share q
    of the rows in the upper one have the skewness (1 - 2q) / sqrt(q (1 - q)), so the sign of the third moment tells which
    is smaller; counting the rows on either side of the mean does too, but the rows near the mean decide it at random.
    """
    upper_is_smaller = (s / s.abs().max().clamp_min(torch.finfo(s.dtype).tiny)).pow(3).sum() > 0
    return s if upper_is_smaller == (prior <= 0.5) else -s
