"""The exact solver: every binary batch with a given Gram matrix, with proof."""

from typing import Literal

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.check import Verdict, confirm_complete
from vflbench.attacks.batch_reconstruction.enumeration import lattice_reduction
from vflbench.attacks.batch_reconstruction.enumeration.column_order import order_columns
from vflbench.attacks.batch_reconstruction.enumeration.column_search import ColumnSearch
from vflbench.attacks.batch_reconstruction.enumeration.labellings import labellings
from vflbench.attacks.batch_reconstruction.enumeration.multiplicities import lone_batch
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import row_candidates
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit, TimeLimitReached
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.solutions import Solutions, Status, sort_rows
from vflbench.errors import UserError
from vflbench.places import pip_install

Method = Literal["auto", "columns", "candidates", "multiplicities", "lattice"]

# With fewer rows a search by columns ends within milliseconds, before flint has reduced anything.
_FEW_ROWS = 12
# With more rows a single reduction takes seconds, cannot be stopped at the time limit, and seldom ends in unit vectors.
_MANY_ROWS = 128
# With fewer rows a search ends before a linear programme does.
_MULTIPLICITIES = 23
# The largest width of the tree of row candidates: for `auto`, and for `candidates`.
_WIDEST, _WIDEST_CANDIDATES = 1 << 17, 1 << 21


class _Matches:
    """The verified batches so far."""

    def __init__(self, gram: Gram, most: int, time_limit: TimeLimit):
        self._gram, self._most, self.time_limit = gram, most, time_limit
        self.labels: list[tuple[np.ndarray, ...]] | None = None if gram.beta is None else []
        self.batches: list[np.ndarray] = []
        self.all_labels = True

    def add(self, x: np.ndarray) -> bool:
        """Keep a batch if it has the Gram matrix and some labels fit. False if that would be one too many."""
        if not self._gram.matches(x):
            return True
        x = sort_rows(x)
        fitting: tuple[np.ndarray, ...] = ()
        if self.labels is not None:
            fitting, complete = labellings(self._gram, x, max(self._most, 1), self.time_limit)
            if not fitting:
                return True
            self.all_labels &= complete
        if len(self.batches) >= self._most:
            return False
        self.batches.append(x)
        if self.labels is not None:
            self.labels.append(fitting)
        return True


def enumerate_batches(
    gram: Gram, *, method: Method = "auto", time_limit: float | None = 60.0, max_batches: int = 1000
) -> Solutions:
    """Every batch X, up to row order, with X^T X = alpha, and with labels that fit beta if it is given.

    gram: the sums that the updates determine. time_limit: seconds, None for no limit. max_batches: the search ends at the
    next batch and reports "more than" this number; as many labellings of each batch are kept.

    method: `columns` places columns one at a time over groups of equal rows; `candidates` first enumerates the vectors
    that can be rows, and prunes by them; `multiplicities` solves for the number of times that each of these occurs, as real
    numbers, and ends if only one solution exists, which some hundred candidates seldom leave open; `lattice` reduces a basis
    of alpha's rows (rank m, and in practice d >= m + 4), which proves that there is one batch, and needs
    `vflbench[lattice]`; `auto` takes the lattice if it applies and there are more than a few rows, else multiplicities for
    many rows and few candidates, else candidates unless there are too many of them.

    Returns Solutions, with each batch verified in integers: `proved` with all of them, `infeasible` if there is none, both
    only if `confirm_complete` agrees within its number of steps; else `partial` with some, `limit` with none. Raises
    UserError if method is `lattice` and python-flint is missing.
    """
    timer = TimeLimit(time_limit)
    if method == "lattice" and not lattice_reduction.flint_installed():
        raise UserError(f"it needs python-flint: {pip_install('lattice')}", key="method", value=method)
    if (problem := gram.inconsistency()) is not None:
        return _solutions(gram, _Matches(gram, max_batches, timer), method, True, problem)
    matches = _Matches(gram, max_batches, timer)
    if gram.rows == 0:
        matches.add(np.zeros((0, len(gram.alpha)), dtype=np.int64))
        return _solutions(gram, matches, method, True, "a batch without rows")
    try:
        return _search(gram, method, matches, timer)
    except TimeLimitReached:
        return _solutions(gram, matches, method, False, f"the time limit of {time_limit:g} s was reached")


def _search(gram: Gram, method: Method, matches: _Matches, time_limit: TimeLimit) -> Solutions:
    with_intercept = gram.with_intercept
    levels = order_columns(with_intercept)
    full_rank = len(levels) == gram.rows
    if method == "lattice" and not full_rank:
        return _solutions(
            gram, matches, method, False, f"the lattice needs rank {gram.rows}, with the intercept it is {len(levels)}"
        )
    use_lattice = full_rank and _FEW_ROWS <= gram.rows <= _MANY_ROWS and lattice_reduction.flint_installed()
    if method == "lattice" or (method == "auto" and use_lattice):
        span = [level.column for level in levels]
        if (x := lattice_reduction.unique_batch(with_intercept, span, time_limit)) is not None:
            matches.add(x)
            return _solutions(gram, matches, "lattice", True, "the lattice of alpha's rows is Z^m: no other batch has it")
        if method == "lattice":
            return _solutions(gram, matches, method, False, "alpha's rows do not generate the lattice of the batch's rows")
    tree = None
    if method != "columns":
        tree = row_candidates(levels, gram.rows, _WIDEST_CANDIDATES if method == "candidates" else _WIDEST, time_limit)
    if tree is not None and (method == "multiplicities" or (method == "auto" and gram.rows >= _MULTIPLICITIES)):
        if (found := lone_batch(with_intercept, levels, tree)) is not None:
            matches.add(found[0])
            return _solutions(gram, matches, "multiplicities", True, "no other multiplicities of rows", form=found[1])
        if method == "multiplicities":
            return _solutions(gram, matches, method, False, "the possible rows are too many, or have several multiplicities")
    name = "columns" if tree is None else "candidates"
    for x in ColumnSearch(with_intercept, levels, tree, time_limit).batches():
        if not matches.add(x):
            return _solutions(gram, matches, name, False, f"more than {len(matches.batches)} batches match")
    return _solutions(gram, matches, name, True, "the search ended")


def _solutions(
    gram: Gram, matches: _Matches, method: str, complete: bool, note: str, *, form: np.ndarray | None = None
) -> Solutions:
    """The matches; that they are complete only if the certificate confirms it."""
    if complete:
        verdict = _confirmed(gram, matches, form)
        complete, note = (
            verdict.confirmed,
            f"{note}; {'confirmed' if verdict.confirmed else 'not confirmed'}: {verdict.reason}",
        )
    count = len(matches.batches)
    status: Status = ("proved" if count else "infeasible") if complete else ("partial" if count else "limit")
    return Solutions(
        status=status,
        batches=tuple(matches.batches),
        labels=None if matches.labels is None else tuple(matches.labels),
        count=count,
        complete=complete,
        seconds=matches.time_limit.seconds,
        note=note if matches.all_labels else f"{note}; for some batches more labellings fit than were kept",
        method=method,
        labellings=None if matches.labels is None else sum(map(len, matches.labels)),
    )


def _confirmed(gram: Gram, matches: _Matches, form: np.ndarray | None) -> Verdict:
    tick = matches.time_limit.check
    try:
        return confirm_complete(
            gram.alpha,
            gram.beta,
            gram.rows,
            matches.batches,
            matches.labels,
            tick,
            all_labels=matches.all_labels,
            form=form,
        )
    except TimeLimitReached:
        return Verdict(False, "the time limit was reached before a second search ended")
