"""Whether rows come again in an epoch, as where a loop over epochs doesn't say when one begins."""

import torch
from torch import Tensor

AGAIN = (
    "rows come again, and all is recorded as epoch 0: where a new epoch begins, say so by `for epoch in rec.epochs(5):` or "
    "rec.begin_epoch()"
)
_MOST = 1024  # rows that are looked for


class RepeatedRows:
    """Looks for the rows of the first batch in later ones.

    Only who trains knows whether that is a new epoch: with rows drawn with replacement, or several steps on one batch,
    it isn't.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._last: Tensor | None = None

    def add(self, ids: Tensor) -> bool:
        """Whether one of them has come again. ids: (n,) of a batch. The same batch twice in a row counts once."""
        if self._first is None:
            self._first = ids[:_MOST].clone()
        elif self._last is not None and not torch.equal(ids, self._last) and bool(torch.isin(self._first, ids).any()):
            return True
        self._last = ids
        return False
