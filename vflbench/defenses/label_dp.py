"""Label differential privacy: the label party trains on labels that were randomized once each."""

import math
import secrets
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context
from vflbench.defenses.label_noise import (
    NoisyLabels,
    chances,
    class_losses,
    one_hot,
    posterior,
    prior,
    randomized_response,
    response_with_prior,
    with_room,
    zero_sum,
)
from vflbench.errors import UserError
from vflbench.generators import unguessable
from vflbench.metrics.privacy import Guarantee, Release, label_privacy
from vflbench.numerics.hashing import uniform
from vflbench.options import EpsOrZero, options

_UNSEEN = -1


@options
class LabelDp(NoisyLabels):
    """Randomized labels: the likelihood ratio of two classes of a row is at most e^eps, whatever is sent. If features
    predict the label, attacks read more than the ceiling of 0.731 at eps 1 from embeddings and gradients together.

        randomized_response   P(y' = y) = e^eps / (K - 1 + e^eps),   P(y' = j) = 1 / (K - 1 + e^eps) for each other class j
        zero_sum              the same y', and noise that adds up to 0 over the T epochs, which hides it from the network:
                              x_t = (y' - q) / (1 - 2q) + w_t - mean w,   w_t ~ N(0, T sd^2),   sd^2 = q (1 - q) / (1 - 2q)^2
        lp_2st                y' among the k likeliest classes of a prior p, for the k with the largest
                              e^eps / (e^eps + k - 1) (p_(1) + ... + p_(k)); a class that is not among them gives any of them

    eps >= 0; at 0 y' is a fair coin (or die), as in `LabelDP`, and a posterior is the prior. Each row's label is randomized
    once: y' is the same in every epoch, also in a resumed run. A row's random numbers follow from its id and a 64-bit key,
    drawn at the first call, so that no memory per row is needed. Its coins have 53 bits (`metrics.privacy`).
    mechanism: `zero_sum` is computed from y' and such numbers, so it costs no privacy. To the network x_t is y with fresh
    noise of variance T sd^2 whose mean over the epochs was replaced by that of y'. Epochs after the planned T have no noise.
    `lp_2st` uses the model's own prediction for p at the row's first visit, and stores two bytes a row. (Ghazi et al. train
    in stages, each on a part of the rows; here every batch of the first epoch is one.)
    target: `label` trains on y'. `posterior` trains on P(class | x_t), or given y', for a prior of the model's prediction:

        sigmoid(logit + log((e^(eps + u) + 1) / (e^u + e^eps))),   u = (x_t - 1/2) / ((1 - 2q) (T - 1) sd^2)

    and sigmoid(logit +- eps) given y'; K classes alike (`response_likelihood`). `auto`: `posterior` for zero_sum only.
    fresh_every_epoch: draws y' again at each call, to show the harm: eps then adds up over the epochs.
    debias: trains on an unbiased estimate of the loss on true labels, for T_(j, j') = P(y' = j' | y = j),

        l'(logits, y') = sum_j (T^-1)_(y', j) l(logits, j) = (l(logits, y') - q sum_j l(logits, j)) / (1 - K q),

    q = 1 / (K - 1 + e^eps), which can be negative; for the target `label` of randomized_response only.

    The guarantee bounds what the messages add about one row's own label: an attacker for whom both classes were equally
    likely beforehand is right with probability at most e^eps / (1 + e^eps). It doesn't bound a model that predicts labels
    from features. Where features reveal the label, embeddings may too, and a leak AUC above the ceiling is no violation.

    Source: Warner, "Randomized response", 1965; Ghazi et al., "Deep learning with label differential privacy", NeurIPS 2021,
    Algorithms 1 to 3; Natarajan et al., "Learning with noisy labels", NeurIPS 2013. Near to zero_sum: Chen et al., "Noise
    against noise", ICLR 2021; Erlingsson et al., "RAPPOR", CCS 2014 (docs/experiments/findings.md).
    """

    eps: EpsOrZero = 1.0
    mechanism: Literal["randomized_response", "zero_sum", "lp_2st"] = "randomized_response"
    target: Literal["auto", "label", "posterior"] = "auto"
    fresh_every_epoch: bool = False
    debias: bool = False

    def __post_init__(self) -> None:
        response = self.mechanism == "randomized_response"
        if self.debias and not (response and self.target != "posterior" and self.eps):
            problem = "no estimate of the loss is unbiased at eps = 0, where labels say nothing"
            if self.eps or not response:
                problem = "it needs one transition matrix for all rows, which only mechanism=randomized_response has"
            raise UserError(problem, key="debias", value=True)
        if self.fresh_every_epoch and self.mechanism == "zero_sum":
            problem = "noise that adds up to zero hides one y' of a row, and a fresh one each epoch has nothing to hide"
            raise UserError(problem, key="fresh_every_epoch", value=True)
        if (self.target, self.mechanism) in (("label", "zero_sum"), ("posterior", "lp_2st")):
            problem = f"mechanism={self.mechanism} allows {'label' if self.target == 'posterior' else 'posterior'} or auto"
            raise UserError(problem, key="target", value=self.target)
        super().__post_init__()
        self._released = torch.empty(0, dtype=torch.int16)  # by row id

    @property
    def hands_on_all(self) -> bool:
        return self.target != "posterior" and self.mechanism != "zero_sum"

    @property
    def hands_on_same(self) -> bool:
        return not self.fresh_every_epoch

    @property
    def replaces_loss(self) -> bool:
        return self.debias or not self.hands_on_all

    def release(self, y: Tensor, logits: Tensor, context: Context) -> tuple[Tensor, Tensor | None, None]:
        """The randomized labels, and the posteriors where it trains on these."""
        rng, classes = context.rng, max(2, logits.shape[1])
        key = self.key(context, self.mechanism == "lp_2st", self.eps)
        if self.fresh_every_epoch:
            u = torch.rand(len(y), generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        else:
            u = uniform(context.ids, key)
        if self.mechanism == "lp_2st":
            noisy = self._at_first_visit(context.ids, response_with_prior(y, prior(logits), self.eps, u))
        else:
            noisy = randomized_response(y, classes, self.eps, u)
        return noisy, None if self.hands_on_all else posterior(logits, self._likelihood(noisy, classes, context)), None

    def training_loss(self, epochs: int, key: int) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        if self.mechanism == "lp_2st":
            problem = "a loop that is gone on with has forgotten what it released, and releases again; runs remember it"
            raise UserError(problem, key="mechanism", value=self.mechanism)
        return super().training_loss(epochs, key)

    def _likelihood(self, noisy: Tensor, classes: int, context: Context) -> Tensor:
        """What this visit of the rows tells of the classes."""
        if self.eps == 0:
            return torch.zeros_like(one_hot(noisy, classes))
        estimate = response_estimate(noisy, classes, self.eps)
        visits = self._epochs if self.mechanism == "zero_sum" and context.epoch < self._epochs else 1
        deviation = response_deviation(classes, self.eps)
        if visits > 1:
            key = self.key(context, "noise", self.eps, visits)
            noise = zero_sum(context.ids, key, estimate.shape[1], visits, context.epoch)
            estimate = estimate + deviation * math.sqrt(visits) * noise
        return response_likelihood(estimate, classes, self.eps, deviation * math.sqrt(visits - 1))

    def _at_first_visit(self, ids: Tensor, noisy: Tensor) -> Tensor:
        """`noisy` for rows at their first visit; for others, the label that was drawn then."""
        if self.fresh_every_epoch:
            return noisy
        places = ids.cpu()
        self._released = with_room(self._released, places, _UNSEEN)
        known = self._released[places].to(noisy)
        noisy = torch.where(known == _UNSEEN, noisy, known)
        self._released[places] = noisy.to("cpu", torch.int16)
        return noisy

    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """With posteriors the mean cross-entropy, of the batch that `labels` saw last; debias=true: of corrected losses."""
        if not self.debias:
            return super().loss(logits, y)
        losses = class_losses(logits)
        _, flip = chances(losses.shape[1], self.eps)
        of_label = losses.gather(1, y[:, None])[:, 0]
        return ((of_label - flip * losses.sum(dim=1)) / (1 - losses.shape[1] * flip)).mean()

    def guarantee(self) -> Guarantee:
        times = "in each epoch anew, which adds up" if self.fresh_every_epoch else "once, however many messages follow"
        what = f"each label is randomized with eps = {self.eps:g} ({self.mechanism}) {times}"
        return label_privacy(what, Release(self.mechanism, self.eps, self.fresh_every_epoch))


def response_estimate(noisy: Tensor, classes: int, eps: float) -> Tensor:
    """(n, C) unbiased estimates from randomized response: (one_hot(y') - q) / (1 - K q), q the chance of another class."""
    _, flip = chances(classes, eps)
    return (one_hot(noisy, classes) - flip) / (1 - classes * flip)


def response_deviation(classes: int, eps: float) -> float:
    """Standard deviation of `response_estimate`, of each column for two classes; for K > 2 the s of the noise s (I - 11'/K)
    with the same trace.
    """
    keep, flip = chances(classes, eps)
    spread = (1 - keep * keep - (classes - 1) * flip * flip) / (classes - 1)
    return math.sqrt(max(0.0, spread) / (2 if classes == 2 else 1)) / (1 - classes * flip)


def response_likelihood(estimate: Tensor, classes: int, eps: float, deviation: float) -> Tensor:
    """(n, C) log-likelihoods of the classes, from `response_estimate` plus Gaussian noise of this deviation (projected).

        log sum_c P(c | j) exp(x_c / ((1 - K q) deviation^2))

    For two classes it is log((e^(eps + u) + 1) / (e^u + e^eps)), u = (x - 1/2) / ((1 - 2 q) deviation^2). Both stay within
    eps of each other, however far the noise goes: all that an estimate can tell is the randomized label.
    """
    keep, flip = chances(classes, eps)
    scale = max(1e-300, (1 - classes * flip) * deviation * deviation)  # without noise: the randomized label itself
    if classes == 2:
        u = ((estimate - 0.5) / scale).clamp(-1e300, 1e300)
        distance = u.abs()
        return u.sign() * (eps + torch.log1p((-eps - distance).exp()) - F.softplus(eps - distance))
    exponents = ((estimate - estimate.amax(dim=1, keepdim=True)) / scale).exp()  # of the largest: 1
    return (flip * exponents.sum(dim=1, keepdim=True) + (keep - flip) * exponents).log()


class LabelDP:
    """eps-label-DP for a batch of labels, by itself: LabelDP(eps)(labels) randomizes each label once a call.

        P(y' = y) = e^eps / (K - 1 + e^eps),   P(y' = j) = 1 / (K - 1 + e^eps) for each other class j

    to 53 bits, as the page of MindSpore Federated describes its class of this name. What that class computes for one-hot
    labels, the arg-max of eps y + Laplace(0, 1), is another mechanism with another eps: 1.137 instead of 1 at K = 10.

    eps >= 0; 0 leaves nothing of the labels. classes: K of integer labels; as many as the largest one says, at least two, if
    left out. seed: for numbers that come again with each instance; from the operating system if left out.

    Calling it twice on the same labels releases each twice: eps adds up.
    """

    def __init__(self, eps: float, *, classes: int | None = None, seed: int | None = None):
        if not 0 <= eps < math.inf:
            raise UserError("it must be a finite number, 0 or more", key="eps", value=eps)
        self.eps, self.classes = float(eps), classes
        self._rng = unguessable(secrets.token_bytes(32)) if seed is None else torch.Generator().manual_seed(seed)

    def __call__(self, labels: Any, generator: torch.Generator | None = None) -> Any:
        """The randomized labels, in kind: type, dtype, shape and device.

        labels: NumPy array or torch tensor of any numeric dtype; (n,) or (n, 1) classes 0 .. K - 1, or (n, K) one-hot rows.
        generator: in place of the instance's own.

        Raises UserError for anything else.
        """
        if not isinstance(labels, np.ndarray | Tensor):
            raise UserError("labels must be a NumPy array or a torch tensor", key="labels", value=type(labels).__name__)
        given = torch.from_numpy(np.array(labels)) if isinstance(labels, np.ndarray) else labels.detach()
        rows = given.dim() == 2 and given.shape[1] > 1
        y = given.double().argmax(dim=1) if rows else given.reshape(-1).long()
        classes = given.shape[1] if rows else self.classes or max([1, *y.tolist()]) + 1

        def in_kind(y: Tensor) -> Tensor:
            return (F.one_hot(y, classes) if rows else y.reshape(given.shape)).to(given.dtype)

        if bool(((y < 0) | (y >= (self.classes or classes))).any()) or not torch.equal(in_kind(y), given):
            whole = f"whole numbers from 0, below {self.classes or classes}"
            raise UserError(f"labels must be {whole}, or one-hot rows: a single 1, and 0 elsewhere", key="labels")
        rng = self._rng if generator is None else generator
        u = torch.rand(len(y), generator=rng, device=rng.device, dtype=torch.float64)
        noisy = in_kind(randomized_response(y, classes, self.eps, u.to(y.device)))
        return noisy.numpy().astype(labels.dtype, copy=False) if isinstance(labels, np.ndarray) else noisy
