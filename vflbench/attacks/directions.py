"""Directions attack: the directions in which the rows of the run vary, and the one that the gradients point out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import ClassShares, Gradients, LocalModel
from vflbench.messages.threat import Threat, View
from vflbench.messages.wire import Kind
from vflbench.numerics.directions import gradient_moments, leading_components, logit_direction, without_loudness
from vflbench.options import Number, options


@options
class Directions(Attack):
    """At the end of an epoch, embed many rows with the party's own network and project them on one direction, at every
    layer.

        s_i = <h_i - mean, u>

    u: the direction along which the logit rises, which is the top singular vector of the gradients of all audited batches of
    the epoch (`numerics.directions`). The part of u along the first component is scaled down, if this component varies much
    more than the others (`without_loudness` there). Other components are not changed, because whitening all of them would
    amplify noise.
    components: how many singular vectors are candidates, between which the attacker can't decide without labels; u is
    one more.

    The sign needs a prior that is not 1/2, and gradients whose third moment survives the defense. The noise of
    max_norm reverses it: a coefficient c has the third moment 3 max^2 c - 2 c^3 with noise. Under the noise of marvell, the
    sign is right more often than not. Read the two-sided value.

    Unlike `spectral`, it sees rows of the whole run at once, through the network after it was trained on them. Under dcor,
    the first singular vector is a direction without labels, which the penalty makes larger. The second one carries the
    label, or the label is spread over the next ones.

    Memory: (d, d) numbers for each layer of width d, beside the embeddings of the rows.

    Source: singular vectors: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated
    Learning", 2022, Algorithm 1, there of one batch and the first only. The choice by gradients is ours.
    """

    components: Number = 8
    threat = Threat(knows={LocalModel, ClassShares, Gradients})

    def __post_init__(self) -> None:
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}

    def observe(self, view: View) -> None:
        """Add its gradients to what those of other batches say."""
        add_moments(self._moments, view[Gradients].layers)

    def epoch(self, view: View) -> Scores:
        prior, scores, candidates = view[ClassShares].positive, {}, {}
        for layer, h in view[LocalModel].embed(view.ids).items():
            centred = h - h.mean(dim=0)
            spreads, vectors = leading_components(centred, max(self.components, 2))
            candidates[layer] = centred @ vectors[:, : min(self.components, h.shape[1])].to(h)
            if layer in self._moments:
                u = logit_direction(*self._moments[layer], prior).to(vectors)
                scores[layer] = centred @ without_loudness(u, spreads[:2], vectors[:, :2]).to(h)
                candidates[layer] = torch.cat([scores[layer][:, None], candidates[layer]], dim=1)
        self._moments = {}
        return Scores(view.ids, scores, Kind.EMBEDDING, candidates)


def add_moments(kept: dict[str, tuple[Tensor, Tensor]], layers: Mapping[str, Tensor]) -> None:
    """Add the moments of one batch of gradients (`numerics.directions`) to those of others: of each layer a (d, d) and
    a (d,) tensor, on the CPU. layers: layer -> (n, d).
    """
    for layer, g in layers.items():
        second, third = (moment.cpu() for moment in gradient_moments(g))
        kept[layer] = (kept[layer][0] + second, kept[layer][1] + third) if layer in kept else (second, third)
