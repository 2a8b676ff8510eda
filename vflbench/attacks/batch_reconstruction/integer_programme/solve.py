"""A batch from its Gram matrix by an integer programme, as in the paper: one matching batch, verified in integers."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.check import confirm_complete
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.cpsat import cpsat
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation
from vflbench.attacks.batch_reconstruction.integer_programme.pulp_solvers import cbc, highs
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import SOLVER_KEY, Solver, SolverBudget, SolverResult
from vflbench.attacks.batch_reconstruction.solutions import Solutions, Status, sort_rows
from vflbench.errors import UserError

SolverFunction = Callable[[Gram, Formulation, SolverBudget], SolverResult]
SOLVERS: dict[Solver, SolverFunction] = {"highs": highs, "cbc": cbc, "cpsat": cpsat}


def solve(
    gram: Gram,
    *,
    formulation: Formulation = "tight",
    solver: Solver = "highs",
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
) -> Solutions:
    """One batch X (and labels, if beta is known) with X^T X = alpha and X^T Y = beta.

    formulation: `tight` or the paper's own, `published`; see the module `formulation`. solver: `highs`, `cbc` or `cpsat`.
    time_limit: seconds, for writing the programme and solving it. threads, seed: for the solver.

    Returns Solutions with count 1 and complete False, since a programme does not go on to the next batch: `found` if the
    solver ended with a batch, `partial` if it was stopped with one, `limit` if there is none, `infeasible` if alpha or beta
    are inconsistent or the solver reports that no batch exists, and only if a search in integers confirms it: solvers
    compute in floats. The solver's values are always rounded and verified in integers; a batch that fails is discarded.
    `seconds` are those of the solver, without this confirmation.

    Raises UserError for an unknown formulation or an unknown or missing solver.

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    if formulation not in get_args(Formulation):
        raise UserError("tight or published", key="attack.batch_reconstruction.formulation", value=formulation)
    if solver not in SOLVERS:
        raise UserError(f"one of {', '.join(SOLVERS)}", key=SOLVER_KEY, value=solver)
    start = time.monotonic()
    budget = SolverBudget(start + time_limit, threads, seed)
    solutions = _solve(gram, formulation, SOLVERS[solver], budget)
    solutions = replace(solutions, seconds=time.monotonic() - start, method=f"{solver} {formulation}")
    return _confirmed(gram, solutions) if solutions.complete else solutions


def _confirmed(gram: Gram, solutions: Solutions) -> Solutions:
    """Infeasible, or `limit` if the certificate does not confirm it."""
    verdict = confirm_complete(gram.alpha, gram.beta, gram.rows, (), None if gram.beta is None else (), lambda: None)
    note = f"{solutions.note}; {'confirmed' if verdict.confirmed else 'not confirmed'}: {verdict.reason}"
    if verdict.confirmed:
        return replace(solutions, note=note)
    return replace(solutions, status="limit", complete=False, note=note)


def _solve(gram: Gram, formulation: Formulation, solver: SolverFunction, budget: SolverBudget) -> Solutions:
    if (reason := gram.inconsistency()) is not None:
        return Solutions("infeasible", complete=True, note=reason)
    if gram.rows == 0 or len(gram.alpha) == 0:  # no unknowns: the empty batch fits
        result = SolverResult([0.0] * gram.rows, True, "nothing to solve")
    else:
        try:
            result = solver(gram, formulation, budget)
        except TimeoutError as timeout:
            return Solutions("limit", note=str(timeout))
    if result.values is not None and (verified_batch := verified(result.values, gram)) is not None:
        x, labelling = verified_batch
        labels = None if labelling is None else ((labelling,),)
        status: Status = "found" if result.ended else "partial"
        return Solutions(status, (x,), labels, count=1, note=result.note, labellings=None if labelling is None else 1)
    if result.ended is False and time.monotonic() < budget.deadline:  # later, a solver's "infeasible" may mean "stopped"
        return Solutions("infeasible", complete=True, note=result.note)
    failed = "; its values fail the verification in integers" if result.values is not None else ""
    return Solutions("limit", note=result.note + failed)


def verified(values: list[float], gram: Gram) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The batch and its labelling in a solver's values (X row by row, then y), or None if they do not fit the Gram matrix.

    Returns X (m, d) uint8 with rows in lexicographic order, and the labelling as in `Solutions`: the share of positives
    among the equal rows, nan for rows of zeros; None if beta is unknown.
    """
    m, d = gram.rows, len(gram.alpha)
    bits = np.rint(np.asarray(values)).astype(np.int64)
    x, y = bits[: m * d].reshape(m, d), bits[m * d :]
    if gram.beta is None:
        return (sort_rows(x), None) if gram.matches(x) else None
    if not gram.matches(x, 2 * y - 1):
        return None
    return sort_rows(x), shares_of_positives(sort_rows(x), y[np.lexsort(x.T[::-1])] if x.size else y)


def shares_of_positives(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(m,): the share of positives among the rows equal to each; nan for rows of zeros, which enter no sum. y: 0 and 1."""
    equal = (x[:, None, :] == x[None, :, :]).all(axis=2)
    shares = (equal @ y) / np.maximum(equal.sum(axis=1), 1)
    shares[~x.any(axis=1)] = np.nan
    return shares
