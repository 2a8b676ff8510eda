"""The labels of the rows of two local batches, from sums of labelled rows or from eta."""

import numpy as np
import pytest
from reconstruction_rounds import batches

from vflbench.attacks.batch_reconstruction.asynchronous import compose, labels_from_eta, labels_from_sums


def test_equal_rows_of_a_batch_have_only_a_mean_label():
    z = np.array([[1, 0], [1, 0], [0, 1]])
    labels = labels_from_sums(z, np.array([1, 1, 0]), np.array([0, -1]))
    assert labels.y.tolist() == [0, 0, -1]
    assert labels.unique


def test_labels_follow_from_eta_where_the_rate_hides_their_sum():
    for rate in (0.02, 0.05, 0.2):
        for seed in range(10):
            rng = np.random.default_rng(seed)
            (x1, y1), (x2, y2) = batches(11, 20, 2, rng)
            z, y, membership = np.vstack([x1, x2]), np.concatenate([y1, y2]), np.repeat([1, 0], 11)
            _, eta = compose([x1.T @ x1, x2.T @ x2], [x1.T @ y1, x2.T @ y2], rate)
            labels = labels_from_eta(z, membership, eta, rate)
            assert labels.unique, (rate, seed)
            assert np.array_equal(labels.y, y), (rate, seed)
            assert labels_from_eta(z, membership, eta + 0.1, rate).refusal is not None


def test_without_the_second_order_term_the_batches_are_treated_as_one():
    rng = np.random.default_rng(0)
    (x1, y1), (x2, y2) = batches(4, 12, 2, rng)
    z, y = np.vstack([x1, x2]), np.concatenate([y1, y2])
    labels = labels_from_sums(z, np.repeat([1, 0], 4), z.T @ y)
    assert labels.unique
    assert np.array_equal(labels.y, y)
    with pytest.raises(ValueError, match="rows must be"):
        labels_from_sums(z, np.ones(3), z.T @ y)
