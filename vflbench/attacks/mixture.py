"""Mixture attack: two classes with known shares, along the direction in which the messages of an epoch vary most."""

from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import MESSAGE_FACTS, Attack, Scores, message_threat
from vflbench.attacks.leading import LeadingProjections, asked_about
from vflbench.messages.facts import ClassShares
from vflbench.messages.threat import Threat, View
from vflbench.numerics.two_normals import TwoNormals, fit_two_normals
from vflbench.options import options

_ROWS = 20_000  # spread evenly, to which the two distributions are fitted
_ITERATIONS = 60


@options
class Mixture(Attack):
    """Score each row by the log odds of its class in a mixture of two normal distributions with the classes' shares.

        s_i = log p N(z_i; m1, v1) - log (1 - p) N(z_i; m0, v0),   z_i = <x_i, v>, v: the leading direction of its batch

    p: the share of positives. Means and variances are the most likely ones (expectation-maximisation with p fixed), for all
    audited rows of an epoch at once (`attacks.leading`). It starts once from positives at each end of z. The log likelihood
    of the two results, added up over all epochs so far, says at which end they are. For p = 1/2 both are equal, and the end
    is a guess.

    It is the adaptive attack on isotropic noise (gaussian): this noise averages out of v, and only its part along v remains
    in z. Under max_norm, `alignment` finds the end of the positives more reliably.

    message: `gradients`, with z measured from 0, or `embeddings`, which are centred in each batch.

    Source: Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977; its use here is
    ours.
    """

    message: Literal["gradients", "embeddings"] = "gradients"

    def __post_init__(self) -> None:
        self._seen = LeadingProjections()
        self._evidence: dict[str, float] = {}  # layer -> log likelihood of positives at the upper end less at the lower one

    @property
    def threat(self) -> Threat:
        return message_threat(self.message, ClassShares)

    def observe(self, view: View) -> None:
        layers = view[MESSAGE_FACTS[self.message]].layers
        if self.message == "embeddings":
            layers = {layer: x - x.mean(dim=0) for layer, x in layers.items()}
        self._seen.add(view.ids, layers)

    def epoch(self, view: View) -> Scores | None:
        ids, places = self.places(view)
        return Scores(ids, {layer: odds for layer, (_, odds) in places.items()}) if len(ids) else None

    def places(self, view: View) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """ids (n,) of the rows of this epoch that the view asks about; layer -> z and the log odds of positives, (n,) each.

        Both rise towards positives: z is -z where these are at the lower end.
        """
        ids, projections = self._seen.take()
        asked = asked_about(ids, view.ids)
        prior = view[ClassShares].positive
        places = {layer: self._place(layer, z, prior) for layer, z in projections.items()}
        return ids[asked], {layer: (z[asked], odds[asked]) for layer, (z, odds) in places.items()}

    def _place(self, layer: str, z: Tensor, prior: float) -> tuple[Tensor, Tensor]:
        if not can_be_split(z, prior):
            return z, torch.zeros_like(z)
        ends = {is_above: with_positives(z, prior, is_above) for is_above in (True, False)}
        gain = float(ends[True].gain - ends[False].gain)
        self._evidence[layer] = self._evidence.get(layer, 0.0) + len(z) * gain
        is_above = self._evidence[layer] >= 0
        sign = 1 if is_above else -1
        return sign * z, sign * ends[is_above].log_ratio(z[None])[0]

    def state(self) -> dict[str, Any]:
        return {"seen": self._seen.state(), "evidence": dict(self._evidence)}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen.restore(state["seen"])
        self._evidence = dict(state["evidence"])


def can_be_split(z: Tensor, prior: float) -> bool:
    """Whether there can be two classes. z: (n,); prior: the share of positives."""
    return len(z) > 1 and 0 < prior < 1


def with_positives(z: Tensor, prior: float, is_above: bool) -> TwoNormals:
    """The likeliest mixture with positives at the upper end of z, or at the lower one. z: (n,) float64."""
    looked_at = z[torch.linspace(0, len(z) - 1, min(len(z), _ROWS)).long()]
    return fit_two_normals(looked_at[None], prior if is_above else 1 - prior, _ITERATIONS)
