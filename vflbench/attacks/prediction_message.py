"""What a label party reads of the joint model's predictions: logits, or probabilities as they are published."""

import math

import torch
from torch import Tensor

from vflbench.attacks.equation_solving_system import ROUNDING

_TINY = 1.5e-38  # the smallest number that float32 keeps where denormals are flushed


def probabilities(logits: Tensor, decimals: int | None = None) -> Tensor:
    """Softmax of (n, K) logits, or of (n, 1) the probability of class 1, in float32; rounded to so many decimals."""
    logits = logits.float()
    p = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)
    return p if decimals is None else (p.double() * 10**decimals).round() / 10**decimals


def log_odds(p: Tensor, decimals: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What probabilities say of logits: the differences z_j - z_r, between bounds.

    p: (n, K), or (n, 1) for two classes, of which class 0 is then r and z_r = 0. r: the likeliest class of the row.
    Returns r (n,), lower and upper bounds (n, K) of the differences; infinite where a probability is 0, or 1 - p is:
    there float32, or the rounding, has kept nothing but an inequality. decimals: to which they were rounded.
    """
    p = p.double()
    half = 0.5 * 10.0**-decimals if decimals is not None else 0.0
    if p.shape[1] == 1:
        error = half + ROUNDING * p * (4 - p.clamp_min(_TINY).log())
        low, high = torch.where(p > _TINY, p - error, 0.0).clamp_min(0), (p + error).clamp(2 * _TINY, 1)
        return torch.zeros(len(p), dtype=torch.int64, device=p.device), _logit(low), _logit(high)
    error = half + ROUNDING * p * (p.shape[1] + 4 - p.clamp_min(_TINY).log())
    low, high = torch.where(p > _TINY, p - error, 0.0).clamp_min(0), (p + error).clamp(2 * _TINY, 1)
    r = p.argmax(dim=1)
    at = r[:, None]
    lower = low.log() - high.gather(1, at).log()
    upper = high.log() - low.gather(1, at).log()
    return r, lower.scatter(1, at, 0.0), upper.scatter(1, at, 0.0)


def _logit(p: Tensor) -> Tensor:
    odds = p.log() - (-p).log1p()
    return torch.where(p <= 0, -math.inf, torch.where(p >= 1, math.inf, odds))
