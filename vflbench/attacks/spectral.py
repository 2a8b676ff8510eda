"""Spectral attack: a batch of embeddings varies most along the label."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import MESSAGE_FACTS, Attack, Scores, message_threat
from vflbench.messages.facts import ClassShares
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import leading_components, without_loudness
from vflbench.options import Number, options


@options
class Spectral(Attack):
    """Project a batch on a right singular vector v of its centred activations or gradients, at every layer.

        s_i = <x_i - mean, v>

    component: which singular vector, counted from 1, the one along which the batch varies most, as published. Under dcor,
    the second one carries the label. A batch that varies in fewer directions gives zeros.

    message: `embeddings` (including the label party's own layers, for comparison) or `gradients`, as in figure 6.
    score: `signed` (as in Algorithm 1: the s_i form two clusters, and v is oriented so that the cluster taken for positive
    has the higher scores), `cluster` (the hard answer: 1 in the positive cluster, 0 in the other; all 0 if there are no two
    clusters, or if their sizes must decide and are equal) or `abs` (|s_i|: positives are outliers; weak on click data with a
    quarter of positives, where both classes have long tails).
    orient: which cluster is positive, for signed and cluster. `smaller`: the smaller one, or the larger one if the prior is
    above 1/2. For balanced classes, whose sizes are uninformative, the published rule is that the cluster with the larger
    scores is positive. `larger_score` reads it of uncentred values, |<x_i, v>|: the cluster further from the origin along v.
    `larger_deviation` reads it of the published scores |<x_i - mean, v>|: the cluster with the larger mean of them.
    Deviations on both sides of the mean add up to the same. So if two clusters are separate, this is always the smaller one,
    or neither (scores of 0) if they are equally large: the rule adds nothing for balanced classes.

    Both rules can choose the wrong cluster. The leak AUC then lies far below 0.5, which is as large a leak, except for one
    bit (which cluster is positive). Read the two-sided value.

    Source: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022,
    Algorithm 1 and section 5; `larger_score` of uncentred values is ours.
    """

    message: Literal["embeddings", "gradients"] = "embeddings"
    component: Number = 1
    score: Literal["signed", "abs", "cluster"] = "signed"
    orient: Literal["smaller", "larger_score", "larger_deviation"] = "smaller"

    @property
    def threat(self) -> Threat:
        return message_threat(self.message, ClassShares)

    def batch(self, view: View) -> Scores:
        layers, prior = view[MESSAGE_FACTS[self.message]].layers, view[ClassShares].positive
        return Scores(view.ids, self._scores(spectral_projections(layers, self.component), layers, prior))

    def _scores(self, projections: Mapping[str, Tensor], layers: Mapping[str, Tensor], prior: float) -> Mapping[str, Tensor]:
        """prior: the share of positives."""
        if self.score == "abs":
            return {layer: s.abs() for layer, s in projections.items()}
        by_size = self.orient == "smaller"
        if self.orient == "larger_deviation":
            projections = {layer: point_to_larger_deviation(s) for layer, s in projections.items()}
        elif not by_size:
            projections = {layer: point_away(s, layers[layer]) for layer, s in projections.items()}
        elif self.score == "signed":
            projections = {layer: point_to_positives(s, prior) for layer, s in projections.items()}
        if self.score == "signed":
            return projections
        clusters = {layer: upper_cluster(s) for layer, s in projections.items()}
        return {layer: (cluster_by_size(c, prior) if by_size else c).double() for layer, c in clusters.items()}


def spectral_projections(layers: Mapping[str, Tensor], component: int = 1) -> dict[str, Tensor]:
    """Layer -> <x_i - mean, v>, v an eigenvector of the batch covariance; the sign of v is arbitrary.

    layers: name -> (n, d). component: which eigenvector, from 1, that of the largest eigenvalue. Returns name -> (n,) of the
    same type. By way of the (d, d) covariances, many times faster than an SVD of (n, d). A constant layer gives zeros.
    """
    centred = {layer: x - x.mean(dim=0) for layer, x in layers.items()}
    return {layer: x @ leading_components(x, component)[1][:, -1].to(x) for layer, x in centred.items()}


def rising_projection(x: Tensor, u: Tensor) -> Tensor:
    """<x_i - mean, u>, where u has less of a loud first component of the rows.

    x: (n, d). u: (d,) float64, the direction in which the logit rises. Returns (n,) of the type of x.
    """
    centred = x - x.mean(dim=0)
    spreads, vectors = leading_components(centred, 2)
    return centred @ without_loudness(u, spreads, vectors).to(x)


def point_to_positives(s: Tensor, prior: float) -> Tensor:
    """s or -s, whichever gives the cluster that is taken for positive the higher values.

    s: (n,), centred. The smaller cluster is taken for positive if prior <= 1/2, else the larger. Two clusters with a share q
    of the rows in the upper one have the skewness (1 - 2q) / sqrt(q (1 - q)), so the sign of the third moment shows which
    one is smaller. Counts on either side of the mean would show it too, but depend on the rows near the mean.
    """
    upper_is_smaller = (s / s.abs().max().clamp_min(torch.finfo(s.dtype).tiny)).pow(3).sum() > 0
    return s if upper_is_smaller == (prior <= 0.5) else -s


def point_away(s: Tensor, x: Tensor) -> Tensor:
    """s or -s, whichever rises away from the origin of x along v: the mean of x then has <mean, v> >= 0.

    s: (n,) = <x - mean, v>; x: (n, d). v is not needed: X^T s is a positive multiple of it, so sum_i s_i <x_i, mean> has the
    sign of <mean, v>.
    """
    mean = x.mean(dim=0)
    along = (x @ (mean / mean.abs().max().clamp_min(torch.finfo(x.dtype).tiny))).double()
    return s if float(s.double() @ (along - along.mean())) >= 0 else -s


def point_to_larger_deviation(s: Tensor) -> Tensor:
    """s or -s, whichever gives the cluster with the larger mean |s_i| the higher values; zeros if both means are equal.

    s: (n,), centred.
    """
    upper, size = upper_cluster(s), s.double().abs()
    if not bool(upper.any()):
        return torch.zeros_like(s)
    return s * torch.sign(size[upper].mean() - size[~upper].mean()).to(s)


def upper_cluster(s: Tensor) -> Tensor:
    """(n,) bool: the upper one of the two clusters of numbers with the least squared distances to their means.

        argmin_m  sum_(i <= m) (s_i - mean_(<= m))^2 + sum_(i > m) (s_i - mean_(> m))^2,   s in rising order

    s: (n,). Exact two-means, by sorting. Equal numbers stay together; if all are equal nothing is in the cluster.
    """
    values = s.double() / s.abs().max().double().clamp_min(torch.finfo(torch.float64).tiny)
    ordered = (values - values.mean()).sort().values
    below = torch.arange(1, len(s), device=s.device, dtype=torch.float64)
    total = ordered.cumsum(0)[:-1]
    between = total.square() / below + total.square() / (len(s) - below)  # the rest of the squares is within: they sum to 0
    between[ordered[1:] == ordered[:-1]] = -1
    if not len(between) or float(between.max()) < 0:
        return torch.zeros_like(s, dtype=torch.bool)
    return values - values.mean() > ordered[between.argmax()]


def cluster_by_size(cluster: Tensor, prior: float) -> Tensor:
    """(n,) bool: a cluster or the rest, whichever is smaller, for a prior above 1/2 larger; nothing if they are equal."""
    size, rest = int(cluster.sum()), int((~cluster).sum())
    if size in (0, rest):
        return torch.zeros_like(cluster)
    return cluster if (size < rest) == (prior <= 0.5) else ~cluster
