"""A batch from its Gram matrix by an integer programme, the paper's way: one batch that fits, verified in integers."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Answer, Gram, in_order
from vflbench.attacks.batch_reconstruction.integer_programme.cpsat import cpsat
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation
from vflbench.attacks.batch_reconstruction.integer_programme.pulp_solvers import cbc, highs
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import KEY, Budget, Outcome, Solver
from vflbench.errors import UserError

Ask = Callable[[Gram, Formulation, Budget], Outcome]
SOLVERS: dict[Solver, Ask] = {"highs": highs, "cbc": cbc, "cpsat": cpsat}


def solve(
    gram: Gram,
    *,
    formulation: Formulation = "tight",
    solver: Solver = "highs",
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
) -> Answer:
    """One batch X (and labels, where beta is known) with X^T X = alpha and X^T Y = beta.

    formulation: `tight` or the paper's own, `published`; see `vflbench.attacks.batch_reconstruction.integer_programme.formulation`. solver: `highs`, `cbc`
    or `cpsat`. time_limit: seconds, for writing the programme and solving it. threads, seed: for the solver.

    Returns an Answer with count 1 and complete False, for a programme does not go on to the next batch: `proved` where the
    solver came to its end, `found` where it was stopped with a batch in hand, `limit` where it had none, `infeasible` where
    alpha or beta contradict themselves or the solver proved that there is no batch. Whatever the solver says, its values
    are rounded and verified in integers: a batch that does not hold is none.

    Raises UserError for a formulation or a solver that isn't there.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    if formulation not in get_args(Formulation):
        raise UserError("tight or published", key="attack.batch_reconstruction.formulation", value=formulation)
    if solver not in SOLVERS:
        raise UserError(f"one of {', '.join(SOLVERS)}", key=KEY, value=solver)
    start = time.monotonic()
    budget = Budget(start + time_limit, threads, seed)
    answer = _solve(gram, formulation, SOLVERS[solver], budget)
    return replace(answer, seconds=time.monotonic() - start, method=f"{solver} {formulation}")


def _solve(
    gram: Gram, formulation: Formulation, ask: Callable[[Gram, Formulation, Budget], Outcome], budget: Budget
) -> Answer:
    if (reason := gram.inconsistency()) is not None:
        return Answer("infeasible", complete=True, note=reason)
    if gram.rows == 0 or len(gram.alpha) == 0:  # no unknowns: the empty batch fits
        outcome = Outcome([0.0] * gram.rows, True, "nothing to solve")
    else:
        try:
            outcome = ask(gram, formulation, budget)
        except TimeoutError as late:
            return Answer("limit", note=str(late))
    if outcome.values is not None and (batch := verified(outcome.values, gram)) is not None:
        x, labelling = batch
        labels = None if labelling is None else ((labelling,),)
        status = "proved" if outcome.ended else "found"
        return Answer(status, (x,), labels, count=1, note=outcome.note, labellings=None if labelling is None else 1)
    if outcome.ended is False and time.monotonic() < budget.deadline:  # past it a solver's "infeasible" may mean "stopped"
        return Answer("infeasible", complete=True, note=outcome.note)
    broken = "; its values don't hold in integers" if outcome.values is not None else ""
    return Answer("limit", note=outcome.note + broken)


def verified(values: list[float], gram: Gram) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The batch and its labelling in a solver's values (X row by row, then y), or None where they don't fit the Gram matrix.

    Returns X (m, d) uint8 with rows in lexicographic order, and the labelling as in Answer: the share of positives in each
    row's group of equal rows, nan for rows of zeros; None where beta is unknown.
    """
    m, d = gram.rows, len(gram.alpha)
    bits = np.rint(np.asarray(values)).astype(np.int64)
    x, y = bits[: m * d].reshape(m, d), bits[m * d :]
    if gram.beta is None:
        return (in_order(x), None) if gram.holds(x) else None
    if not gram.holds(x, 2 * y - 1):
        return None
    return in_order(x), shares_of_positives(in_order(x), y[np.lexsort(x.T[::-1])] if x.size else y)


def shares_of_positives(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(m,): the share of positives among the rows equal to each; nan for rows of zeros, which are in no sum. y: 0 and 1."""
    equal = (x[:, None, :] == x[None, :, :]).all(axis=2)
    share = (equal @ y) / np.maximum(equal.sum(axis=1), 1)
    share[~x.any(axis=1)] = np.nan
    return share
