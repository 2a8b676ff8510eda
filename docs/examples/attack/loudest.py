"""Loudest attack: the largest coordinate of a gradient gives its class away."""

from vflbench import Attack, Gradients, Scores, Threat, View
from vflbench.options import Positive, options


@options
class Loudest(Attack):
    """Score each row by the largest coordinate of its gradient, at every layer.

        s_i = max_j |g_ij|^power

    power: changes no ranking, but shows what an option looks like.
    """

    threat = Threat(knows={Gradients})

    power: Positive = 1.0

    def batch(self, view: View) -> Scores:
        return Scores(view.ids, {layer: g.abs().amax(dim=1) ** self.power for layer, g in view[Gradients].layers.items()})
