"""Norm attack: rows of the rarer class have longer gradients."""

from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.options import Fraction, options


@options
class Norm(Attack):
    """Score each row by the length of its gradient, at every layer of the non-label party.

        r_i = |g_i|_2

    With a logistic loss |g_i| is |p_i - y_i| times a factor of the network, and while a model is unsure of its rare
    positives |p_i - 1| > |p_i - 0|: positives get the longer gradients.

    top: null scores rows by r_i. A share p answers with labels instead, as the report does: the round(p n) rows of a batch
    with the longest gradients are positive, the others negative; `prior`: p is the share of positives, which the attacker
    then knows. Rows of equal length at the boundary are drawn. The answer has a column for each class, so accuracy is
    reported beside the leak AUC. The leak AUC of labels is (true positive rate + true negative rate) / 2.

    Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.1; top: ByteDance,
    "Technical Report of Label Leakage and Protection in Federated Learning", section on the 2-norm attack.
    """

    top: Fraction | Literal["prior"] | None = None

    @property
    def threat(self) -> Threat:
        return Threat(knows={Gradients, ClassShares} if self.top == "prior" else {Gradients})

    def batch(self, view: View) -> Scores:
        lengths = {
            layer: torch.linalg.vector_norm(g, dim=1, dtype=torch.float64) for layer, g in view[Gradients].layers.items()
        }
        if self.top is None:
            return Scores(view.ids, lengths)
        share = view[ClassShares].positive if self.top == "prior" else self.top
        order = torch.randperm(len(view.ids), generator=view.rng, device=view.rng.device)
        return Scores(view.ids, {layer: top_share(r, share, order.to(r.device)) for layer, r in lengths.items()})


def top_share(scores: Tensor, share: float, order: Tensor) -> Tensor:
    """(n, 2) one-hot classes: 1 for the round(share n) rows with the highest scores, 0 for the others.

    scores: (n,). order: (n,) a permutation; of equal scores those that come first in it count as higher.
    """
    highest = order[scores[order].argsort(descending=True, stable=True)][: round(share * len(scores))]
    positive = torch.zeros_like(scores).index_fill_(0, highest, 1.0)
    return torch.stack([1 - positive, positive], dim=1)
