from itertools import product

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.asynchronous.bounded_integers import bounded_integers, equal_rows


@pytest.mark.parametrize("seed", range(20))
def test_all_solutions_are_found_as_by_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    matrix, most_of = rng.integers(-2, 3, (int(rng.integers(1, 4)), 5)), rng.integers(1, 4, 5)
    right = matrix @ rng.integers(0, most_of + 1)
    found, complete = bounded_integers(matrix, right, most_of, lambda x: np.array_equal(matrix @ x, right), 10_000)
    every = [x for x in product(*(range(n + 1) for n in most_of)) if np.array_equal(matrix @ np.array(x), right)]
    assert complete
    assert sorted(tuple(x.tolist()) for x in found) == sorted(every)


def test_a_contradiction_has_none_and_a_cap_is_told():
    matrix = np.array([[1, 1], [1, 1]])
    assert bounded_integers(matrix, np.array([1, 2]), np.array([3, 3]), lambda _: True, 10) == ([], True)
    found, complete = bounded_integers(np.zeros((1, 3), int), np.zeros(1), np.full(3, 9), lambda _: True, 50)
    assert (len(found), complete) == (50, False)


def test_equal_rows_are_counted():
    distinct, group, sizes = equal_rows(np.array([[1, 0], [0, 0], [1, 0]]))
    assert distinct.tolist() == [[0, 0], [1, 0]]
    assert group.tolist() == [1, 0, 1]
    assert sizes.tolist() == [1, 2]
