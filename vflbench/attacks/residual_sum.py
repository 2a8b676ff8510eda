"""Residual-sum attack: what the residuals of all epochs tell about a row, added up, and what its embedding says."""

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack, FollowedRows, Scores
from vflbench.attacks.spectral import rising_projection
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, LocalModel
from vflbench.messages.threat import Threat, View
from vflbench.models.base import WIDE
from vflbench.numerics.directions import leading_components
from vflbench.options import Rows, Weight, options

_LIKE = 500  # rows with a similar embedding, among which a residual is measured


class CutRows(FollowedRows, Attack):
    """It follows rows through the run by the gradients about them at the cut, and joins those of an epoch.

    It keeps a round by `keep`; a subclass joins the rounds of an epoch in `join`, once it is over: also where it isn't asked
    after each epoch.
    """

    rows: int
    threat = Threat(knows={LocalModel, Gradients, ClassShares})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.follows = self.rows
        self._met: list[list[Tensor]] = []  # of the epoch under way, by round
        self._layer, self._epoch, self._prior = "", 0, 0.0
        self._direction = torch.empty(0, dtype=torch.float64)  # of the last epoch, (d,)

    def keep(self, view: View, g: Tensor) -> list[Tensor]:
        """What is kept of a round: ids (b,), gradients (b, d) in units of their length, embeddings (b, d).

        g: (b, d), on the CPU.
        """
        g, h = g.double(), view[Embeddings].layers[self._layer].cpu().double()
        return [view.ids.cpu(), g / g.square().sum(dim=1).mean().sqrt().clamp_min(1e-300), h]

    def join(self, met: list[list[Tensor]]) -> None:
        """At the end of an epoch. met: what was kept of its rounds, at least one."""
        raise NotImplementedError

    def observe(self, view: View) -> None:
        layers = [layer for layer in view[Gradients].layers if layer != WIDE]
        if not layers or not len(view.ids):
            return
        if view.epoch != self._epoch:
            self.end_epoch()
            self._epoch = view.epoch
        self._layer, self._prior = layers[-1], view[ClassShares].positive
        self._met.append(self.keep(view, view[Gradients].layers[self._layer].cpu()))

    def end_epoch(self) -> None:
        met, self._met = self._met, []
        if met:
            self.join(met)

    def turned(self, u: Tensor) -> Tensor:
        """u or -u (d,), whichever turned less from the direction of the last epoch; it is kept as the next one."""
        if len(self._direction) == len(u) and float(self._direction @ u) < 0:
            u = -u
        self._direction = u
        return u

    def embedded(self, view: View, ids: Tensor) -> tuple[Tensor, Tensor] | None:
        """Of the rows that the view asks about, those among `ids`, and their embeddings along the last direction, with a
        root mean square of 1, both (n,). None if there are none.
        """
        asked = view.ids.cpu()[torch.isin(view.ids.cpu(), ids)]
        layers = view[LocalModel].embed(asked.to(view.ids.device)) if len(asked) else {}
        if self._layer not in layers:
            return None
        t = rising_projection(layers[self._layer].cpu().double(), self._direction)
        return asked, t / t.square().mean().sqrt().clamp_min(1e-300)


@options
class ResidualSum(CutRows):
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

    threat = Threat(knows={Embeddings, LocalModel, Gradients, ClassShares})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epochs = 0  # that are over

    def epoch(self, view: View) -> Answers:
        self.end_epoch()
        prior, embedded = view[ClassShares].positive, self.embedded(view, self._ids)
        if embedded is None or not 0 < prior < 1:
            return None
        asked, t = embedded
        sums = self._tables["residuals"][:, 0]
        side = 1.0 if (float((sums - sums.mean()).pow(3).sum()) <= 0) == (prior <= 0.5) else -1.0
        of_residuals = sums[self.places(asked)] / self._epochs**0.5
        return Scores(asked.to(view.ids.device), {self._layer: side * (self.weight * t - of_residuals)})

    def join(self, met: list[list[Tensor]]) -> None:
        ids, g, h = (torch.cat(values) for values in zip(*met, strict=True))
        self._epochs += 1
        u = self.turned(leading_components(g, 1)[1][:, 0])
        self.add(ids, {"residuals": in_usual_units(g @ u, (h - h.mean(dim=0)) @ u)[:, None]})


def in_usual_units(z: Tensor, t: Tensor) -> Tensor:
    """z over its root mean square among rows with t of the same rank, some 500 of them. z, t: (n,) float64."""
    groups = max(1, len(t) // _LIKE)
    group = t.argsort().argsort() * groups // len(t)
    power = torch.zeros(groups, dtype=z.dtype).index_add_(0, group, z * z) / group.bincount(minlength=groups)
    return z / power.sqrt().clamp_min(1e-300)[group]
