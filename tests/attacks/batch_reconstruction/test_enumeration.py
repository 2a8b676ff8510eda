"""Every matching batch, once: against exhaustive search and against CP-SAT."""

import csv
import functools
import gzip
import itertools

import numpy as np
import pytest
from support.consistent_batches import with_sums
from support.reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction import enumeration
from vflbench.attacks.batch_reconstruction.enumeration import (
    TimeLimit,
    column_search,
    is_alone,
    order_columns,
    unique_batch,
)
from vflbench.attacks.batch_reconstruction.gram import Gram, rank, sort_rows

enumerate_batches = functools.partial(enumeration.enumerate_batches, time_limit=None)


def draw(seed, rows, columns, density=0.5):
    return batch(rows, columns, np.random.default_rng(seed), density)


def as_set(solutions) -> set:
    return {x.tobytes() for x in solutions.batches}


def by_cp_sat(gram: Gram) -> set:
    """All matching batches, rows in order, by an independent constraint programme."""
    from ortools.sat.python import cp_model  # takes a second to import

    class Collected(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self):
            values = [[self.value(v) for v in row] for row in x]
            batches.add(np.array(values, dtype=np.uint8).tobytes())

    m, d = gram.rows, len(gram.alpha)
    batches: set = set()
    model = cp_model.CpModel()
    x = [[model.new_bool_var(f"x{r}_{i}") for i in range(d)] for r in range(m)]
    for i in range(d):
        model.add(sum(x[r][i] for r in range(m)) == int(gram.alpha[i, i]))
        for j in range(i):
            both = [model.new_bool_var(f"b{r}_{i}_{j}") for r in range(m)]
            for r in range(m):
                model.add_multiplication_equality(both[r], [x[r][i], x[r][j]])
            model.add(sum(both) == int(gram.alpha[i, j]))
    codes = [sum(2 ** (d - 1 - i) * x[r][i] for i in range(d)) for r in range(m)]
    for r in range(m - 1):
        model.add(codes[r] <= codes[r + 1])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = True
    status = solver.solve(model, Collected())
    assert status == (cp_model.OPTIMAL if batches else cp_model.INFEASIBLE)
    return batches


def test_batches_are_those_of_cp_sat():
    for seed in range(15):
        rng = np.random.default_rng(1000 + seed)
        rows, columns = int(rng.integers(3, 9)), int(rng.integers(4, 10))
        x, _ = draw(seed, rows, columns, density=(0.5, 0.3, 0.15)[seed % 3])
        solutions = enumerate_batches(Gram.of(x), max_batches=100_000)
        assert solutions.status == "proved", seed
        assert as_set(solutions) == by_cp_sat(Gram.of(x)), seed


def by_search(gram: Gram, monkeypatch) -> set:
    """The same, where no lattice is asked."""
    with monkeypatch.context() as patched:
        patched.setattr(enumeration, "unique_batch", lambda *_: None)
        solutions = enumerate_batches(gram)
    assert solutions.note == "the search ended"
    return as_set(solutions)


def test_the_lattice_yields_the_one_batch_that_a_search_proves(monkeypatch):
    for rows, columns in ((12, 20), (20, 40), (32, 64)):
        x, y = draw(rows, rows, columns)
        gram = Gram.of(x, y)
        solutions = enumerate_batches(gram)
        assert solutions.unique, (rows, columns)
        assert "lattice" in solutions.note
        assert is_alone(x)
        assert np.array_equal(solutions.batches[0], sort_rows(x)), (rows, columns)
        # No two rows are equal, and none is zero: all labels are known.
        order = np.lexsort(x.T[::-1])
        assert np.array_equal(solutions.labels[0][0], (y[order] + 1) / 2), (rows, columns)
        if rows <= 20:
            assert by_search(gram, monkeypatch) == as_set(solutions)


def test_rows_that_generate_a_part_of_the_lattice_alone_prove_nothing():
    even = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])  # they XOR to zero: columns of even weight
    gram = Gram.of(even).with_intercept
    assert not is_alone(even)
    assert unique_batch(gram, [level.column for level in order_columns(gram)], TimeLimit(None)) is None
    assert len(enumerate_batches(Gram.of(even)).batches) == 2
    assert not is_alone(np.array([[1, 0], [0, 1], [1, 1], [0, 0]]))  # fewer columns than rows


def test_what_is_found_before_the_time_is_up_is_unique_where_its_columns_generate_all_vectors(monkeypatch):
    """The Smith normal form of [1, X] alone tells."""
    for seed, alone in ((0, True), (0, False)):
        x, _ = draw(seed, 6, 12)
        x = x if alone else np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])

        def stopped(*arguments):
            yield next(column_search(*arguments))
            raise TimeoutError("the time limit was reached")

        with monkeypatch.context() as patched:
            patched.setattr(enumeration, "unique_batch", lambda *_: None)
            patched.setattr(enumeration, "column_search", stopped)
            solutions = enumeration.enumerate_batches(Gram.of(x), time_limit=1e6)
        assert (len(solutions.batches), solutions.unique, solutions.complete) == (1, alone, alone)
        assert "time limit" in solutions.note


