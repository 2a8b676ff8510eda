"""Batches from integer programmes: both solvers and formulations, verified in integers, and stopped early."""

import functools
import math
from itertools import combinations_with_replacement, product

import numpy as np
import pulp
import pytest
from support.reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction import integer_programme
from vflbench.attacks.batch_reconstruction.gram import Gram, sort_rows
from vflbench.attacks.batch_reconstruction.integer_programme import Programme, published, tight, verified
from vflbench.errors import UserError

ENDLESS = 1e6  # seconds: a limit that no test reaches
solve = functools.partial(integer_programme.solve, time_limit=ENDLESS)

# Passes every simple test, and no seven rows have it: a batch's alpha with one pair's count moved by one.
NO_SUCH_BATCH = Gram(
    np.array(
        [
            [2, 1, 1, 1, 0, 1],
            [1, 5, 2, 3, 3, 2],
            [1, 2, 4, 3, 3, 2],
            [1, 3, 3, 4, 3, 2],
            [0, 3, 3, 3, 4, 2],
            [1, 2, 2, 2, 2, 3],
        ]
    ),
    None,
    7,
)
FORMS = pytest.mark.parametrize(("formulation", "solver"), [("tight", "highs"), ("tight", "cbc"), ("published", "highs")])


def draw(rows, columns, seed, density=0.5):
    return batch(rows, columns, np.random.default_rng(seed), density)


def sorted_with(x, y):
    order = np.lexsort(x.T[::-1])
    return x[order], y[order]


@FORMS
def test_a_planted_batch_and_its_labels_are_recovered(formulation, solver):
    x, y = draw(6, 10, seed=1)
    assert len(np.unique(x, axis=0)) == 6  # otherwise labels are shares
    assert x.any(axis=1).all()
    solutions = solve(Gram.of(x, y), formulation=formulation, solver=solver)
    truth, labels = sorted_with(x, y)
    assert (solutions.status, len(solutions.batches), solutions.complete) == ("found", 1, False), solutions.note
    assert np.array_equal(solutions.batches[0], truth)
    assert np.array_equal(solutions.labels[0][0], labels == 1)
    assert not solutions.unique  # a programme does not prove it


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_consistent_sums_that_no_batch_or_labels_have_are_proved_infeasible(solver):
    equal_columns = Gram(np.array([[2, 2, 0], [2, 2, 0], [0, 0, 0]]), np.array([2, 0, 0]), 2)  # of different betas
    for gram in (NO_SUCH_BATCH, equal_columns):
        assert gram.inconsistency() is None
        solutions = solve(gram, solver=solver)
        assert (solutions.status, solutions.batches, solutions.complete) == ("infeasible", (), True), solutions.note
        assert "the search ended" in solutions.note


@pytest.mark.slow
def test_random_batches_of_any_density_are_answered_with_their_gram_matrix():
    rng = np.random.default_rng(0)
    for seed in range(12):
        rows, columns = (int(k) for k in rng.integers(1, 7, 2))
        x, y = draw(rows, columns, seed, density=rng.uniform(0.05, 0.95))
        gram = Gram.of(x, y)
        solutions = solve(gram)
        assert solutions.status == "found", (x, solutions.note)
        assert np.array_equal(Gram.of(solutions.batches[0]).alpha, gram.alpha), seed
        ones = solutions.batches[0].astype(int)
        positives = np.nan_to_num(solutions.labels[0][0])
        assert np.allclose(2 * ones.T @ positives - ones.sum(0), gram.beta), seed  # shares have the same sums as labels


def test_the_time_may_be_up_before_the_programme_is_written():
    for solver in ("highs", "cbc"):
        solutions = solve(Gram.of(draw(4, 6, seed=0)[0]), solver=solver, time_limit=0.0)
        assert (solutions.status, solutions.batches, solutions.complete) == ("limit", (), False), solver
        assert "before the programme was written" in solutions.note


def test_the_tight_programme_has_each_batch_once():
    """All its solutions, by cutting off one after the other: as many as there are batches, up to row order."""
    rows = [np.array(bits) for bits in product((0, 1), repeat=4)]
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # four rows that XOR to zero: ambiguous
    gram = Gram.of(x)
    batches = sum(
        np.array_equal(Gram.of(np.array(other)).alpha, gram.alpha) for other in combinations_with_replacement(rows, 4)
    )
    model = Programme(float("inf"))
    entries = [entry for column in tight(model, gram) for entry in column]
    solutions = set()
    while model.problem.solve(pulp.HiGHS(msg=False, threads=1)) == pulp.LpStatusOptimal:
        bits = [round(entry.varValue) for entry in entries]
        solutions.add(tuple(bits))
        model.add(pulp.lpSum(1 - entry if bit else entry for entry, bit in zip(entries, bits, strict=True)) >= 1)
    assert len(solutions) == batches > 1
    assert len({sort_rows(np.array(bits).reshape(4, 4).T).tobytes() for bits in solutions}) == batches


def test_a_programme_gives_the_same_batch_again():
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # two batches have its alpha
    first, second = (solve(Gram.of(x)).batches[0] for _ in range(2))
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
    x, _ = draw(4, 5, seed=0)
    gram = Gram.of(x)
    right = [float(bit) for bit in x.ravel()]
    wrong = [1 - right[0], *right[1:]]
    for status, values, says in (
        ("found", [value + 1e-7 for value in right], pulp.LpSolutionOptimal),
        ("partial", right, pulp.LpSolutionIntegerFeasible),
        ("limit", wrong, pulp.LpSolutionOptimal),
        ("limit", None, pulp.LpSolutionInfeasible),  # mistaken: there is a batch
    ):
        monkeypatch.setattr(integer_programme, "_solver", lambda *_, values=values, says=says: Says(values, says))
        solutions = solve(gram, formulation="published")
        assert (solutions.status, solutions.complete) == (status, False)
    assert verified([0.5] * len(right), gram) is None
    confirmed = solve(NO_SUCH_BATCH, formulation="published")
    assert (confirmed.status, confirmed.complete) == ("infeasible", True)
    assert solve(NO_SUCH_BATCH, time_limit=0.0).status == "limit"  # a solver that was stopped may report infeasibility


def test_a_missing_solver_is_an_error_with_another_one(monkeypatch):
    gram = Gram.of(np.eye(2, dtype=int))
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _: False)
    with pytest.raises(UserError, match=r"batch_reconstruction.solver=highs: PuLP can't run it"):
        solve(gram)
    monkeypatch.setattr(pulp.COIN_CMD, "available", lambda _: False)
    with pytest.raises(UserError, match=r"solver=cbc: PuLP can't run it"):
        solve(gram, solver="cbc")


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 6), (3, 10)])
def test_the_published_programme_has_the_published_number_of_constraints(rows, columns):
    """(2 m + 1) d^2 - 2 m d. Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning"."""
    x = np.random.default_rng(1).integers(0, 2, (rows, columns))
    programme = Programme(math.inf)
    published(programme, Gram.of(x))
    assert programme.problem.numConstraints() == (2 * rows + 1) * columns**2 - 2 * rows * columns
