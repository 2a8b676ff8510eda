import numpy as np
import pytest
from reconstruction_rounds import batches

from vflbench.attacks.batch_reconstruction.asynchronous.row_labels import labels_apart, labels_pushed
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import compose


def test_equal_rows_of_a_batch_have_only_a_mean_label():
    z = np.array([[1, 0], [1, 0], [0, 1]])
    told = labels_apart(z, np.array([1, 1, 0]), np.array([0, -1]))
    assert told.y.tolist() == [0, 0, -1]
    assert told.unique


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
def test_labels_straight_from_eta_where_the_rate_hides_their_sum(rate):
    right = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        (x1, y1), (x2, y2) = batches(11, 20, 2, rng)
        z, y, membership = np.vstack([x1, x2]), np.concatenate([y1, y2]), np.repeat([1, 0], 11)
        _, eta = compose([x1.T @ x1, x2.T @ x2], [x1.T @ y1, x2.T @ y2], rate)
        told = labels_pushed(z, membership, eta, rate)
        right += told.unique and np.array_equal(told.y, y)
        assert labels_pushed(z, membership, eta + 0.1, rate).refusal is not None
    assert right == 10


def test_without_the_second_term_the_batches_are_one():
    rng = np.random.default_rng(0)
    (x1, y1), (x2, y2) = batches(4, 12, 2, rng)
    z, y = np.vstack([x1, x2]), np.concatenate([y1, y2])
    told = labels_apart(z, np.repeat([1, 0], 4), z.T @ y)
    assert told.unique
    assert np.array_equal(told.y, y)
    with pytest.raises(ValueError, match="rows are"):
        labels_apart(z, np.ones(3), z.T @ y)
