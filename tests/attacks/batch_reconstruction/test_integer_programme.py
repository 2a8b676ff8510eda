"""Batches from integer programmes: both solvers and formulations, verified in integers, and stopped early."""

import functools
import math

import numpy as np
import pulp
import pytest
from attacks.batch_reconstruction.test_enumeration import TWINS, draw, enumerate_batches, known_labels

from vflbench.attacks.batch_reconstruction import integer_programme
from vflbench.attacks.batch_reconstruction.gram import Gram, agreed, sort_rows
from vflbench.attacks.batch_reconstruction.integer_programme import Programme, published, tight, verified
from vflbench.errors import UserError

solve = functools.partial(integer_programme.solve, time_limit=1e6)  # seconds, a limit that no test reaches

# Passes every simple test, and no seven rows have it: a batch's alpha with one pair's count moved by one.
ALPHA = [[2, 1, 1, 1, 0, 1], [1, 5, 2, 3, 3, 2], [1, 2, 4, 3, 3, 2]]
ALPHA += [[1, 3, 3, 4, 3, 2], [0, 3, 3, 3, 4, 2], [1, 2, 2, 2, 2, 3]]
NO_SUCH_BATCH = Gram(np.array(ALPHA), None, 7)


@pytest.mark.parametrize(("formulation", "solver"), [("tight", "highs"), ("tight", "cbc"), ("published", "highs")])
def test_a_planted_batch_and_its_labels_are_recovered(formulation, solver):
    x, y = draw(1, 6, 10)  # six rows that differ, none of zeros: otherwise labels are shares
    order = np.lexsort(x.T[::-1])
    solutions = solve(Gram.of(x, y), formulation=formulation, solver=solver)
    assert (solutions.status, len(solutions.batches), solutions.complete) == ("found", 1, False), solutions.note
    assert np.array_equal(solutions.batches[0], x[order])
    assert np.array_equal(solutions.labels[0][0], y[order] == 1)
    assert not solutions.unique  # a programme does not prove it


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_programme_says_which_labels_other_labellings_have_too(solver):
    x = sort_rows(np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0]])).astype(np.int64)
    gram = Gram.of(x, np.array([1, -1, 1, -1, 1, -1]))
    solutions = solve(gram, solver=solver)
    labels = agreed(solutions.labels[0])
    assert np.array_equal(labels, known_labels(solutions.batches[0], gram.beta), equal_nan=True)
    assert np.isnan(labels).any()


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_consistent_sums_that_no_batch_or_labels_have_are_proved_infeasible(solver):
    equal_columns = Gram(np.array([[2, 2, 0], [2, 2, 0], [0, 0, 0]]), np.array([2, 0, 0]), 2)  # of different betas
    for gram in (NO_SUCH_BATCH, equal_columns):
        assert gram.inconsistency() is None
        solutions = solve(gram, solver=solver)
        assert (solutions.status, solutions.batches, solutions.complete) == ("infeasible", (), True), solutions.note
        assert "the search ended" in solutions.note


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_time_may_be_up_before_the_programme_is_written(solver):
    solutions = solve(Gram.of(draw(0, 4, 6)[0]), solver=solver, time_limit=0.0)
    assert (solutions.status, solutions.batches, solutions.complete) == ("limit", (), False)
    assert "before the programme was written" in solutions.note


def test_the_tight_programme_has_each_batch_once():
    """All its solutions, by cutting off one after the other: as many as there are batches, up to row order."""
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # four rows that XOR to zero: ambiguous
    model = Programme(float("inf"))
    entries = [entry for column in tight(model, Gram.of(x)) for entry in column]
    solutions = []
    while model.problem.solve(pulp.HiGHS(msg=False, threads=1)) == pulp.LpStatusOptimal:
        bits = [round(entry.varValue) for entry in entries]
        solutions.append(sort_rows(np.array(bits).reshape(4, 4).T).tobytes())
        model.add(pulp.lpSum(1 - entry if bit else entry for entry, bit in zip(entries, bits, strict=True)) >= 1)
    assert sorted(solutions) == sorted(batch.tobytes() for batch in enumerate_batches(Gram.of(x)).batches)
    assert len(solutions) > 1


def test_a_programme_gives_the_same_batch_again():
    first, second = (solve(Gram.of(TWINS)).batches[0] for _ in range(2))
    assert np.array_equal(first, second)


class Says(pulp.LpSolver):
    """A solver that says so of its values."""

    def __init__(self, values, status):
        super().__init__()
        self._values, self._status = values, status

    def actualSolve(self, lp, **_):  # noqa: N802 - PuLP's name
        for variable in lp.variables():
            place = int(variable.name[1:]) - 1 if variable.name.startswith("v") else -1  # another one is PuLP's
            variable.varValue = self._values[place] if self._values and 0 <= place < len(self._values) else None
        kinds = {pulp.LpSolutionOptimal: pulp.LpStatusOptimal, pulp.LpSolutionInfeasible: pulp.LpStatusInfeasible}
        lp.assignStatus(kinds.get(self._status, pulp.LpStatusOptimal), self._status)


def test_a_solvers_word_is_no_proof(monkeypatch):
    x, _ = draw(0, 4, 5)
    gram, right = Gram.of(x), x.ravel().astype(float)
    for status, values, says in (
        ("found", right + 1e-7, pulp.LpSolutionOptimal),
        ("partial", right, pulp.LpSolutionIntegerFeasible),
        ("limit", [1 - right[0], *right[1:]], pulp.LpSolutionOptimal),
        ("limit", [], pulp.LpSolutionInfeasible),  # mistaken: there is a batch
    ):
        solver = Says([*values], says)
        monkeypatch.setattr(integer_programme, "_solver", lambda *_, solver=solver: solver)
        solutions = solve(gram, formulation="published")
        assert (solutions.status, solutions.complete) == (status, False)
    assert verified([0.5] * len(right), gram) is None
    confirmed = solve(NO_SUCH_BATCH, formulation="published")
    assert (confirmed.status, confirmed.complete) == ("infeasible", True)
    assert solve(NO_SUCH_BATCH, time_limit=0.0).status == "limit"  # a solver that was stopped may report infeasibility


@pytest.mark.parametrize(("name", "kind"), [("highs", pulp.HiGHS), ("cbc", pulp.COIN_CMD)])
def test_a_missing_solver_is_an_error_with_another_one(name, kind, monkeypatch):
    monkeypatch.setattr(kind, "available", lambda _: False)
    with pytest.raises(UserError, match=rf"batch_reconstruction.solver={name}: PuLP can't run it"):
        solve(Gram.of(np.eye(2, dtype=int)), solver=name)


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 6), (3, 10)])
def test_the_published_programme_has_the_published_number_of_constraints(rows, columns):
    """(2 m + 1) d^2 - 2 m d. Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning"."""
    programme = Programme(math.inf)
    published(programme, Gram.of(draw(1, rows, columns)[0]))
    assert programme.problem.numConstraints() == (2 * rows + 1) * columns**2 - 2 * rows * columns
