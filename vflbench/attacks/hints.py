"""Hint attack: rows whose gradients are like those of some known positives are positive."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.messages.transcript import Knowledge, View
from vflbench.messages.wire import Kind
from vflbench.options import Count, options


@options
class Hints(Attack):
    """Score each row by its likeness to the most similar of k rows that are known to be positive.

        distance:       s_i = - min_j |g_i - g_j|
        inner_product:  s_i =   max_j <g_i, g_j>,   j over the k known rows

    k: known positives in each batch; published with 1, 3 and 5. They are chosen by the run, afresh in each batch, and not
    scored.

    Source: ByteDance, "Technical Report of Label Leakage and Protection in Federated Learning", hint attacks.
    """

    knows = frozenset({Knowledge.GRADIENTS, Knowledge.HINTS})
    scores = Kind.GRADIENT

    k: Count = 3
    score: Literal["distance", "inner_product"] = "distance"

    @property
    def hints(self) -> int:
        return self.k

    def infer(self, view: View) -> Mapping[str, Tensor]:
        answer = {}
        for layer, g in view.gradients.items():
            exact = g.double()
            known = exact[view.hints.to(g.device)]
            if self.score == "inner_product":
                answer[layer] = (exact @ known.T).amax(dim=1)
            else:
                answer[layer] = torch.stack([-(exact - row).norm(dim=1) for row in known]).amax(dim=0)
        return answer
