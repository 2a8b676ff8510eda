"""Randomized response among K classes, and what a randomized label says about the true one."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


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
    part = (
        ((u - keep) / torch.as_tensor(1 - keep, dtype=torch.float64, device=u.device).clamp_min(1e-300) * count)
        .clamp(0, 2.0**31)
        .long()
    )
    return torch.minimum(part, torch.as_tensor(count - 1, device=u.device).clamp_min(0))


def prior(logits: Tensor) -> Tensor:
    """(n, K) class probabilities of logits (n, 1) or (n, K), in float64."""
    return (-class_losses(logits.double())).exp()


def class_losses(logits: Tensor) -> Tensor:
    """(n, K) cross-entropy in nats, were that class the label; logits (n, 1) for two classes, (n, K)."""
    if logits.shape[1] == 1:
        return torch.cat([F.softplus(logits), F.softplus(-logits)], dim=1)
    return -F.log_softmax(logits, dim=1)
