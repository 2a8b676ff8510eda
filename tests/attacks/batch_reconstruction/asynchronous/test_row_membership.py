"""Which rows belong to which of two local batches, from the second-order term: planted batches come back."""

import numpy as np
import pytest
from reconstruction_rounds import batch, batches

from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import labels_from_sums
from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import row_membership


def test_two_batches_are_divided_with_their_labels_and_order():
    for m, d in ((8, 20), (11, 20), (8, 8), (3, 6)):
        unique = 0
        for seed in range(10):
            rng = np.random.default_rng(seed)
            (x1, y1), (x2, y2) = batches(m, d, 2, rng)
            order = rng.permutation(2 * m)
            z, y = np.vstack([x1, x2])[order], np.concatenate([y1, y2])[order]
            first = (order < m).astype(int)
            alpha_2 = x2.T @ x2
            result = row_membership(z, alpha_2 @ (x1.T @ x1), rows=m)
            unique += result.unique
            z1 = z[result.membership == 1]
            assert sorted(map(tuple, z1)) == sorted(map(tuple, x1)) or not result.unique
            if not result.unique or len(np.unique(z, axis=0)) < 2 * m:
                continue
            assert np.array_equal(result.membership, first), (m, d, seed)
            labels = labels_from_sums(z, result.membership, x1.T @ y1 + x2.T @ y2, alpha_2 @ (x1.T @ y1))
            nonzero = z.any(1)  # the label of a row of zeros enters no sum
            assert not labels.unique or np.array_equal(labels.y[nonzero], y[nonzero]), (m, d, seed)
            assert labels.count >= 1
        assert unique >= 9, (m, d)


def test_without_the_size_of_the_first_batch_zero_and_one_remove_the_freedom():
    rng = np.random.default_rng(2)
    (x1, _), (x2, _) = batch(3, 12, rng), batch(7, 12, rng)
    z = np.vstack([x1, x2])
    result = row_membership(z, (x2.T @ x2) @ (x1.T @ x1))
    assert result.unique
    assert result.membership.tolist() == [1] * 3 + [0] * 7


def test_equal_rows_in_both_batches_are_counted_and_rows_of_zeros_are_ignored():
    rng = np.random.default_rng(3)
    x1, _ = batch(5, 12, rng)
    x2, _ = batch(5, 12, rng)
    x2[0] = x1[0]
    x1[4] = x2[4] = 0
    z = np.vstack([x1, x2])
    result = row_membership(z, (x2.T @ x2) @ (x1.T @ x1), rows=5)
    assert result.unique
    assert result.membership.sum() == 5
    assert result.membership[[0, 5]].sum() == 1
    assert result.membership[[4, 9]].sum() == 1


def test_commuting_batches_are_reported_as_ambiguous():
    """Rows of an identity matrix: every division has the same second-order term, zero."""
    result = row_membership(np.eye(4), np.zeros((4, 4)), rows=2)
    assert result.count == 6
    assert not result.unique


def test_rows_of_another_batch_are_refused():
    rng = np.random.default_rng(4)
    (x1, y1), (x2, y2) = batches(6, 12, 2, rng)
    second = (x2.T @ x2) @ (x1.T @ x1)
    wrong = np.vstack([x1, x2])
    wrong[0, 3] = 1 - wrong[0, 3]
    assert "no division" in row_membership(wrong, second, rows=6).refusal
    z, membership = np.vstack([x1, x2]), np.repeat([1, 0], 6)
    beta = x1.T @ y1 + x2.T @ y2
    assert "parity" in labels_from_sums(z, membership, beta + 1).refusal
    assert labels_from_sums(z, membership, beta + 2 * np.arange(12)).refusal is not None
    with pytest.raises(ValueError, match="second-order term"):
        row_membership(z, second[:3])
