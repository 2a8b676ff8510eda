"""Ungroup attack: labels of single rows from gradients that are means over groups of rows, joined over the epochs."""

import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsmr
from torch import Tensor

from vflbench.attacks.base import Answers, Scores
from vflbench.attacks.residual_sum import CutRows
from vflbench.messages.facts import ClassShares
from vflbench.messages.threat import View
from vflbench.numerics.directions import top_eigenvector
from vflbench.options import Rows, Weight, options


@options
class Ungroup(CutRows):
    """Solve for what each row adds to the gradients of its groups, which change in each epoch, and add what its embedding
    says.

        z_G = |G| <g_G, u> = sum_(i in G) r_i + noise,   r_i = k (p_i - y_i),   of all groups of all epochs
        r = argmin sum_G (z_G - sum_(i in G) r_i)^2 / |G| + ridge |r|^2,   s_i = weight t_i - r_i

    Rows with the same gradient are a group, at the cut layer. u: the top eigenvector of the gradients of an epoch; z is in
    units of its root mean square over the root of |G|, so that r_i has about the variance 1. After as many epochs as a group
    has rows there are as many equations as rows. t: the rows' embeddings along u, of variance 1, without the direction of
    large variance. The sign of u, the same in all epochs, is the one with which the rarer class has the larger r_i, as in
    `directions`.

    It is the adaptive attack on batch_average.

    rows: number of rows that it follows. Rows of a group that it doesn't follow count as noise, because it takes the rows
    that it follows for the whole group. ridge: ridge of the equations. weight: weight of the embedding. Memory: 16 bytes for
    each row and epoch, and a gradient for each group in an epoch.

    Source: ours. Labels from counts over groups: Quadrianto et al., "Estimating labels from label proportions", JMLR 2009.
    """

    rows: Rows = 65_536
    ridge: Weight = 0.1
    weight: Weight = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: list[Tensor] = []  # ids by epoch, (n,)
        self._groups: list[Tensor] = []  # (n,), counted on over the epochs
        self._sums: list[Tensor] = []  # (groups,)

    def keep(self, view: View, g: Tensor) -> list[Tensor]:
        """Ids (b,), the gradients of groups (groups, d), and the group of each row (b,)."""
        return [view.ids.cpu(), *g.float().unique(dim=0, return_inverse=True)]

    def epoch(self, view: View) -> Answers:
        self.end_epoch()
        prior = view[ClassShares].positive
        if not self._sums or not 0 < prior < 1:
            return None
        ids, place = torch.cat(self._rows).unique(return_inverse=True)
        r = rows_of_sums(place, torch.cat(self._groups), torch.cat(self._sums), self.ridge)
        side = 1.0 if (float((r - r.mean()).pow(3).sum()) <= 0) == (prior <= 0.5) else -1.0
        embedded = self.embedded(view, ids)
        if embedded is None:
            return None
        asked, t = embedded
        scores = side * (self.weight * t - r[torch.searchsorted(ids, asked)])
        return Scores(asked.to(view.ids.device), {self._layer: scores})

    def join(self, met: list[list[Tensor]]) -> None:
        sizes = [group.bincount(minlength=len(g)).double() for _, g, group in met]
        sums = torch.cat([size[:, None] * g.double() for size, (_, g, _) in zip(sizes, met, strict=True)])
        scaled = sums / torch.cat(sizes).sqrt()[:, None]
        scaled = scaled / scaled.abs().max().clamp_min(1e-300)
        u = self.turned(top_eigenvector(scaled.T @ scaled))
        unit = (scaled @ u).square().mean().sqrt().clamp_min(1e-300)
        counted = torch.tensor([sum(map(len, self._sums)), *map(len, sizes)]).cumsum(0)[:-1]
        self._rows.append(torch.cat([ids for ids, _, _ in met]))
        self._groups.append(torch.cat([group + start for (_, _, group), start in zip(met, counted, strict=True)]))
        self._sums.append(scaled @ u / unit * torch.cat(sizes).sqrt())


def rows_of_sums(rows: Tensor, groups: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """The r (n,) of least squares with a ridge, float64; no (n, n) matrix is formed.

        min_r  sum_G (z_G - sum_(i in G) r_i)^2 / |G| + ridge |r|^2

    rows, groups: (m,) places of a row and of a group that it is in; each row is in one at least. sums: z (groups,).
    """
    weight = groups.bincount(minlength=len(sums)).clamp_min(1).double().rsqrt()
    member = csr_array((weight[groups].numpy(), (groups.numpy(), rows.numpy())), shape=(len(sums), int(rows.max()) + 1))
    return torch.from_numpy(lsmr(member, (weight * sums).numpy(), damp=ridge**0.5, atol=1e-9, btol=1e-9)[0])
