"""Mixture attack: two classes with known shares, along the direction in which the messages of an epoch vary most."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import MESSAGE_FACTS, Attack, Scores, last_met, message_threat
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import top_eigenvector
from vflbench.options import options

_MEMORY = 0.5  # weight of the last batch's directions beside this one's
_ROWS = 20_000  # spread evenly, to which the two distributions are fitted
_ITERATIONS = 60


_SMALLEST = 1e-3  # variance of a component beside that of all numbers; a component can't shrink to one number


@dataclass(frozen=True)
class TwoNormals:
    """The density (1 - q) N(t; m0, v0) + q N(t; m1, v1) of each of k problems.

    upper_share: q. means, variances: (k, 2), the lower component first. gain: (k,), mean log likelihood, in nats a number,
    less that of one normal distribution.
    """

    upper_share: float
    means: Tensor
    variances: Tensor
    gain: Tensor

    def log_ratio(self, t: Tensor) -> Tensor:
        """log[q N(t; m1, v1) / ((1 - q) N(t; m0, v0))], the log odds of the upper component. t: (k, n). Returns (k, n)."""
        lower, upper = _log_densities(t, self.means, self.variances, self.upper_share).unbind(dim=1)
        return upper - lower


def fit_two_normals(t: Tensor, upper_share: float, iterations: int = 10) -> TwoNormals:
    """The most likely means and variances for given shares, a local maximum, by expectation-maximisation.

    t: (k, n) float64, k problems of n > 1 numbers each, in any units. upper_share: q in (0, 1). It starts from the lowest
    (1 - q) n and the highest q n numbers, so that the upper component has the higher mean at first, and stops after
    `iterations`. No variance is below a thousandth of that of all numbers. Equal numbers have gain 0 and log ratios
    log(q / (1 - q)).
    """
    center, spread = t.mean(dim=1, keepdim=True), t.std(dim=1, correction=0, keepdim=True)
    spread = torch.where(spread > 1e-12 * t.abs().amax(dim=1, keepdim=True), spread, 0.0)
    unit = torch.where(spread > 0, spread, 1.0)
    z = ((t - center) / unit).sort(dim=1).values  # sorted, so that sums don't depend on the order of rows
    split = min(max(round((1 - upper_share) * t.shape[1]), 1), t.shape[1] - 1)
    is_upper = torch.arange(t.shape[1], device=t.device) >= split
    weights = torch.stack([~is_upper, is_upper]).to(t).expand(len(t), -1, -1)  # (k, 2, n)
    for _ in range(iterations):
        sizes = weights.sum(dim=2).clamp_min(1e-9)
        means = (weights @ z[:, :, None])[:, :, 0] / sizes
        squares = (weights @ z.square()[:, :, None])[:, :, 0] / sizes
        variances = (squares - means.square()).clamp_min(_SMALLEST)
        densities = _log_densities(z, means, variances, upper_share)
        total = densities.logsumexp(dim=1)
        weights = (densities - total[:, None]).exp()
    gain = total.mean(dim=1) + 0.5 * (math.log(2 * math.pi) + 1)
    constant = spread == 0
    means = torch.where(constant, 0.0, means) * unit + center
    variances = torch.where(constant, 1.0, variances * unit.square())
    return TwoNormals(upper_share, means, variances, torch.where(constant[:, 0], 0.0, gain))


def _log_densities(t: Tensor, means: Tensor, variances: Tensor, upper_share: float) -> Tensor:
    """Of both components, shares included. t: (k, n). Returns (k, 2, n)."""
    log_shares = torch.tensor([1 - upper_share, upper_share], dtype=t.dtype, device=t.device).log()
    level = log_shares - 0.5 * (2 * math.pi * variances).log()
    return level[:, :, None] - 0.5 * (t[:, None] - means[:, :, None]).square() / variances[:, :, None]


class LeadingProjections(Attack):
    """Rows of the audited batches of an epoch, projected on the leading direction of their batch, layer by layer, and then
    split into two normal distributions with the classes' shares.

        z_i = <x_i, v> / rms_j |x_j|,   v: top eigenvector of S,   S <- X^T X / sum_j |x_j|^2 + S / 2

    S joins a batch with those before it, each with half the weight of the next: noise that is drawn afresh averages out,
    and a direction that turns as the network learns is followed. The sign of v is the one that turned less from the last
    batch, so that z keeps its meaning through the run; which sign it has is unknown. Memory: one number a row and layer, and
    S, (d, d).
    """

    threat = Threat(knows={Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._ids: list[Tensor] = []
        self._projections: dict[str, list[Tensor]] = {}
        self._scatters: dict[str, Tensor] = {}
        self._directions: dict[str, Tensor] = {}
        self._evidence: dict[str, float] = {}  # layer -> for positives at the upper end, from all epochs so far

    def messages(self, view: View) -> Mapping[str, Tensor]:
        """Layer -> x (n, d)."""
        return view[Gradients].layers

    def evidence(self, z: Tensor, prior: float, ends: Mapping[bool, TwoNormals]) -> float:
        """For positives at the upper end of z (n,). ends: the likeliest mixture with them there, and at the lower end."""
        raise NotImplementedError

    def observe(self, view: View) -> None:
        self._ids.append(view.ids.cpu())
        for layer, x in self.messages(view).items():
            self._projections.setdefault(layer, []).append(self._project(layer, x).cpu())

    def _project(self, layer: str, x: Tensor) -> Tensor:
        """(n,) float64; zeros where the layer has none."""
        scaled = x.double() / x.abs().max().double().clamp_min(torch.finfo(torch.float64).tiny)
        length = scaled.square().sum(dim=1).mean().sqrt()
        if not float(length) > 0:
            return scaled.sum(dim=1)
        scaled = scaled / length
        scatter = scaled.T @ scaled / len(scaled)
        if layer in self._scatters:
            scatter += _MEMORY * self._scatters[layer].to(scatter)
        direction = top_eigenvector(scatter)
        if layer in self._directions and float(direction @ self._directions[layer].to(direction)) < 0:
            direction = -direction
        self._scatters[layer], self._directions[layer] = scatter, direction
        return scaled @ direction

    def epoch(self, view: View) -> Scores | None:
        """The log odds of the rows of this epoch that the view asks about, each where it was met last."""
        (is_met, rows), prior = last_met(self._ids, view.ids), view[ClassShares].positive
        scores = {layer: self._odds(layer, torch.cat(parts), prior)[rows] for layer, parts in self._projections.items()}
        self._ids, self._projections = [], {}
        return Scores(view.ids.cpu()[is_met], scores) if len(rows) else None

    def _odds(self, layer: str, z: Tensor, prior: float) -> Tensor:
        """(n,) log odds of positives. z: (n,) float64; prior: the share of positives."""
        if len(z) < 2 or not 0 < prior < 1:
            return torch.zeros_like(z)
        looked_at = z[torch.linspace(0, len(z) - 1, min(len(z), _ROWS)).long()][None]
        shares = {True: prior, False: 1 - prior}  # of the upper distribution
        ends = {above: fit_two_normals(looked_at, share, _ITERATIONS) for above, share in shares.items()}
        self._evidence[layer] = self._evidence.get(layer, 0.0) + self.evidence(z, prior, ends)
        above = self._evidence[layer] >= 0
        odds = ends[above].log_ratio(z[None])[0]
        return odds if above else -odds


@options
class Mixture(LeadingProjections):
    """Score each row by the log odds of its class in a mixture of two normal distributions with the classes' shares.

        s_i = log p N(z_i; m1, v1) - log (1 - p) N(z_i; m0, v0),   z_i = <x_i, v>, v: the leading direction of its batch

    p: the share of positives. Means and variances are the most likely ones (expectation-maximisation with p fixed), for all
    audited rows of an epoch at once (`LeadingProjections`). It starts once from positives at each end of z. The log
    likelihood of the two results, added up over all epochs so far, says at which end they are. For p = 1/2 both are equal,
    and the end is a guess.

    It is the adaptive attack on isotropic noise (gaussian): this noise averages out of v, and only its part along v remains
    in z. Under max_norm, `alignment` finds the end of the positives more reliably.

    message: `gradients`, with z measured from 0, or `embeddings`, which are centred in each batch.

    Source: Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977; its use here is
    ours.
    """

    message: Literal["gradients", "embeddings"] = "gradients"

    @property
    def threat(self) -> Threat:  # type: ignore[override]
        return message_threat(self.message, ClassShares)

    def messages(self, view: View) -> Mapping[str, Tensor]:
        layers = view[MESSAGE_FACTS[self.message]].layers
        return {layer: x - x.mean(dim=0) for layer, x in layers.items()} if self.message == "embeddings" else layers

    def evidence(self, z: Tensor, prior: float, ends: Mapping[bool, TwoNormals]) -> float:
        """Log likelihood, in nats."""
        return len(z) * float(ends[True].gain - ends[False].gain)
