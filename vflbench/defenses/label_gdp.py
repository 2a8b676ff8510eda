"""Gaussian label privacy: noise on the residual of the loss, before it flows back through top and cut."""

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context
from vflbench.defenses.label_noise import NoisyLabels, one_hot, posterior, projected
from vflbench.metrics.privacy import GaussianRelease, Guarantee, label_privacy
from vflbench.numerics.hashing import normals
from vflbench.options import Range, options


@options
class LabelGdp(NoisyLabels):
    """Gaussian noise on the residual of the loss, with one budget for the whole run: mu-Gaussian label privacy, whatever is
    sent.

        dL / dlogit = p - x_t,   x_t = y + N(0, 1 / mu_0^2),   for the visit t of a row
        K classes: x_t = one_hot(y) + N(0, (2 / mu_0^2) (I - 11' / K))

    The noise is drawn before the residual flows back through top and cut, so that the gradients of every party, those of a
    wide part and the weights of the top are computed from x_1, x_2, ... and not from y. To distinguish two classes of a row
    is then as hard as to distinguish N(0, 1) from N(mu, 1), with

        mu^2 = 1' S^+ 1,   S the covariance of the noise over a row's visits, if 1 lies in its range; else nothing is hidden

    mu > 0: budget of all epochs of the run together; the largest mu of any row. noise: `fresh` draws x_t anew in each of the
    T epochs, mu_0 = mu / sqrt(T), S = I / mu_0^2. `once` keeps one x for all of them, mu_0 = mu, S = 11' / mu^2: networks
    memorise it. A row that occurs twice in an epoch has the same x_t both times. After the T planned epochs x is the mean of
    x_1 ... x_T, which reveals nothing new.
    target: what takes the place of x in the residual. `estimate`: x itself. `posterior`: P(class | x_t) for a prior of the
    model's own prediction, which is computed from x_t and lies in [0, 1].

    The promise holds for neighbours that differ in one row's label; ids, features, batches, learning rates and settings are
    public. It bounds what the messages add about that label, given everything else. It does not bound what features predict.
    AUC <= Phi(mu / sqrt(2)); balanced error >= Phi(-mu / 2); delta(eps) = Phi(-eps / mu + mu / 2) - e^eps Phi(-eps / mu - mu
    / 2). No amplification by sampling is claimed, as ids are visible. Outside the promise: train AUC, class shares and
    counts that are computed from true labels, and rows that were chosen by them (`dataset.positive_ratio`); an attacker who
    guesses the seed, or searches 64-bit keys (noise comes from 53 bits of a mixing function, which is no cipher, and
    floating-point numbers are not real numbers: Mironov, 2012); other runs on the same labels, whose mu adds up, as the root
    of squares.

    Noise on gradients along the difference that the label makes to them is noise on the residual: this is the mechanism of
    TPSL (`tpsl`, Laplace noise and pure eps a message) with Gaussian noise, which composes exactly over the epochs. The
    posterior is ALIBI's (`alibi`), whose code has Gaussian noise as well, with a Renyi accountant.

    Source: Yang et al., "Differentially private label protection in split learning", 2022 (TPSL); Malek et al., "Antipodes
    of label differential privacy", NeurIPS 2021 (ALIBI); Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022.
    """

    mu: Annotated[float, Range(1e-6, 1e4)] = 1.0
    noise: Literal["fresh", "once"] = "fresh"
    target: Literal["estimate", "posterior"] = "posterior"

    def release(self, y: Tensor, logits: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The classes that x_t looks like, the targets (n, C), and what x_t tells."""
        x, mu = self._seen(y, logits.shape[1], context)
        likelihood = gaussian_likelihood(x, mu)
        return most_likely(x), posterior(logits, likelihood) if self.target == "posterior" else x, likelihood

    def _seen(self, y: Tensor, columns: int, context: Context) -> tuple[Tensor, float]:
        """x of this visit, (n, C), and the mu of it alone."""
        classes, epochs = max(2, columns), self._epochs if self.noise == "fresh" else 1
        visits = [context.epoch] if context.epoch < epochs else list(range(epochs))
        key = self.key(context, self.mu, epochs)  # so that runs of other budgets have other noise
        noise = torch.stack([normals(context.ids, key, visit * columns, columns) for visit in visits]).sum(dim=0)
        mu = self.mu * math.sqrt(len(visits) / epochs)
        noise *= gaussian_deviation(classes, mu) / math.sqrt(len(visits))
        return one_hot(y, classes) + projected(noise), mu

    def guarantee(self) -> Guarantee:
        once = self.noise == "once"
        times = "once, however many messages follow" if once else f"fresh in each of {self._epochs} epochs"
        what = f"each label gets Gaussian noise, {times}, of mu = {self.mu:g} in all"
        return label_privacy(what, GaussianRelease("gaussian", self.mu, 1 if once else self._epochs, once))


def most_likely(estimate: Tensor) -> Tensor:
    """(n,) int64 classes: those with the largest estimate."""
    return (estimate[:, 0] > 0.5).long() if estimate.shape[1] == 1 else estimate.argmax(dim=1)


def gaussian_likelihood(estimate: Tensor, mu: float) -> Tensor:
    """(n, C) log-likelihoods of the classes from one-hot labels with the noise of `gaussian_deviation`."""
    return mu * mu * ((estimate - 0.5) if estimate.shape[1] == 1 else estimate / 2)


def gaussian_deviation(classes: int, mu: float) -> float:
    """Of the noise for which the one-hot labels of two classes are N(0, 1) and N(mu, 1) to the best reader: 1 / mu for the
    one column of two classes; sqrt(2) / mu, projected, for K > 2, whose one-hot rows are sqrt(2) apart.
    """
    return (1 if classes == 2 else math.sqrt(2)) / mu
