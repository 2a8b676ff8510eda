import numpy as np
import pytest
from reconstruction_rounds import batch, batches

from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import labels_apart
from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import tell_apart


@pytest.mark.parametrize(("m", "d"), [(8, 20), (11, 20), (8, 8), (3, 6)])
def test_two_batches_are_told_apart_with_their_labels_and_order(m, d):
    unique = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        (x1, y1), (x2, y2) = batches(m, d, 2, rng)
        order = rng.permutation(2 * m)
        z, y = np.vstack([x1, x2])[order], np.concatenate([y1, y2])[order]
        first = (order < m).astype(int)
        alpha_2 = x2.T @ x2
        found = tell_apart(z, alpha_2 @ (x1.T @ x1), rows=m)
        unique += found.unique
        z1 = z[found.membership == 1]
        assert sorted(map(tuple, z1)) == sorted(map(tuple, x1)) or not found.unique
        if not found.unique or len(np.unique(z, axis=0)) < 2 * m:
            continue
        assert np.array_equal(found.membership, first)
        told = labels_apart(z, found.membership, x1.T @ y1 + x2.T @ y2, alpha_2 @ (x1.T @ y1))
        traced = z.any(1)  # nothing tells the label of a row of zeros
        assert not told.unique or np.array_equal(told.y[traced], y[traced])
        assert told.count >= 1
    assert unique >= 9


def test_without_the_size_of_the_first_batch_zero_and_one_close_the_freedom():
    rng = np.random.default_rng(2)
    (x1, _), (x2, _) = batch(3, 12, rng), batch(7, 12, rng)
    z = np.vstack([x1, x2])
    found = tell_apart(z, (x2.T @ x2) @ (x1.T @ x1))
    assert found.unique
    assert found.membership.tolist() == [1] * 3 + [0] * 7


def test_equal_rows_in_both_batches_are_counted_and_rows_of_zeros_leave_no_trace():
    rng = np.random.default_rng(3)
    x1, _ = batch(5, 12, rng)
    x2, _ = batch(5, 12, rng)
    x2[0] = x1[0]
    x1[4] = x2[4] = 0
    z = np.vstack([x1, x2])
    found = tell_apart(z, (x2.T @ x2) @ (x1.T @ x1), rows=5)
    assert found.unique
    assert found.membership.sum() == 5
    assert found.membership[[0, 5]].sum() == 1
    assert found.membership[[4, 9]].sum() == 1


def test_commuting_batches_are_ambiguous_and_said_to_be():
    """Rows of an identity matrix: every division has the same second term, zero."""
    found = tell_apart(np.eye(4), np.zeros((4, 4)), rows=2)
    assert found.count == 6
    assert not found.unique


def test_rows_of_another_batch_are_refused():
    rng = np.random.default_rng(4)
    (x1, y1), (x2, y2) = batches(6, 12, 2, rng)
    second = (x2.T @ x2) @ (x1.T @ x1)
    wrong = np.vstack([x1, x2])
    wrong[0, 3] = 1 - wrong[0, 3]
    assert "no division" in tell_apart(wrong, second, rows=6).refusal
    z, membership = np.vstack([x1, x2]), np.repeat([1, 0], 6)
    beta = x1.T @ y1 + x2.T @ y2
    assert "parity" in labels_apart(z, membership, beta + 1).refusal
    assert labels_apart(z, membership, beta + 2 * np.arange(12)).refusal is not None
    with pytest.raises(ValueError, match="second term"):
        tell_apart(z, second[:3])
