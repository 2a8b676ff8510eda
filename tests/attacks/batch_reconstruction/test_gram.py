"""The Gram matrix of a batch, what speaks against one, and what a search's answer says of each entry."""

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.gram import Answer, Gram, align, in_order, share_of_ones
from vflbench.attacks.batch_reconstruction.modular_rank import rank


def batch(seed: int, rows: int, columns: int, density: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.random((rows, columns)) < density).astype(np.uint8), rng.choice([-1, 1], rows)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 4), (8, 20), (20, 8), (0, 3), (3, 0)])
def test_nothing_speaks_against_the_gram_matrix_of_a_batch(seed, shape):
    x, y = batch(seed, *shape)
    gram = Gram.of(x, y)
    assert gram.inconsistency() is None
    order = np.random.default_rng(seed).permutation(shape[0])
    assert gram.holds(x[order], y[order])


@pytest.mark.parametrize(
    ("alpha", "beta", "rows", "reason"),
    [
        (np.ones((2, 3), dtype=int), None, 3, "not square"),
        (np.eye(2), None, 3, "not integers"),
        (np.eye(2, dtype=int), None, -1, "-1 rows"),
        (np.eye(2, dtype=int), np.ones(3, dtype=int), 3, "beta has shape"),
        (np.eye(2, dtype=int), np.ones(2), 3, "beta holds"),
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
    ],
)
def test_each_inconsistency_is_named(alpha, beta, rows, reason):
    assert reason in Gram(alpha, beta, rows).inconsistency()


def test_any_single_changed_entry_of_alpha_is_no_longer_that_batch():
    x, y = batch(0, 6, 5)
    gram = Gram.of(x, y)
    flipped = x.copy()
    flipped[0, 0] ^= 1
    assert not gram.holds(flipped)
    assert not gram.holds(x, -y)
    assert not gram.holds(x[:-1])
    assert not gram.holds(2 * x)


@pytest.mark.parametrize("wrong", [np.full((2, 2), 2), np.zeros(3), np.full((2, 2), 0.5)])
def test_only_binary_matrices_are_batches(wrong):
    with pytest.raises(ValueError, match="matrix of 0 and 1"):
        Gram.of(wrong)


def test_labels_are_signs():
    with pytest.raises(ValueError, match=r"-1 or \+1"):
        Gram.of(np.eye(2), np.array([0, 1]))


def test_rows_in_order_are_sorted_as_tuples_are():
    x, _ = batch(1, 30, 4)
    assert in_order(x).tolist() == sorted(x.tolist())


def test_alignment_undoes_a_permutation_of_distinct_rows():
    x = np.array([[a >> k & 1 for k in range(4)] for a in range(16)], dtype=np.uint8)
    order = np.random.default_rng(0).permutation(16)
    assert np.array_equal(x[order][align(x[order], x)], x)


def test_the_share_of_ones_of_the_smallest_ambiguous_pair():
    # Even and odd rows of three bits: the two halves have equal Gram matrices.
    even = in_order(np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]))
    odd = in_order(1 - even)
    assert Gram.of(even).holds(odd)
    share = share_of_ones(Answer("proved", (even, odd), None, 2, True))
    # Each row of the one is at distance one from some row of the other: one bit a row differs, and those are open.
    assert (share == 0.5).sum() == 4
    assert np.array_equal(np.where(share == 0.5, even, share), even)
    with pytest.raises(ValueError, match="no batch"):
        share_of_ones(Answer("limit"))


@pytest.mark.parametrize("seed", range(10))
def test_the_rank_modulo_a_prime_is_the_rank(seed):
    x, _ = batch(seed, 9, 12)
    x[:, 3] = x[:, 5]
    x = x.astype(np.int64)
    assert rank(x) == rank(x.T @ x) == np.linalg.matrix_rank(x)


def test_the_rank_of_a_nearly_dependent_integer_matrix_is_full():
    big = 10**8
    assert rank(np.array([[big + 1, big], [big, big - 1]])) == 2
