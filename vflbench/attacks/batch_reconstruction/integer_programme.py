"""A batch from its Gram matrix by an integer programme, as in the paper: one matching batch, verified in integers."""

import time
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import Any, Literal

import numpy as np
import pulp

from vflbench.attacks.batch_reconstruction.enumeration import TimeLimit, enumerate_batches, labellings
from vflbench.attacks.batch_reconstruction.gram import Gram, SearchStatus, Solutions, sort_rows
from vflbench.errors import UserError

Formulation = Literal["tight", "published"]
Solver = Literal["highs", "cbc"]


def solve(
    gram: Gram, *, formulation: Formulation = "tight", solver: Solver = "highs", time_limit: float = 60.0
) -> Solutions:
    """One batch X (and labels, if beta is known) with X^T X = alpha and X^T Y = beta.

    formulation: `tight` or the paper's own, `published`; see `tight` and `published`. time_limit: seconds, for writing the
    programme and solving it.

    Returns Solutions with one batch, since a programme does not go on to the next one: `found` if the solver ended with a
    batch, `partial` if it was stopped with one, `limit` if there is none, `infeasible` if alpha or beta are inconsistent or
    the solver reports that no batch exists, and only if a search in integers confirms it: solvers compute in floats. The
    solver's values are always rounded and verified in integers; a batch that fails is discarded. `seconds` are those of the
    solver, without this confirmation. Raises UserError for a solver that is not there.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    start = time.monotonic()
    solutions = _solve(gram, formulation, solver, start + time_limit)
    solutions = replace(solutions, seconds=time.monotonic() - start)
    if solutions.status != "infeasible" or gram.inconsistency():
        return solutions
    searched = enumerate_batches(gram, time_limit=time_limit, max_batches=0)
    status: SearchStatus = "infeasible" if searched.status == "infeasible" else "limit"
    return replace(solutions, status=status, note=f"{solutions.note}; a search in integers: {searched.note}")


def _solve(gram: Gram, formulation: Formulation, solver: Solver, deadline: float) -> Solutions:
    if (reason := gram.inconsistency()) is not None:
        return Solutions("infeasible", note=reason)
    if gram.rows == 0 or len(gram.alpha) == 0:
        return replace(enumerate_batches(gram), status="found", note="nothing to solve")
    programme = Programme(deadline)
    try:
        columns = (tight if formulation == "tight" else published)(programme, gram)
    except TimeoutError as limit:
        return Solutions("limit", note=str(limit))
    programme.problem.solve(_solver(solver, max(deadline - time.monotonic(), 0.01)))  # 0 is no limit
    status = programme.problem.sol_status
    values, note = [unknown.varValue for column in columns for unknown in column], f"{solver}: {pulp.LpSolution[status]}"
    x = None if None in values else verified(values, gram)
    if x is not None:
        ended: SearchStatus = "found" if status == pulp.LpSolutionOptimal else "partial"
        labels: tuple[np.ndarray, ...] = ()
        with suppress(TimeoutError):  # which labels fit is then unknown
            labels = () if gram.beta is None else labellings(gram, x, TimeLimit(deadline - time.monotonic())) or ()
        return Solutions(ended, (x,), None if gram.beta is None else (labels,), note=note)
    if programme.problem.status == pulp.LpStatusInfeasible and time.monotonic() < deadline:  # later, it may mean "stopped"
        return Solutions("infeasible", note=note)
    failed = "; its values fail the verification in integers" * (status == pulp.LpSolutionOptimal)
    return Solutions("limit", note=f"{note}{failed}")


def _solver(name: Solver, seconds: float) -> Any:
    if name == "cbc":
        options = ["randomSeed 0", "randomCbcSeed 0"]
        chosen = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, timeLimit=seconds, options=options)
    else:
        chosen = pulp.HiGHS(msg=False, threads=1, timeLimit=seconds, random_seed=0)
    if not chosen.available():
        raise UserError("PuLP can't run it here: use another one", key="attack.batch_reconstruction.solver", value=name)
    return chosen


class Programme:
    """A programme in PuLP without an objective: any matching batch."""

    def __init__(self, deadline: float):
        self.problem, self._deadline, self._count = pulp.LpProblem("batch"), deadline, 0
        self.problem += 0

    def binary(self, low: int = 0, high: int = 1, kind: str = pulp.LpInteger) -> pulp.LpVariable:
        """An unknown that is 0 or 1, between low and high."""
        self._count += 1
        return self.problem.add_variable(f"v{self._count}", low, high, kind)

    def fraction(self) -> pulp.LpVariable:
        """An unknown in [0, 1] that need not be declared integer: the constraints make it 0 or 1 where this matters."""
        return self.binary(kind=pulp.LpContinuous)

    def add(self, constraint: pulp.LpConstraint) -> None:
        """Raises TimeoutError after the deadline: large programmes take long to write."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the time limit was reached before the programme was written")
        self.problem += constraint


_Columns = list[list[Any]]
"""The unknowns of each column of X (m, d), and of the labels y in {0, 1} last if beta is known."""


