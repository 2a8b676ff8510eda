"""Every matching batch, once: against all batches of small shapes one by one, and against planted ones."""

import functools
from itertools import product

import numpy as np
import pytest
from support import consistent_batches as oracle
from support.reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction import enumeration
from vflbench.attacks.batch_reconstruction.enumeration import TimeLimit, column_search, is_alone, order_columns, unique_batch
from vflbench.attacks.batch_reconstruction.gram import Gram, agreed, rank, sort_rows
from vflbench.attacks.batch_reconstruction.integer_programme import solve

enumerate_batches = functools.partial(enumeration.enumerate_batches, time_limit=None)
TWINS = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])  # 111, 100, 010, 001 have the same sums


def draw(seed, rows, columns):
    return batch(rows, columns, np.random.default_rng(seed))


def as_set(solutions) -> set:
    return {x.tobytes() for x in solutions.batches}


def known_labels(x, beta):
    """(m,) the share of positives among equal rows where all labellings with this beta agree; else nan."""
    x = x.astype(np.int64)
    every = [np.array(signs) for signs in product((-1, 1), repeat=len(x)) if np.array_equal(x.T @ np.array(signs), beta)]
    equal = (x[:, None] == x[None]).all(axis=2).astype(int)
    shares = np.array([equal @ (one > 0) / equal.sum(axis=1) for one in every])
    return np.where((shares == shares[0]).all(axis=0) & x.any(axis=1), shares[0], np.nan)


def check(alpha, beta, rows):
    """All batches with these sums, and nothing else."""
    expected = oracle.with_sums(alpha, beta, rows)
    solutions = enumerate_batches(Gram(alpha, beta, rows), max_batches=len(expected))
    assert (solutions.complete, solutions.status) == (True, "proved" if expected else "infeasible"), (alpha, beta)
    assert sorted(map(oracle.key, solutions.batches)) == sorted(map(oracle.key, expected)), (alpha, beta)
    for x, labels in zip(solutions.batches, solutions.labels or (), strict=beta is not None):
        assert len(labels) == len(oracle.labellings(x, beta)), (x, beta)
        assert np.array_equal(agreed(labels), known_labels(x, beta), equal_nan=True), (x, beta)


SLOW = [pytest.param(*size, marks=pytest.mark.slow) for size in ((5, 3), (3, 4), (8, 2))]


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (3, 3), (5, 2), *SLOW])
def test_every_small_batch_is_listed_with_its_twins_and_labels_and_sums_of_none_are_infeasible(rows, columns):
    rng, table = np.random.default_rng(1), oracle.all_batches(rows, columns)
    alphas = np.unique(table.alpha, axis=0).astype(np.int64)
    for alpha in alphas:
        check(alpha, None, rows)
    for k in rng.choice(len(table.x), 40):
        alpha = table.alpha[k].astype(np.int64)
        check(alpha, table.beta[k].astype(np.int64), rows)
        i, j = rng.integers(0, columns, 2)
        alpha[i, j] += rng.choice((-1, 1))
        alpha[j, i] = alpha[i, j]
        check(alpha, None, rows)


def test_a_batch_that_no_labels_fit_does_not_end_the_search():
    check((1 - TWINS).T @ (1 - TWINS), (1 - TWINS).T @ [1, 1, 1, -1], 4)


def test_each_inconsistency_is_named():
    cases = (
        (np.array([[2, 1], [0, 2]]), None, 3, "not symmetric"),
        (np.array([[1, -1], [-1, 1]]), None, 3, "negative"),
        (np.array([[4]]), None, 3, "more than the 3 rows"),
        (np.array([[1, 2], [2, 2]]), None, 3, "more than alpha_ii or alpha_jj"),
        (np.array([[2, 0], [0, 2]]), None, 3, "less than alpha_ii"),
        (np.array([[2]]), np.array([1]), 3, "both odd or both even"),
        (np.array([[1]]), np.array([3]), 3, "more than alpha_ii"),
        (np.eye(3, dtype=int), None, 2, "rank"),  # three columns, each pair disjoint, in two rows
        (np.array([[2, 2, 1], [2, 2, 2], [1, 2, 2]]), None, 8, "semidefinite"),  # x1 = x2 = x3, but x1 and x3 differ
    )
    for alpha, beta, rows, reason in cases:
        assert reason in Gram(alpha, beta, rows).inconsistency(), reason


@pytest.mark.parametrize(("rows", "columns"), [(12, 20), (20, 40), (32, 64)])
def test_the_lattice_yields_the_one_batch_that_a_search_proves(rows, columns, monkeypatch):
    x, y = draw(rows, rows, columns)
    gram, order = Gram.of(x, y), np.lexsort(x.T[::-1])
    solutions = enumerate_batches(gram)
    assert solutions.unique
    assert "lattice" in solutions.note
    assert is_alone(x)
    assert np.array_equal(solutions.batches[0], x[order])
    assert np.array_equal(solutions.labels[0][0], (y[order] + 1) / 2)  # no two rows are equal, and none is zero
    if rows <= 20:
        monkeypatch.setattr(enumeration, "unique_batch", lambda *_: None)
        searched = enumerate_batches(gram)
        assert (searched.note, as_set(searched)) == ("the search ended", as_set(solutions))


