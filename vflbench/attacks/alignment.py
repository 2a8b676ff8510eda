"""Alignment attack: noise along a gradient leaves its odd moments, and these tell the classes apart."""

from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.leading import LeadingProjections, asked_about
from vflbench.attacks.mixture import can_be_split, with_positives
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.options import options


@options
class Alignment(Attack):
    """Score each row by the log odds of its class in a mixture of two normal distributions. The third moment says which of
    the two is positive.

        s_i = log p N(z_i; m1, v1) - log (1 - p) N(z_i; m0, v0),   z_i = <g_i, v>, v: the leading direction of its batch

    It is the adaptive attack on max_norm, and differs from `mixture` in how it finds the end of z at which positives are.
    Max-norm alignment changes a gradient of length a (in units of the longest) to z ~ N(a, 1 - a^2) along its own direction.
    The second moment of z is 1 for every a, and the third moment is 3 a - 2 a^3. Hence

        sum_i (3 z_i - z_i^3) / 2 = sum_i +-a_i^3   on average, with z in units of its root mean square.

    Residuals y - p add up to 0. So the rarer class has the longer gradients, and its sign wins. Sums are added up over all
    epochs so far. If gradients are nearly parallel, z has the same moments as the length with the sign of z. For p = 1/2 the
    end is a guess. With additive noise or without noise, the third moment has the other sign: use `mixture` then.

    Source: ours.
    """

    threat = Threat(knows={Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._seen = LeadingProjections()
        self._cubes: dict[str, float] = {}  # layer -> estimate of the sum of signed a^3

    def observe(self, view: View) -> None:
        self._seen.add(view.ids, view[Gradients].layers)

    def epoch(self, view: View) -> Scores | None:
        ids, projections = self._seen.take()
        asked = asked_about(ids, view.ids)
        if not bool(asked.any()):
            return None
        prior = view[ClassShares].positive
        return Scores(ids[asked], {layer: self._odds(layer, z, prior)[asked] for layer, z in projections.items()})

    def _odds(self, layer: str, z: Tensor, prior: float) -> Tensor:
        if not can_be_split(z, prior):
            return torch.zeros_like(z)
        self._cubes[layer] = self._cubes.get(layer, 0.0) + sum_of_signed_cubes(z)
        is_above = (self._cubes[layer] >= 0) == (prior <= 0.5)
        odds = with_positives(z, prior, is_above).log_ratio(z[None])[0]
        return odds if is_above else -odds

    def state(self) -> dict[str, Any]:
        return {"seen": self._seen.state(), "cubes": dict(self._cubes)}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen.restore(state["seen"])
        self._cubes = dict(state["cubes"])


def sum_of_signed_cubes(z: Tensor) -> float:
    """sum_i (3 z_i - z_i^3) / 2 of z (n,) float64 in units of its root mean square; 0 where all are zero."""
    unit = z / z.square().mean().sqrt().clamp_min(1e-300)
    return float((3 * unit - unit**3).sum() / 2)
