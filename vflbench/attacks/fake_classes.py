"""Attack on fake classes: gradients of one fake class point one way, and embeddings tell whose fake class it is."""

from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.attacks.base import Attack, Scores, last_met
from vflbench.attacks.kmeans import clusters
from vflbench.messages.facts import ClassShares, Embeddings, Gradients
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import top_eigenvector
from vflbench.options import Count, Range, options

_ALIKE = 10  # clusters, of all batches, that are joined with each


@options
class FakeClasses(Attack):
    """Cluster the directions of gradients, and give each cluster the class that the embeddings of its rows show; for two
    classes.

        c_i = cluster of g_i / |g_i|,   m_c = mean of h_i over the rows of c and of the 9 clusters most like it,
        s_i = <m_(c_i), u>,             u: the top direction of the m_c, each weighted by its rows

    over the rows of an epoch's audited batches, at every layer. A cluster is formed in one batch, and h has the mean of its
    batch subtracted. Clusters of any batches are similar if their mean gradients have a large cosine: a fake class keeps its
    direction while the network changes.

    If labels are mapped to more classes, one of which is drawn for each visit, a gradient reveals which one was drawn. The
    length of the gradient may be hidden, and no direction is shared by all. But the fake classes of one class have rows of
    that class only, whose embeddings have the same mean. This mean differs from that of the other class, as soon as the
    model has learned anything.

    count: clusters of a batch, at least as many as there are fake classes; more than these cost little. If positives are the
    minority, they are on the side of u on which few rows lie far out. If they are the majority, they are on the other side.

    It is the adaptive attack on fake_labels. Source: ours.
    """

    threat = Threat(knows={Gradients, Embeddings, ClassShares})

    count: Annotated[Count, Range(1, 10**4)] = 16

    def __post_init__(self) -> None:
        self._ids: list[Tensor] = []
        self._clusters: dict[str, list[Tensor]] = {}
        self._means: dict[str, list[Tensor]] = {}
        self._centres: dict[str, list[Tensor]] = {}

    def observe(self, view: View) -> None:
        if len(view.ids) < self.count:
            return
        seed = int(torch.randint(2**31 - 1, (), generator=view.rng, device=view.rng.device))
        embeddings, seen = view[Embeddings].layers, self.count * len(self._ids)
        self._ids.append(view.ids.cpu())
        for layer, g in view[Gradients].layers.items():
            unit, h = F.normalize(g.double(), dim=1).cpu(), embeddings[layer].double().cpu()
            cluster = torch.from_numpy(clusters(unit.float().numpy(), self.count, seed)[0]).long()
            self._clusters.setdefault(layer, []).append(seen + cluster)
            for kept, values in ((self._means, h - h.mean(dim=0)), (self._centres, unit)):
                sums = values.new_zeros(self.count, values.shape[1]).index_add_(0, cluster, values)
                kept.setdefault(layer, []).append(sums / cluster.bincount(minlength=self.count).clamp_min(1)[:, None])

    def epoch(self, view: View) -> Scores | None:
        is_met, rows = last_met(self._ids, view.ids)
        if not len(rows):
            return None
        positive, scores = view[ClassShares].positive, {}
        for layer, parts in self._clusters.items():
            if len(parts) < len(self._ids):  # a gradient was withheld
                continue
            means, centres = torch.cat(self._means[layer]), torch.cat(self._centres[layer])
            scores[layer] = by_class(torch.cat(parts), means, centres, positive)[rows]
        self.__post_init__()
        return Scores(view.ids[is_met.to(view.ids.device)], scores)


def by_class(cluster: Tensor, means: Tensor, centres: Tensor, positive: float) -> Tensor:
    """(n,) scores, those of a cluster equal. cluster: (n,) from 0; means: (clusters, d) float64, of their rows' embeddings,
    around 0; centres: (clusters, d), of their unit gradients; positive: the share of class 1.
    """
    sizes = cluster.bincount(minlength=len(means)).double()
    unit = F.normalize(centres, dim=1)
    nearest = (unit @ unit.T).topk(min(_ALIKE, len(unit)), dim=1).indices
    joined = (means * sizes[:, None])[nearest].sum(dim=1) / sizes[nearest].sum(dim=1, keepdim=True).clamp_min(1)
    weighted = joined * sizes.sqrt()[:, None]
    along = (joined @ top_eigenvector(weighted.T @ weighted))[cluster]
    few_are_above = along.pow(3).sum() > 0
    return along if bool(few_are_above) == (positive < 0.5) else -along
