"""No message: the party's own columns and a few known positives, as the reference line of every other attack."""

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import BatchHints, PartyFeatures
from vflbench.messages.threat import Threat, View
from vflbench.options import Number, options

_STEPS = 2


@options
class NoMessage(Attack):
    """Score each row by its similarity to known positives in the attacker's own columns; it reads no message.

        s = A A v,   A_ij = <z_i, z_j> + number of categorical columns in which i and j are equal,
        v_i = 1/k for the k known positives, 0 for others;  the mean is taken from v and after every product

    z: numeric columns, each with mean 0 and variance 1 in the batch. The second product measures the similarity to rows that
    are similar to the known ones, which is more stable with few known rows. An attack on messages has learned something from
    them only if it is above this value: both know k positives of each batch, and nothing about other batches.

    On Criteo it is better than rarity-weighted agreement with the known rows, naive Bayes and a linear discriminant of the
    same rows.

    k: known positives of each batch. The run draws them afresh in each batch, and they are not scored.

    Source: label propagation over a similarity graph, with two steps: Zhu and Ghahramani, "Learning from labeled and
    unlabeled data with label propagation", 2002.
    """

    k: Number = 5

    @property
    def threat(self) -> Threat:
        return Threat(knows={PartyFeatures, BatchHints}, hints=self.k)

    def batch(self, view: View) -> Scores:
        columns = view[PartyFeatures]
        weights = columns.numeric.new_zeros(len(view.ids), dtype=torch.float64)
        weights[view[BatchHints].places.to(weights.device)] = 1 / self.k
        return Scores(view.ids, likeness(columns, weights, _STEPS))


def likeness(columns: PartyFeatures, weights: Tensor, steps: int) -> Tensor:
    """A^steps weights, centred after each product and in units in which the longest is 1. weights: (n,). Returns (n,).

    A (n, n) is never made: a product takes n k + n c operations for k numeric and c categorical columns.
    """
    centred = columns.numeric.double() - columns.numeric.double().mean(dim=0)
    z = centred / centred.square().mean(dim=0).sqrt().clamp_min(1e-12)
    v = weights - weights.mean()
    for _ in range(steps):
        shared = [weight_of_equals(column, v) for column in columns.categorical.T.long()]
        v = z @ (z.T @ v) + sum(shared)
        v = v - v.mean()
        v = v / v.abs().max().clamp_min(1e-300)
    return v


def weight_of_equals(column: Tensor, weights: Tensor) -> Tensor:
    """(n,) sum of the weights of all rows whose value is that of row i. column: (n,) ids from 0; weights: (n,)."""
    return torch.bincount(column, weights=weights)[column]
