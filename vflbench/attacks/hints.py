"""Hint attack: rows are positive whose gradients resemble those of known positives."""

from typing import Literal

import torch

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import BatchHints, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.options import Number, options


@options
class Hints(Attack):
    """Score each row by its similarity to the most similar of k rows that are known to be positive.

        distance:       s_i = - min_j |g_i - g_j|
        inner_product:  s_i =   max_j <g_i, g_j>,   j over the k known rows

    k: known positives of each batch; published with 1, 3 and 5. The run draws them afresh in each batch, and they are not
    scored.

    Source: ByteDance, "Technical Report of Label Leakage and Protection in Federated Learning", hint attacks.
    """

    k: Number = 3
    score: Literal["distance", "inner_product"] = "distance"

    @property
    def threat(self) -> Threat:
        return Threat(knows={Gradients, BatchHints}, hints=self.k)

    def batch(self, view: View) -> Scores:
        scores = {}
        places = view[BatchHints].places
        for layer, g in view[Gradients].layers.items():
            exact = g.double()
            known = exact[places.to(g.device)]
            if self.score == "inner_product":
                scores[layer] = (exact @ known.T).amax(dim=1)
            else:
                scores[layer] = torch.stack([-(exact - row).norm(dim=1) for row in known]).amax(dim=0)
        return Scores(view.ids, scores)
