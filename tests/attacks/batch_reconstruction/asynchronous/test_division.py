"""Two whole local batches, in the order of their steps and with labels, from one update and a candidate of their rows."""

import numpy as np
from reconstruction_rounds import batch, batches

from vflbench.attacks.batch_reconstruction.asynchronous.division import divide_rows
from vflbench.attacks.batch_reconstruction.asynchronous.local_map import compose
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import TotalSums, recover_total


def planted(seed, m=8, d=20, rate=0.01):
    rng = np.random.default_rng(seed)
    (x1, y1), (x2, y2) = batches(m, d, 2, rng)
    gamma, eta = compose([x1.T @ x1, x2.T @ x2], [x1.T @ y1, x2.T @ y2], rate)
    order = rng.permutation(2 * m)
    return (x1, y1), (x2, y2), np.vstack([x1, x2])[order], gamma, eta


def rows_of(x, y):
    return sorted(map(tuple, np.column_stack([x, y]).tolist()))


def test_both_batches_are_recovered_in_order_and_with_labels():
    """At rate 0.02 the sum of the betas is hidden, and the labels follow from eta itself."""
    for rate in (0.002, 0.01, 0.02):
        for seed in range(5):
            (x1, y1), (x2, y2), z, gamma, eta = planted(seed, rate=rate)
            total = recover_total(gamma, eta, rate, 2, rows=8)
            assert (total.beta_sum is None) == (rate == 0.02)
            division = divide_rows([z], total, eta, rate, rows=8)
            assert division.unique, (rate, seed)
            two = division.batches[0]
            assert two.labels_unique, (rate, seed)
            assert rows_of(two.first, two.first_labels) == rows_of(x1, y1), (rate, seed)
            assert rows_of(two.second, two.second_labels) == rows_of(x2, y2), (rate, seed)


def test_the_second_order_term_selects_among_candidates_of_the_same_sum():
    """Four rows that XOR to zero can be switched without a change of X^T X. The second-order term distinguishes them."""
    even = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    selected = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rest, _ = batch(8, 9, rng)
        rest[:4, :3], order = even, rng.permutation(8)
        rest[:4, 3:] = rest[0, 3:]
        switched = rest.copy()
        switched[:4, :3] = 1 - even
        assert np.array_equal(rest.T @ rest, switched.T @ switched)
        z = rest[order]
        x1, x2, y = z[:4], z[4:], rng.choice([-1, 1], 4)
        gamma, eta = compose([x1.T @ x1, x2.T @ x2], [x1.T @ y, x2.T @ y], 0.01)
        total = recover_total(gamma, eta, 0.01, 2, rows=4)
        division = divide_rows([switched, rest], total, eta, 0.01, rows=4)
        assert any(np.array_equal(two.first.T @ two.first, x1.T @ x1) for two in division.batches)
        selected += division.unique
    assert selected >= 8


def test_candidates_that_are_other_rows_are_refused():
    *_, z, gamma, eta = planted(0)
    wrong = z.copy()
    wrong[0, 0] = 1 - wrong[0, 0]
    total = recover_total(gamma, eta, 0.01, 2, rows=8)
    assert divide_rows([wrong], total, eta, 0.01, rows=8).refusal == "none of the 1 candidates has this second-order term"
    assert divide_rows([wrong, z], total, eta, 0.01, rows=8).unique
    hidden = TotalSums(refusal="the rate hides it")
    assert divide_rows([z], hidden, eta, 0.01).refusal == "the rate hides it"


def test_a_candidate_with_too_many_divisions_to_try_is_not_excluded():
    row = np.zeros(20, dtype=np.int64)
    row[0] = 1
    alpha = np.outer(row, row)
    total = TotalSums(alpha_sum=4 * alpha, second=3 * alpha, proved=True)
    eta, z = np.zeros(20), np.tile(row, (4, 1))
    assert divide_rows([z], total, eta, 0.01, rows=1).unique
    undecided = np.tile(np.eye(20, dtype=np.int64), (2, 1))
    assert not divide_rows([undecided, z], total, eta, 0.01, rows=1).unique


def test_one_row_and_one_column():
    """d = 1: A_2 = a_2 a_1 and the sum a_1 + a_2 leave which is which open, unless a batch's size forbids one."""
    gamma, eta = compose([np.array([[1]])] * 2, [np.array([1]), np.array([-1])], 0.01)
    total = recover_total(gamma, eta, 0.01, 2, rows=1)
    assert total.alpha_sum.tolist() == [[2]]
    assert total.second.tolist() == [[1]]
    division = divide_rows([np.ones((2, 1))], total, eta, 0.01, rows=1)
    assert division.unique
    assert division.batches[0].first_labels.tolist() == [1]
    assert division.batches[0].second_labels.tolist() == [-1]