@pytest.mark.slow
def test_eighty_rows_need_more_than_one_reduction():
    x = np.random.default_rng(1).integers(0, 2, (80, 100)).astype(np.uint8)
    solutions = enumerate_batches(Gram.of(x))
    assert solutions.unique
    assert np.array_equal(solutions.batches[0], sort_rows(x))


def test_the_smallest_batches_are_known_exactly():
    for shape in ((1, 1), (1, 6), (5, 1), (0, 4), (4, 0), (1, 0)):
        x, y = draw(7, *shape)
        solutions = enumerate_batches(Gram.of(x, y))
        assert solutions.status == "proved", shape
        assert len(solutions.batches) == 1, shape
        assert np.array_equal(solutions.batches[0], sort_rows(x)), shape
        assert solutions.batches[0].shape == shape


def test_sums_that_no_batch_has_are_infeasible_with_a_reason():
    broken = enumerate_batches(Gram(np.array([[2, 1], [0, 2]]), None, 3))
    assert (broken.status, len(broken.batches), broken.complete) == ("infeasible", 0, True)
    assert "symmetric" in broken.note
    # Of all matrices of two ones in each column, m = 4, d = 4, those are infeasible that no batch has.
    for entries in itertools.islice(itertools.product((0, 1, 2), repeat=6), 0, None, 7):
        alpha = np.full((4, 4), 2)
        alpha[np.triu_indices(4, 1)] = entries
        alpha = np.triu(alpha) + np.triu(alpha, 1).T
        solutions = enumerate_batches(Gram(alpha, None, 4))
        assert (solutions.status == "infeasible") == (not with_sums(alpha, None, 4)), alpha


def test_a_nearly_dependent_column_loses_no_row():
    # One column is less than 1e-7 from the span of others, in squared distance, and not dependent.
    x, _ = draw(63, 32, 64)
    gram = Gram.of(x).with_intercept
    placed = [level.column for level in order_columns(gram)]
    lower = np.linalg.cholesky(gram[np.ix_(placed, placed)].astype(float))
    assert 1e-9 < np.diagonal(lower).min() ** 2 < 1e-7
    solutions = enumerate_batches(Gram.of(x))
    assert solutions.unique
    assert np.array_equal(solutions.batches[0], sort_rows(x))


def triangular(columns: int) -> np.ndarray:
    """Ones on the diagonal and where row minus column is odd: the inverse has entries like Fibonacci numbers."""
    below = np.subtract.outer(np.arange(columns), np.arange(columns))
    return ((below == 0) | ((below > 0) & (below % 2 == 1))).astype(np.uint8)


@pytest.mark.slow
def test_columns_that_floats_call_dependent_lose_no_row():
    for first, second in ((0, 1), (17, 17)):
        x = triangular(36)
        x = np.r_[x, x[[first, second]]]
        solutions = enumerate_batches(Gram.of(x))
        assert solutions.unique, (first, second)
        assert np.array_equal(solutions.batches[0], sort_rows(x)), (first, second)


def divisible_minor() -> np.ndarray:
    """366 rows whose Gram matrix, with the intercept, has the determinant 23 (2^31 - 1): singular modulo that prime."""
    rows = ("01001", "01100", "01110", "10000", "00001", "11000", "11101", "01101")
    return np.repeat([[int(bit) for bit in row] for row in rows], [71, 31, 23, 52, 1, 65, 16, 107], axis=0)


def test_a_dependence_modulo_the_prime_is_none():
    x = divisible_minor()
    gram = Gram.of(x)
    assert rank(gram.with_intercept) == 5 < np.linalg.matrix_rank(gram.with_intercept)
    solutions = enumerate_batches(gram)
    assert solutions.complete
    assert sort_rows(x).tobytes() in as_set(solutions)


@pytest.mark.slow
@pytest.mark.data
def test_rows_of_real_data_with_many_nearly_dependent_columns_are_found(data_folder):
    with gzip.open(data_folder / "dna" / "dna.csv.gz", "rt") as file:
        lines = list(csv.reader(file))
    binary = [k for k, name in enumerate(lines[0]) if name.startswith("V")]
    rows = np.random.default_rng(4).choice(len(lines) - 1, 64, replace=False)
    x = np.array([[int(lines[1 + row][k]) for k in binary] for row in rows])
    assert x.shape == (64, 180)
    solutions = enumerate_batches(Gram.of(x))
    assert sort_rows(x).tobytes() in as_set(solutions)


def test_a_maximum_gives_a_lower_bound_only_if_it_is_exceeded():
    x, _ = draw(0, 12, 4)
    gram = Gram.of(x)
    whole = enumerate_batches(gram, max_batches=10**6)
    assert whole.complete
    assert len(whole.batches) > 3
    capped = enumerate_batches(gram, max_batches=3)
    assert (capped.status, len(capped.batches), capped.complete) == ("partial", 3, False)
    assert "more than 3" in capped.note
    assert as_set(capped) <= as_set(whole)
    exactly = enumerate_batches(gram, max_batches=len(whole.batches))
    assert (exactly.status, len(exactly.batches), exactly.complete) == ("proved", len(whole.batches), True)


def test_the_time_limit_is_reported():
    x, _ = draw(0, 40, 12)
    solutions = enumeration.enumerate_batches(Gram.of(x), time_limit=0)
    assert (solutions.status, len(solutions.batches), solutions.complete) == ("limit", 0, False)
    assert "time limit" in solutions.note