def test_rows_that_generate_a_part_of_the_lattice_alone_prove_nothing():
    gram = Gram.of(TWINS).with_intercept  # columns of even weight
    assert not is_alone(TWINS)
    assert unique_batch(gram, [level.column for level in order_columns(gram)], TimeLimit(None)) is None
    assert len(enumerate_batches(Gram.of(TWINS)).batches) == 2
    assert not is_alone(np.array([[1, 0], [0, 1], [1, 1], [0, 0]]))  # fewer columns than rows


@pytest.mark.parametrize(("x", "alone"), [(draw(0, 6, 12)[0], True), (TWINS, False)])
def test_what_is_met_before_the_time_is_up_is_unique_where_its_columns_generate_all_vectors(x, alone, monkeypatch):
    """The Smith normal form of [1, X] alone tells."""

    def stopped(*arguments):
        yield next(column_search(*arguments))
        raise TimeoutError("the time limit was reached")

    monkeypatch.setattr(enumeration, "unique_batch", lambda *_: None)
    monkeypatch.setattr(enumeration, "column_search", stopped)
    solutions = enumerate_batches(Gram.of(x), time_limit=1e6)
    assert (len(solutions.batches), solutions.unique, solutions.complete) == (1, alone, alone)
    assert "time limit" in solutions.note


def triangular(first, second):
    """Ones where row minus column is 0 or odd: the inverse has entries like Fibonacci numbers. Two rows are there twice."""
    below = np.subtract.outer(np.arange(36), np.arange(36))
    x = ((below == 0) | ((below > 0) & (below % 2 == 1))).astype(np.uint8)
    return np.r_[x, x[[first, second]]]


@pytest.mark.parametrize(
    "x",
    [
        draw(63, 32, 64)[0],  # one column is less than 1e-7 from the span of others, in squared distance
        pytest.param(
            np.random.default_rng(1).integers(0, 2, (80, 100)), marks=pytest.mark.slow
        ),  # one reduction of the lattice is not enough
        pytest.param(triangular(0, 1), marks=pytest.mark.slow),  # floats call some of its columns dependent
        pytest.param(triangular(17, 17), marks=pytest.mark.slow),
    ],
)
def test_nearly_dependent_columns_and_many_rows_lose_no_row(x):
    solutions = enumerate_batches(Gram.of(x))
    assert solutions.unique
    assert np.array_equal(solutions.batches[0], sort_rows(x))


def test_the_smallest_batches_are_known_exactly():
    for shape in ((1, 1), (1, 6), (5, 1), (0, 4), (4, 0), (1, 0)):
        x, y = draw(7, *shape)
        solutions = enumerate_batches(Gram.of(x, y))
        assert (solutions.status, len(solutions.batches), solutions.batches[0].shape) == ("proved", 1, shape)
        assert np.array_equal(solutions.batches[0], sort_rows(x)), shape


def test_a_dependence_modulo_the_prime_is_none():
    """366 rows whose Gram matrix, with the intercept, has the determinant 23 (2^31 - 1): singular modulo that prime."""
    rows = ("01001", "01100", "01110", "10000", "00001", "11000", "11101", "01101")
    x = np.repeat([[int(bit) for bit in row] for row in rows], [71, 31, 23, 52, 1, 65, 16, 107], axis=0)
    gram = Gram.of(x)
    assert rank(gram.with_intercept) == 5 < np.linalg.matrix_rank(gram.with_intercept)
    solutions = enumerate_batches(gram)
    assert solutions.complete
    assert sort_rows(x).tobytes() in as_set(solutions)


def test_a_maximum_gives_a_lower_bound_only_if_it_is_exceeded():
    gram = Gram.of(draw(0, 12, 4)[0])
    whole = enumerate_batches(gram, max_batches=10**6)
    exactly, capped = (enumerate_batches(gram, max_batches=most) for most in (len(whole.batches), 3))
    assert (exactly.status, as_set(exactly)) == (whole.status, as_set(whole)) == ("proved", as_set(whole))
    assert (capped.status, len(capped.batches), capped.complete) == ("partial", 3, False)
    assert "more than 3" in capped.note
    assert as_set(capped) < as_set(whole)


def test_the_time_limit_is_reported():
    solutions = enumerate_batches(Gram.of(draw(0, 40, 12)[0]), time_limit=0)
    assert (solutions.status, len(solutions.batches), solutions.complete) == ("limit", 0, False)
    assert "time limit" in solutions.note


def test_no_label_is_known_where_more_labellings_fit_than_are_listed(monkeypatch):
    """What the first ones agree on need not hold for the others."""
    x = np.array([[0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=np.int64)
    gram = Gram.of(x, np.array([1, -1, 1, -1, 1, 1, -1, 1]))
    for most in (1, 2, 3):
        assert np.isnan(agreed(enumerate_batches(gram, max_batches=most).labels[0])).all()
    monkeypatch.setattr(enumeration, "MOST_LABELLINGS", 3)
    for solutions in (enumerate_batches(gram), solve(gram)):
        assert solutions.labels == ((),)
