"""Norm attack: rows of the rarer class have longer gradients."""

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import Gradients
from vflbench.messages.threat import Threat
from vflbench.messages.view import View
from vflbench.options import options


@options
class Norm(Attack):
    """Score each row by the length of its gradient, at every layer of the non-label party.

        r_i = |g_i|_2

    With a logistic loss |g_i| is |p_i - y_i| times a factor of the network, and while a model is unsure of its rare
    positives |p_i - 1| > |p_i - 0|: positives get the longer gradients.

    Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.1.
    """

    threat = Threat(knows={Gradients})

    def batch(self, view: View) -> Scores:
        return Scores(view.ids, {layer: g.double().norm(dim=1) for layer, g in view[Gradients].layers.items()})
