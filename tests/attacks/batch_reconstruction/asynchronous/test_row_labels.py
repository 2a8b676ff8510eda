"""The labels of the rows of two local batches, from sums of labelled rows."""

from itertools import product

import numpy as np
from support.reconstruction_rounds import batches, compose

from vflbench.attacks.batch_reconstruction.asynchronous import TotalSums, labels_of_two, recover_total


def test_equal_rows_of_a_batch_have_only_a_mean_label():
    first, second = np.array([[1, 0], [1, 0], [0, 0]]), np.array([[0, 1]])
    right = ((1, 0, np.array([0, -1])), (0, -1, np.array([0, 0])))  # beta_sum, and alpha_2 beta_1
    labels = labels_of_two(first, second, TotalSums(labels=right))
    assert np.array_equal(labels, [[0, 0, np.nan, -1]], equal_nan=True)


def test_labels_of_two_batches_follow_at_rates_that_hide_their_sums_and_others():
    for rate, seed in product((0.01, 0.5, 1.0, 1.7321), range(4)):
        parts = batches(11, 20, 2, np.random.default_rng(seed))
        map_ = compose([x.T @ x for x, _ in parts], [x.T @ y for x, y in parts], rate / 11)
        total = recover_total(*map_, rate / 11, 2, rows=11, error=1e-15)
        assert (total.beta_sum is None) == (rate in (0.5, 1.0)), rate
        labels = labels_of_two(parts[0][0], parts[1][0], total)
        assert np.array_equal(labels, [np.concatenate([y for _, y in parts])]), (rate, seed)
        (b, a, right), *others = total.labels
        assert len(labels_of_two(parts[0][0], parts[1][0], TotalSums(labels=((b, a, right + 1), *others)))) == 0
