"""The Gram matrix of a batch: its consistency tests, and the rank that they need."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vflbench.attacks.batch_reconstruction.gram import Gram

SHAPES = st.tuples(st.integers(0, 12), st.integers(0, 8))


@settings(max_examples=60)
@given(x=SHAPES.flatmap(lambda shape: arrays(np.uint8, shape, elements=st.integers(0, 1))), seed=st.integers(0, 99))
def test_the_gram_matrix_of_a_batch_is_consistent_and_independent_of_the_order_of_rows(x, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], len(x))
    gram = Gram.of(x, y)
    assert gram.inconsistency() is None
    order = rng.permutation(len(x))
    assert gram.matches(x[order], y[order])


def test_each_inconsistency_is_named():
    cases = (
        (np.array([[2, 1], [0, 2]]), None, 3, "not symmetric"),
        (np.array([[1, -1], [-1, 1]]), None, 3, "negative"),
        (np.array([[4]]), None, 3, "more than the 3 rows"),
        (np.array([[1, 2], [2, 2]]), None, 3, "more than alpha_ii or alpha_jj"),
        (np.array([[2, 0], [0, 2]]), None, 3, "less than alpha_ii"),
        (np.array([[2]]), np.array([1]), 3, "both odd or both even"),
        (np.array([[1]]), np.array([3]), 3, "more than alpha_ii"),
        # Three columns, each pair disjoint, in two rows.
        (np.eye(3, dtype=int), None, 2, "rank"),
        # x1 = x2 on their ones and x2 = x3, but x1 and x3 differ.
        (np.array([[2, 2, 1], [2, 2, 2], [1, 2, 2]]), None, 8, "semidefinite"),
    )
    for alpha, beta, rows, reason in cases:
        assert reason in Gram(alpha, beta, rows).inconsistency(), reason
