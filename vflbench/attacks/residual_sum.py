"""Residual-sum attack: what the residuals of all epochs tell about a row, added up, and what its embedding says."""

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack, Scores
from vflbench.attacks.spectral import rising_projection
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, OwnModel
from vflbench.messages.threat import Threat, View
from vflbench.models.layer_names import WIDE
from vflbench.numerics.directions import leading_components
from vflbench.options import Rows, Weight, options

_LIKE = 500  # rows with a similar embedding, among which a residual is measured


@options
class ResidualSum(Attack):
    """Add up the residuals of a row over the epochs, each divided by the usual size for its embedding, and add what the
    embedding says.

        s_i = weight t_i - 1/sqrt(E) sum_e z_ie / rms(z_je : j with t_je near t_ie),
        z_ie = <g_ie, u_e>,   t_ie = <h_ie - mean, u_e>

    u: the leading direction of the gradients of an epoch at the cut layer, along which the logit rises or falls, with the
    same sign in all epochs. t_i: along the last u through the network as it stands now, of variance 1.

    It is the adaptive attack on label_gdp and on zero_sum of label_dp. The residual of an epoch is p - x_t, or the step from
    p to the posterior given x_t. Given the embedding, either has the mean zero and is nearly linear in x_t: it is the
    log-likelihood ratio of the label in units that depend on p and on the gradient of the logit. Both are much the same for
    rows with similar embeddings. So the attack divides by the root mean square among these rows.

    The sign is the one with which the rarer class has the larger sums, as in `directions`. Noise makes it unreliable, so
    read the two-sided value. rows: number of rows that it follows. Memory: 8 bytes for each number, two layers' widths for
    each row within an epoch.

    Source: ours.
    """

    rows: Rows = 65_536
    weight: Weight = 1.4

    threat = Threat(knows={Embeddings, OwnModel, Gradients, ClassShares})

    def __post_init__(self) -> None:
        self.follows = self.rows
        self._met: list[list[Tensor]] = []  # of this epoch, by round: ids (b,), gradients (b, d), embeddings (b, d)
        self._epochs, self._epoch = 0, 0  # that are over; under way
        self._layer = ""
        self._ids = torch.empty(0, dtype=torch.int64)  # sorted
        self._sums = self._direction = torch.empty(0, dtype=torch.float64)

    def observe(self, view: View) -> None:
        layers = [layer for layer in view[Gradients].layers if layer != WIDE and layer in view[Embeddings].layers]
        if not layers or not len(view.ids):
            return
        self._layer = layers[-1]
        ids = view.ids.cpu()
        if view.epoch != self._epoch:
            self._end_epoch()  # it isn't asked after each epoch
            self._epoch = view.epoch
        g = view[Gradients].layers[self._layer].cpu().double()
        h = view[Embeddings].layers[self._layer].cpu().double()
        self._met.append([ids, g / g.square().sum(dim=1).mean().sqrt().clamp_min(1e-300), h])

    def epoch(self, view: View) -> Answers:
        self._end_epoch()
        prior, asked = view[ClassShares].positive, view.ids.cpu()
        asked = asked[torch.isin(asked, self._ids)]
        embedded = view[OwnModel].embed(asked.to(view.ids.device)) if len(asked) else {}
        if self._layer not in embedded or not 0 < prior < 1:
            return None
        side = 1.0 if (float((self._sums - self._sums.mean()).pow(3).sum()) <= 0) == (prior <= 0.5) else -1.0
        t = rising_projection(embedded[self._layer].cpu().double(), self._direction)
        t = t / t.square().mean().sqrt().clamp_min(1e-300)
        told = self._sums[torch.searchsorted(self._ids, asked)] / max(1, self._epochs) ** 0.5
        return Scores(asked.to(view.ids.device), {self._layer: side * (self.weight * t - told)})

    def _end_epoch(self) -> None:
        if not self._met:
            return
        ids, g, h = (torch.cat(values) for values in zip(*self._met, strict=True))
        self._met, self._epochs = [], self._epochs + 1
        u = leading_components(g, 1)[1][:, 0]
        if len(self._direction) == len(u) and float(self._direction @ u) < 0:
            u = -u
        self._direction = u
        both = torch.cat([self._ids, ids]).unique()
        sums = torch.zeros(len(both), dtype=torch.float64)
        sums[torch.searchsorted(both, self._ids)] = self._sums
        sums.index_add_(0, torch.searchsorted(both, ids), in_usual_units(g @ u, (h - h.mean(dim=0)) @ u))
        self._ids, self._sums = both, sums


def in_usual_units(z: Tensor, t: Tensor) -> Tensor:
    """z over its root mean square among rows with t of the same rank, some 500 of them. z, t: (n,) float64."""
    groups = max(1, len(t) // _LIKE)
    group = t.argsort().argsort() * groups // len(t)
    power = torch.zeros(groups, dtype=z.dtype).index_add_(0, group, z * z) / group.bincount(minlength=groups)
    return z / power.sqrt().clamp_min(1e-300)[group]
