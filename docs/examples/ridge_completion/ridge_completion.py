"""Model completion: a head for the attacker's own network, trained on a few rows whose labels it knows."""

import torch
from torch import Tensor

from vflbench import Attack, Known, LocalModel, Scores, Threat, View
from vflbench.options import Count, options


@options
class RidgeCompletion(Attack):
    """Fit a linear head from the embeddings of k known rows to their labels, and score all other rows with it.

    k: rows whose labels are known during the whole run.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022.
    """

    k: Count = 20

    @property
    def threat(self) -> Threat:
        return Threat(knows={LocalModel}, known_rows=self.k)

    def epoch(self, view: View) -> Scores:
        known, embed = view[Known], view[LocalModel].embed
        heads = {layer: ridge(h, known.labels) for layer, h in embed(known.ids).items()}
        return Scores(view.ids, {layer: heads[layer](h) for layer, h in embed(view.ids).items()})


def ridge(h: Tensor, y: Tensor):
    """The linear function of h with the least squared error plus a tenth of the mean square of h; y: (k,) classes."""
    mean, x = h.double().mean(dim=0), h.double() - h.double().mean(dim=0)
    target = (y != 0).double() - (y != 0).double().mean()
    gram = x @ x.T + (0.1 * x.square().sum() + 1e-12) / len(x) * torch.eye(len(x), dtype=torch.float64, device=h.device)
    weights = x.T @ torch.linalg.solve(gram, target)
    return lambda rows: (rows.double() - mean) @ weights
