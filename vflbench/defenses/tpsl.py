"""TPSL: noise along the difference that the label makes to a gradient, drawn anew for each message."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context
from vflbench.defenses.label_noise import NoisyLabels, laplace_evidence, randomized_response
from vflbench.metrics.privacy import Guarantee, Release, label_privacy
from vflbench.numerics.hashing import laplace
from vflbench.options import Eps, options


@options
class Tpsl(NoisyLabels):
    """Noise on each gradient along the difference that the label makes to it, again in each epoch: eps-label-DP of each
    message. Epochs add up. `posterior` reads what features and messages reveal together.

        two classes   g'_i = g_i(y) + u_i (g_i(1 - y) - g_i(y)),   u_i ~ Laplace(1 / eps), or Bernoulli(1 / (1 + e^eps))
        K > 2         g'_i = g_i(y) + sum_c u_ic g_i(c),           u_ic ~ Laplace(2 / eps), independent

    g_i(c): the gradient of row i if it had class c. Because g_i(c) = (p_i - onehot(c)) J_i, g'_i is the gradient of the
    cross-entropy for a noisy label that is not a class. It is computed in this way, by the loss, so the noise flows through
    top and cut:

        two classes   g'_i = (p_i - y_i - z_i) J_i,                z_i = (1 - 2 y_i) u_i
        K > 2         g'_i = (p_i sum_c t_ic - t_i) J_i,           t_i = onehot(y_i) + u_i

    So one number, or t_i, is released, whatever layers, parties and parameters it reaches. It is a label with noise, with
    sensitivity 1 (2 in L1 for K > 2), and therefore eps-DP. Bernoulli flips the label, as `label_dp` with fresh_every_epoch
    does, and is for two classes only.

    eps > 0: eps of one message. A row occurs once in an epoch, and T epochs are T eps-DP. Other defenses get the class
    nearest to the noisy label. In a chain, it must be the last of the defenses that change labels. Laplace noise is drawn in
    floating point, as if that were exact: the claim says so (`metrics.privacy`).

    Source: Yang, Sun, Yao, Xie and Wang, "Differentially Private Label Protection in Split Learning" (TPSL), 2022
    (arXiv:2203.02073); the formulas as three independent implementations have them, in FederatedScope (two classes), EFLS
    (two classes, which puts the difference of the class means in place of the row's own) and VFLAIR (K classes).
    """

    eps: Eps = 1.0
    noise: Literal["laplace", "bernoulli"] = "laplace"

    def __post_init__(self) -> None:
        if self.noise == "bernoulli":
            vars(self)["max_classes"] = 2
        super().__post_init__()
        self._classes = 2

    def release(self, y: Tensor, logits: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The class nearest to the noisy label, the noisy label (n, K), and what it tells."""
        rng, self._classes = context.rng, (classes := max(2, logits.shape[1]))
        drawn = (len(y),) if classes == 2 else (len(y), classes)
        u = torch.rand(drawn, generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        if self.noise == "bernoulli":
            noisy = F.one_hot(randomized_response(y, 2, self.eps, u), 2).double()
        elif classes == 2:
            t = y + laplace(u, 1 / self.eps)
            noisy = torch.stack([1 - t, t], dim=1)
        else:
            noisy = F.one_hot(y, classes) + laplace(u, 2 / self.eps)
        return noisy.argmax(dim=1), noisy, laplace_evidence(noisy[:, 1:] if classes == 2 else noisy)

    def guarantee(self) -> Guarantee:
        mechanism = "laplace" if self.noise == "laplace" else "randomized_response"
        times = "in each epoch anew, which adds up"
        what = f"the loss's residual of each row has noise with eps = {self.eps:g} ({mechanism}) {times}"
        return label_privacy(what, Release(mechanism, self.eps, fresh=True, numbers=min(2, self._classes - 1)))
