"""Cosine attack: gradients of one class point the same way."""

import torch
from torch.nn import functional as F

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import BatchHints, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.options import Number, options


@options
class Cosine(Attack):
    """Score each row by the cosine between its gradient and that of a row that is known to be positive.

        s_i = <u_i, u_1>,   u = g / |g|;   of several known rows, s_i = <u_i, 1/k sum_j u_j>

    With a logistic loss, g_i = (p_i - y_i) J_i, and p_i - y_i is negative for positives alone. Two gradients of one class
    therefore point to the same side, and two of different classes to opposite sides. Under added noise, a single known row
    may point to the wrong side of a batch; the mean of several is more reliable.

    k: known positives; published with one. The run draws them afresh in each batch, and they are not scored. A row without
    a gradient has cosine 0.

    Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.1.
    """

    k: Number = 1

    @property
    def threat(self) -> Threat:
        return Threat(knows={Gradients, BatchHints}, hints=self.k)

    def batch(self, view: View) -> Scores:
        known = view[BatchHints].places
        scores = {}
        for layer, g in view[Gradients].layers.items():
            g = g.double()
            directions = F.normalize(g[known.to(g.device)], dim=1, eps=1e-300)
            scores[layer] = g @ directions.mean(dim=0) / torch.linalg.vector_norm(g, dim=1).clamp_min(1e-300)
        return Scores(view.ids, scores)
