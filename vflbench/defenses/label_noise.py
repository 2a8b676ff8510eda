"""Noisy labels: randomized response, noise that adds up to zero, losses of soft labels, and the base of the defenses that
train on them.

An estimate of n labels is (n, 1), of class 1, for two classes and (n, K) for K > 2; so are log-likelihoods of classes, up to
a constant for each row, of which (n, 1) is the log-likelihood ratio of class 1 to class 0. Noise on K > 2 columns is
projected on the plane of columns that add up to zero.
"""

import copy
import math
import secrets
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context, LabelDefense
from vflbench.errors import UserError
from vflbench.generators import unguessable
from vflbench.numerics.hashing import derived, drawn_key, normals


def chances(classes: int, eps: float) -> tuple[float, float]:
    """P(y' = y) and P(y' = j) for each other class, of randomized response over `classes`."""
    flip = math.exp(-eps) / (1 + (classes - 1) * math.exp(-eps))
    return 1 / (1 + (classes - 1) * math.exp(-eps)), flip


def randomized_response(y: Tensor, classes: int, eps: float, u: Tensor) -> Tensor:
    """y: (n,) classes below `classes`; u: (n,) float64 numbers, uniform in [0, 1) and independent of y."""
    keep, _ = chances(classes, eps)
    return torch.where(u < keep, y, (y + 1 + _rest(u, keep, classes - 1)) % classes)


def response_with_prior(y: Tensor, prior: Tensor, eps: float, u: Tensor) -> Tensor:
    """Randomized response among the likeliest classes, as many as make the right answer most probable.

    y: (n,) classes; prior: (n, K) probabilities; u: (n,) float64, uniform in [0, 1).

    Source: Ghazi et al., "Deep learning with label differential privacy", 2021, Algorithms 1 (RRTop-k) and 2 (RRWithPrior).
    """
    sizes = torch.arange(1, prior.shape[1] + 1, device=prior.device, dtype=torch.float64)
    by_likelihood, order = prior.to(torch.float64).sort(dim=1, descending=True, stable=True)
    keep_of = 1 / (1 + (sizes - 1) * math.exp(-eps))
    best = (keep_of * by_likelihood.cumsum(dim=1)).argmax(dim=1)
    k, keep = best + 1, keep_of[best]
    place = (order == y[:, None]).long().argmax(dim=1)
    among = torch.where(u < keep, place, (place + 1 + _rest(u, keep, k - 1)) % k)
    outside = torch.minimum((u * k).long(), k - 1)
    return order.gather(1, torch.where(place < k, among, outside)[:, None])[:, 0]


def _rest(u: Tensor, keep: Tensor | float, count: Tensor | int) -> Tensor:
    """Which of `count` equal parts of [keep, 1) u lies in; anything where it lies below."""
    above = torch.as_tensor(1 - keep, dtype=torch.float64, device=u.device).clamp_min(1e-300)
    part = ((u - keep) / above * count).clamp(0, 2.0**31).long()
    return torch.minimum(part, torch.as_tensor(count - 1, device=u.device).clamp_min(0))


def prior(logits: Tensor) -> Tensor:
    """(n, K) class probabilities of logits (n, 1) or (n, K), in float64."""
    return (-class_losses(logits.double())).exp()


def class_losses(logits: Tensor) -> Tensor:
    """(n, K) cross-entropy in nats, were that class the label; logits (n, 1) for two classes, (n, K)."""
    if logits.shape[1] == 1:
        return torch.cat([F.softplus(logits), F.softplus(-logits)], dim=1)
    return -F.log_softmax(logits, dim=1)


def one_hot(y: Tensor, classes: int) -> Tensor:
    """(n, C) float64 of (n,) classes."""
    return y[:, None].double() if classes == 2 else F.one_hot(y, classes).double()


def projected(noise: Tensor) -> Tensor:
    """On columns that add up to zero, where there are several."""
    return noise if noise.shape[1] == 1 else noise - noise.mean(dim=1, keepdim=True)


def zero_sum(ids: Tensor, key: int, columns: int, visits: int, visit: int) -> Tensor:
    """(n, columns) noise of one of `visits` visits to each row, 0 in those after them: w_t - mean w, for w_t ~ N(0, 1).

    Its variance is 1 - 1 / visits and it sums to zero over the visits. Drawn visit by visit, it is N(-A / left,
    (left - 1) / left) for the sum A of what came before and `left` visits, with this one.
    """
    if visit >= visits:
        return torch.zeros(len(ids), columns, dtype=torch.float64, device=ids.device)
    total = sum((normals(ids, key, t * columns, columns) for t in range(1, visits)), normals(ids, key, 0, columns))
    return projected(normals(ids, key, visit * columns, columns) - total / visits)


def laplace_evidence(x: Tensor) -> Tensor:
    """(n, C) log-likelihoods of the classes, divided by eps, from labels with Laplace noise: (n, 1) of two, whose scale is 1
    / eps, or (n, K) one-hot rows, with 2 / eps.
    """
    return (x.abs() - (x - 1).abs()) / min(2, x.shape[1])


