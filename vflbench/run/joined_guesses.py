"""What an attack guessed about a row in several batches, joined by the row's id."""

from collections.abc import Iterable

import torch
from torch import Tensor


def joined(batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Ids in increasing order, and for each the share of its batches in which it was guessed positive.

    batches: ids and scores, (n,) each, of one attack. A score is made a guess, so that it tells little but the label that
    was trained on; how sure an attack is depends on features. Guessed positive is what lies above 0 where a batch has scores
    of both signs; else above the middle of the two means of the best split in two groups.
    """
    every_id, every_guess = [], []
    for ids, scores in batches:
        every_id.append(ids.cpu())
        every_guess.append(guesses(scores.double().cpu()))
    if not every_id:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    ids, place = torch.cat(every_id).unique(return_inverse=True)
    totals = torch.zeros(len(ids), dtype=torch.float64).index_add_(0, place, torch.cat(every_guess))
    return ids, totals / place.bincount(minlength=len(ids))


def guesses(scores: Tensor) -> Tensor:
    """(n,) 0 or 1; 1/2 for a score that isn't a number."""
    finite = scores[scores.isfinite()]
    if not len(finite):
        return torch.full_like(scores, 0.5)
    threshold = 0.0 if finite.min() < 0 < finite.max() else _middle(finite.sort().values)
    return torch.where(scores.isfinite(), (scores > threshold).double(), 0.5)


def _middle(ordered: Tensor) -> float:
    """The threshold between the two groups with the largest variance between them (Otsu, 1979)."""
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return float(ordered[0])
    count = torch.arange(1, n, dtype=torch.float64)
    sums = ordered.cumsum(0)
    lower, upper = sums[:-1] / count, (sums[-1] - sums[:-1]) / (n - count)
    split = int((count * (n - count) * (upper - lower).square()).argmax())
    return float((lower[split] + upper[split]) / 2)
