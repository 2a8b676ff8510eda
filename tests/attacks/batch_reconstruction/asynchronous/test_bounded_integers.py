"""Small integer solutions of linear equations, against exhaustive search."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vflbench.attacks.batch_reconstruction.asynchronous import bounded_integers, equal_rows


@settings(max_examples=40)
@given(
    matrix=st.integers(1, 3).flatmap(lambda k: arrays(np.int64, (k, 5), elements=st.integers(-2, 2))),
    upper=arrays(np.int64, 5, elements=st.integers(0, 3)),
    planted=arrays(np.int64, 5, elements=st.integers(0, 3)),
)
def test_all_solutions_are_those_of_exhaustive_search(matrix, upper, planted):
    right = matrix @ np.minimum(planted, upper)
    solutions, complete = bounded_integers(matrix, right, upper, lambda x: np.array_equal(matrix @ x, right), 10_000)
    grid = [x for x in product(*(range(n + 1) for n in upper)) if np.array_equal(matrix @ np.array(x), right)]
    assert complete
    assert sorted(tuple(x.tolist()) for x in solutions) == sorted(grid)


def test_a_contradiction_has_no_solution_and_a_limit_is_reported():
    matrix = np.array([[1, 1], [1, 1]])
    assert bounded_integers(matrix, np.array([1, 2]), np.array([3, 3]), lambda _: True, 10) == ([], True)
    solutions, complete = bounded_integers(np.zeros((1, 3), int), np.zeros(1), np.full(3, 9), lambda _: True, 50)
    assert (len(solutions), complete) == (50, False)


def test_equal_rows_are_counted():
    distinct, group, sizes = equal_rows(np.array([[1, 0], [0, 0], [1, 0]]))
    assert distinct.tolist() == [[0, 0], [1, 0]]
    assert group.tolist() == [1, 0, 1]
    assert sizes.tolist() == [1, 2]