def published(programme: Programme, gram: Gram) -> _Columns:
    """The paper's programme: a product for every ordered pair of columns, and no order of the rows.

        sum_r x_ri = alpha_ii,   sum_r delta_rij = alpha_ij,   2 delta_rij <= x_ri + x_rj,   x_ri + x_rj - 1 <= delta_rij

    with x and delta binary. Its relaxation allows delta = 1/2 if one of two entries is 1, each batch has up to m! equivalent
    solutions, and every product occurs twice. The labels, if beta is known, are one more binary column y with

        sum_r x_ri y_r = (alpha_ii + beta_i) / 2          since beta_i = sum_r x_ri (2 y_r - 1).

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    entries = [[programme.binary() for _ in gram.alpha] for _ in range(gram.rows)]
    columns, common = _with_labels(programme, entries, gram.alpha, gram.beta)
    for i, j in permutations(range(len(columns)), 2):
        products = [programme.binary() for _ in entries]
        for one, other, both in zip(columns[i], columns[j], products, strict=True):
            programme.add(2 * both <= one + other)
            programme.add(one + other - 1 <= both)
        programme.add(pulp.lpSum(products) == int(common[i, j]))
    return columns


def tight(programme: Programme, gram: Gram) -> _Columns:
    """The same batches, each once: the convex hull of each product, one product for each pair of columns, and rows in order.

        delta_rij <= x_ri,   delta_rij <= x_rj,   delta_rij >= x_ri + x_rj - 1          for i < j

    Columns nearest to half full come first, so that the order of the rows excludes most solutions. Rows are in falling
    lexicographic order, so alpha alone fixes the first two columns: alpha_01 rows begin with 11, alpha_00 - alpha_01 with
    10, and so on. Within these four groups each row r and the next one, s, are kept in order by marks f_rj. A row may set a
    mark where it is strictly greater; from there on the entries of both rows are free:

        f_rj <= x_rj,   f_rj <= 1 - x_sj,   x_rj + sum_(k<j) f_rk >= x_sj.

    If x is integer, the first column with x_rj < x_sj needs an earlier one with x_rk > x_sk, which is the lexicographic
    order. All coefficients are 0 and 1; weights 2^j over many columns would exceed the solver's tolerances.
    """
    order = np.argsort(np.abs(2 * np.diagonal(gram.alpha) - gram.rows), kind="stable")
    alpha = gram.alpha[np.ix_(order, order)]
    beta = None if gram.beta is None else gram.beta[order]
    groups = prefixes(alpha, gram.rows)
    entries = [
        [programme.binary(bit, bit) for bit in prefix] + [programme.binary() for _ in range(len(alpha) - len(prefix))]
        for prefix, count in groups
        for _ in range(count)
    ]
    columns, common = _with_labels(programme, entries, alpha, beta)
    for i, j in combinations(range(len(columns)), 2):
        products = [programme.fraction() for _ in range(gram.rows)]
        for one, other, both in zip(columns[i], columns[j], products, strict=True):
            programme.add(both <= one)
            programme.add(both <= other)
            programme.add(both >= one + other - 1)
        programme.add(pulp.lpSum(products) == int(common[i, j]))
    start = 0
    for prefix, count in groups:
        for row, following in pairwise(entries[start : start + count]):
            _in_falling_order(programme, row[len(prefix) :], following[len(prefix) :])
        start += count
    return [columns[k] for k in np.argsort(order)] + columns[len(order) :]  # in the given order


def prefixes(alpha: np.ndarray, rows: int) -> list[tuple[tuple[int, ...], int]]:
    """The first two columns (or the only one) of rows in falling order: each prefix, and the number of rows with it."""
    ones = int(alpha[0, 0])
    if len(alpha) == 1:
        return [((1,), ones), ((0,), rows - ones)]
    both, second = int(alpha[0, 1]), int(alpha[1, 1])
    return [((1, 1), both), ((1, 0), ones - both), ((0, 1), second - both), ((0, 0), rows - ones - second + both)]


def _with_labels(
    programme: Programme, entries: list[list[Any]], alpha: np.ndarray, beta: np.ndarray | None
) -> tuple[_Columns, np.ndarray]:
    """The columns of X and y, and the number of ones that each two of them share; of y and itself it is not known, and 0."""
    columns = [list(column) for column in zip(*entries, strict=True)]
    for column, ones in zip(columns, np.diagonal(alpha), strict=True):
        programme.add(pulp.lpSum(column) == int(ones))
    if beta is None:
        return columns, alpha
    positives = (np.diagonal(alpha) + beta) // 2
    common = np.block([[alpha, positives[:, None]], [positives[None], np.zeros((1, 1), dtype=alpha.dtype)]])
    return [*columns, [programme.binary() for _ in entries]], common


def _in_falling_order(programme: Programme, row: list[Any], following: list[Any]) -> None:
    """Keep two neighbouring rows in order; see `tight`."""
    marks: list[Any] = []
    for one, other in zip(row, following, strict=True):
        programme.add(pulp.lpSum([one, *marks]) >= other)
        mark = programme.fraction()
        programme.add(mark <= one)
        programme.add(mark + other <= 1)
        marks.append(mark)


def verified(values: list[float], gram: Gram) -> np.ndarray | None:
    """The batch in a solver's values (column by column, y last), X (m, d) uint8 with rows in lexicographic order, or None if
    it has another Gram matrix, or its labels another beta.
    """
    bits = np.rint(np.asarray(values)).astype(np.int64)
    x, y = bits[: gram.rows * len(gram.alpha)].reshape(len(gram.alpha), gram.rows).T, bits[gram.rows * len(gram.alpha) :]
    fits = gram.matches(x) if gram.beta is None else gram.matches(x, 2 * y - 1) and np.isin(y, (0, 1)).all()
    return sort_rows(x) if fits else None