def posterior(logits: Tensor, likelihood: Tensor) -> Tensor:
    """(n, C) probabilities of classes for a prior of these logits, (n, C); of class 1 for two classes."""
    total = logits.double() + likelihood
    return total.sigmoid() if logits.shape[1] == 1 else total.softmax(dim=1)


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy with targets in place of one-hot labels: (n, K), or (n, 1) of class 1 for two classes; its gradient
    in the logits is (p - target) / n for targets that add up to 1, which else may be any numbers.
    """
    targets = targets.to(logits.dtype)
    if targets.shape[1] == 1:
        return (F.softplus(logits) - targets * logits).mean()
    return (targets * class_losses(logits)).sum(dim=1).mean()


def with_room(table: Tensor, ids: Tensor, fill: float = 0) -> Tensor:
    """The table by row id (rows, ...), with room for these ids; twice as many rows where there was none, so that it is
    seldom copied.
    """
    missing = int(ids.max()) + 1 - len(table) if len(ids) else 0
    if missing <= 0:
        return table
    return torch.cat([table, table.new_full((max(missing, len(table)), *table.shape[1:]), fill)])


def _within(numbers: Tensor, end: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < end)


class NoisyLabels(LabelDefense):
    """A defense that trains on noisy labels, and hands on to other defenses the classes that these look like.

    A subclass defines `release`. Noise of a row follows from its id and a 64-bit key, drawn at the first call: nothing is
    stored by row.
    """

    def __post_init__(self) -> None:
        self._key: int | None = None
        self._epochs = 1
        self._noisy: Tensor | None = None  # of the batch that `labels` was given last; so are the others
        self._targets: Tensor | None = None
        self._evidence: Tensor | None = None

    def release(self, y: Tensor, logits: Tensor, context: Context) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(n,) classes to hand on, the targets of `soft_loss` where it trains on other ones, and the `evidence` of its noise
        where that tells more than these classes.
        """
        raise NotImplementedError

    def training_loss(self, epochs: int, key: int) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        """The loss for a training loop of one's own, in which labels are as well hidden as in a run of so many epochs.

        Returns loss(logits, y, ids, epoch): the mean loss, differentiable in the logits, (n, 1) for two classes and (n, K)
        for K > 2. y: (n,) whole numbers from 0, the true classes. ids: (n,) whole numbers from 0 to 2^63 / K, of an integer
        type: what a row is called at each of its visits, one in each epoch. epoch: 0 .. epochs - 1. To be called once for
        each batch, in place of cross-entropy; nothing else of what leaves the party may depend on y. Raises UserError for
        anything else: noise on -1 and 1 would hide little, and ids that floating point makes equal share their noise.

        key: a secret whole number from 0, below 2^63, from which noise that is drawn once for a row and epoch follows. Where
        training on these labels is gone on with, key, epochs and options have to be the same: other ones make other noise,
        and both together tell more than either. Other labels need another key. Noise that is drawn anew at each call comes
        from the operating system.
        """
        for name, value, least in (("epochs", epochs, 1), ("key", key, 0)):
            if type(value) is not int or not least <= value < 2**63:
                raise UserError(f"it must be an int from {least}, below 2^63", key=name, value=value)
        self.plan(epochs)
        defense, rng = copy.deepcopy(self), unguessable(secrets.token_bytes(32))
        defense._key = key

        def loss(logits: Tensor, y: Tensor, ids: Tensor, epoch: int) -> Tensor:
            if logits.dim() != 2 or logits.shape[1] in (0, 2):
                shape = tuple(logits.shape)
                raise UserError("they must be (n, 1) for two classes, (n, K) for K > 2", key="logits", value=shape)
            count, most = max(2, logits.shape[1]), (2**63 - 1) // max(2, logits.shape[1])
            for key, values, end in (("y", y, count), ("ids", ids, most)):
                is_right = values.shape == logits.shape[:1] and torch.equal(values.long().to(values.dtype), values)
                if not is_right or (key == "ids" and ids.is_floating_point()) or not _within(values.long(), end):
                    integer = ", of an integer type" * (key == "ids")
                    raise UserError(f"they must be (n,) whole numbers from 0, below {end}{integer}", key=key)
            if type(epoch) is not int or not 0 <= epoch < epochs:
                raise UserError(f"it must be an int from 0, below the {epochs} planned", key="epoch", value=epoch)
            seen = defense.labels(y.long(), logits.detach(), Context(ids.long(), None, epoch, rng))
            replaced = defense.loss(logits, seen)
            return soft_loss(logits, one_hot(seen, count)) if replaced is None else replaced

        return loss

    def key(self, context: Context, *purpose: object) -> int:
        """The key of a purpose."""
        self._key = drawn_key(context.rng) if self._key is None else self._key
        return derived(self._key, *purpose)

    def plan(self, epochs: int) -> None:
        self._epochs = epochs

    def labels(self, y: Tensor, logits: Tensor, context: Context) -> Tensor:
        """y: (n,) classes; logits: (n, 1) for two classes, (n, K) for K > 2."""
        self._noisy, self._targets, self._evidence = seen, *_ = self.release(y, logits, context)
        self.tally("flip_rate", int((seen != y).sum()), of=len(y))  # the share whose noisy label looks like another class
        return seen

    def loss(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """Mean cross-entropy with the targets of the batch that `labels` was given last."""
        if self._targets is None:
            return None
        if self._noisy is None or not torch.equal(y, self._noisy):
            problem = "another defense changes labels after it, which training would ignore; put it behind that one"
            raise UserError(problem, key="defense", value=type(self).__module__.rpartition(".")[2])
        return soft_loss(logits, self._targets)

    def evidence(self) -> Tensor | None:
        return self._evidence
