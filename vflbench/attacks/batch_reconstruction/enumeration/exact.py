"""The exact solver: every binary batch with a given Gram matrix, with proof."""

from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration import lattice_reduction as lattice
from vflbench.attacks.batch_reconstruction.enumeration.column_order import levels
from vflbench.attacks.batch_reconstruction.enumeration.column_search import ColumnSearch
from vflbench.attacks.batch_reconstruction.enumeration.labellings import labellings
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import candidates
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock, TimeIsUp
from vflbench.attacks.batch_reconstruction.gram import Answer, Gram, in_order
from vflbench.errors import UserError

Method = Literal["auto", "columns", "candidates", "lattice"]

# Below so many rows a search by columns ends within milliseconds, before flint has reduced anything.
_FEW_ROWS = 12
# Beyond so many a single reduction takes seconds, during which no time limit is heard, and seldom ends in unit vectors.
_MANY_ROWS = 128
# The widest tree of row candidates: as an aid, and where it was asked for.
_WIDEST, _WIDEST_ASKED = 1 << 17, 1 << 21


def enumerate_batches(
    gram: Gram, *, method: Method = "auto", time_limit: float | None = 60.0, max_batches: int = 1000
) -> Answer:
    """Every batch X, up to row order, with X^T X = alpha, and with labels that fit beta where it is given.

    gram: what the updates come to. time_limit: seconds, None for none. max_batches: when one more is met the search ends
    and says "at least" so many; as many labellings are kept of each batch.

    method: `columns` places columns one at a time over groups of equal rows; `candidates` first enumerates the vectors
    that can be rows, and lets them prune; `lattice` reduces a basis of alpha's rows (rank m, and in practice d >= m + 4),
    which proves that there is one batch, and needs `vflbench[lattice]`; `auto` takes the lattice where it applies and
    there are more than a few rows, else candidates as far as there are not too many.

    Returns an Answer, each of whose batches was verified in integers: `proved` with all of them, `found` with some, `limit`
    with none in time, `infeasible` where there is none. Raises UserError where the lattice was asked for and can't be used.
    """
    clock = Clock(time_limit)
    if method == "lattice" and not lattice.installed():
        raise UserError("it needs python-flint: pip install 'vflbench[lattice]'", key="method", value=method)
    if (problem := gram.inconsistency()) is not None:
        return _answer(_Found(gram, max_batches, clock), method, True, problem)
    found = _Found(gram, max_batches, clock)
    if gram.rows == 0:
        found.take(np.zeros((0, len(gram.alpha)), dtype=np.int64))
        return _answer(found, method, True, "a batch without rows")
    try:
        return _search(gram, method, found, clock)
    except TimeIsUp:
        return _answer(found, method, False, f"the time limit of {time_limit:g} s was reached")


def _search(gram: Gram, method: Method, found: "_Found", clock: Clock) -> Answer:
    whole = gram.with_intercept
    order = levels(whole)
    full = len(order) == gram.rows
    if method == "lattice" and not full:
        return _answer(found, method, False, f"the lattice needs rank {gram.rows}, with the intercept it is {len(order)}")
    worth_it = full and _FEW_ROWS <= gram.rows <= _MANY_ROWS and lattice.installed()
    if method == "lattice" or (method == "auto" and worth_it):
        if (x := lattice.only_batch(whole, [level.column for level in order], clock)) is not None:
            found.take(x)
            return _answer(found, "lattice", True, "the lattice of alpha's rows is Z^m: no other batch has it")
        if method == "lattice":
            return _answer(found, method, False, "alpha's rows do not generate the lattice of the batch's rows")
    tree = None
    if method != "columns":
        tree = candidates(order, gram.rows, _WIDEST_ASKED if method == "candidates" else _WIDEST, clock)
    name = "columns" if tree is None else "candidates"
    for x in ColumnSearch(whole, order, tree, clock).batches():
        if not found.take(x):
            return _answer(found, name, False, f"more than {len(found.batches)} batches match")
    return _answer(found, name, True, "the search ended")


class _Found:
    """The verified batches so far."""

    def __init__(self, gram: Gram, most: int, clock: Clock):
        self._gram, self._most, self.clock = gram, most, clock
        self.labels: list[tuple[np.ndarray, ...]] | None = None if gram.beta is None else []
        self.batches: list[np.ndarray] = []
        self.all_labels = True

    def take(self, x: np.ndarray) -> bool:
        """Keep a batch if it has the Gram matrix and some labels fit. False if that would be one too many."""
        if not self._gram.holds(x):
            return True
        x = in_order(x)
        fitting: tuple[np.ndarray, ...] = ()
        if self.labels is not None:
            fitting, every = labellings(self._gram, x, max(self._most, 1), self.clock)
            if not fitting:
                return True
            self.all_labels &= every
        if len(self.batches) >= self._most:
            return False
        self.batches.append(x)
        if self.labels is not None:
            self.labels.append(fitting)
        return True


def _answer(found: _Found, method: str, complete: bool, note: str) -> Answer:
    count = len(found.batches)
    status = ("proved" if count else "infeasible") if complete else ("found" if count else "limit")
    return Answer(
        status=status,
        batches=tuple(found.batches),
        labels=None if found.labels is None else tuple(found.labels),
        count=count,
        complete=complete,
        seconds=found.clock.seconds,
        note=note if found.all_labels else f"{note}; of some batches more labellings fit than were kept",
        method=method,
        labellings=None if found.labels is None else sum(map(len, found.labels)),
    )
