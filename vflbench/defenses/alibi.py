"""ALIBI: soft labels that Bayes' rule makes of labels with Laplace noise."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context
from vflbench.defenses.label_noise import NoisyLabels, class_losses, laplace_evidence
from vflbench.metrics.privacy import Guarantee, Release, label_privacy
from vflbench.numerics.hashing import laplace, uniform
from vflbench.options import Eps, options


@options
class Alibi(NoisyLabels):
    """Laplace noise on one-hot labels, once for each row, and training on the posterior of the label: eps-label-DP. If
    features predict the label, `residual` reads more than the ceiling of 0.731 at eps 1, as for `label_dp`.

        x = onehot(y) + Laplace(2 / eps)^K,   q_j = p_j e^(-|x - onehot(j)|_1 eps / 2) / sum_i of the same,
        L = -mean_rows sum_j q_j log softmax(logits)_j

    Two one-hot labels are 2 apart in L1, so x is eps-DP. Everything else is computed from x, and from a model that has
    learned from nothing else. So the whole run is eps-DP.

    eps > 0: eps of the run. prior: p of Bayes' rule. It is the same for each class (`uniform`), or the model's current
    prediction for the row (`prediction`), as published. With `prediction`, the soft label q of a row differs from epoch to
    epoch, although x is the same.

    The noise of a row is computed from its id and a 64-bit key, drawn at the first call: it is the same in every epoch and
    in a resumed run, and nothing is stored by row. Other defenses get the class with the largest x. In a chain, it must be
    the last of the defenses that change labels.

    Noise is drawn in floating point, as if that were exact: the claim says so (`metrics.privacy`). It bounds what
    messages add about one row's own label, and not what features predict: see `label_dp`.

    Source: Malek, Mironov, Prasad, Shilov and Tramer, "Antipodes of Label Differential Privacy: PATE and ALIBI", NeurIPS
    2021, and the authors' code, whose default the prior by prediction is.
    """

    eps: Eps = 1.0
    prior: Literal["uniform", "prediction"] = "prediction"

    def release(self, y: Tensor, logits: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The class with the largest x, the posterior q (n, K), and what x tells."""
        classes = max(2, logits.shape[1])
        x = F.one_hot(y, classes) + row_noise(context.ids, classes, 2 / self.eps, self.key(context, self.eps))
        evidence = laplace_evidence(x)
        prior = 0.0 if self.prior == "uniform" else -class_losses(logits.double())
        return x.argmax(dim=1), torch.softmax(self.eps * evidence + prior, dim=1), evidence

    def guarantee(self) -> Guarantee:
        what = f"each label gets Laplace noise with eps = {self.eps:g} once, however many messages follow"
        return label_privacy(what, Release("laplace", self.eps))


def row_noise(ids: Tensor, classes: int, scale: float, key: int) -> Tensor:
    """(n, K) float64 Laplace numbers, independent of each other, determined by ids (n,) >= 0 and key."""
    places = ids[:, None] * classes + torch.arange(classes, device=ids.device)
    return laplace(uniform(places, key), scale)
