"""What an update of several local steps determines: Theorem 1, its expansion, and the sums over all batches."""

from itertools import product

import numpy as np
import pytest
from support.reconstruction_rounds import batches, compose, gradient

from vflbench.attacks.batch_reconstruction.asynchronous import recover_map, recover_total


def differences_of(parts, thetas, rate, mean=False):
    """theta_n - theta_0 of local steps on each batch, row by row of the data."""
    differences = []
    for start in thetas:
        theta = start.copy()
        for x, y in parts:
            theta = theta - rate * gradient(x, y, theta) / (len(x) if mean else 1)
        differences.append(theta - start)
    return np.array(differences)


def sums(parts):
    return [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]


def test_theorem_1():
    """The update is eta - gamma theta, both recovered from d + 1 rounds and equal to the products."""
    for n, mean in product((1, 2, 3, 5), (False, True)):
        rng = np.random.default_rng(n)
        m, d, rate = 8, 6, 0.05
        parts = batches(m, d, n, rng)
        gamma, eta = compose(*sums(parts), rate / m if mean else rate)
        thetas = rng.normal(size=(d + 1, d))
        differences = differences_of(parts, thetas, rate, mean)
        assert np.allclose(differences, eta - thetas @ gamma.T, atol=1e-13), (n, mean)
        local_map = recover_map(thetas, differences)
        assert np.allclose(-local_map.linear.T, gamma, atol=1e-11), (n, mean)
        assert np.allclose(local_map.constant, eta, atol=1e-11), (n, mean)
        assert (np.abs(local_map.linear.T + gamma) <= 6 * local_map.linear_error.T).all(), (n, mean)
        assert np.allclose(gamma, gamma.T) == (n == 1)


@pytest.mark.slow
def test_rounding_is_right_while_the_second_order_term_is_below_one_half():
    for m, d, n in ((8, 10, 3), (5, 8, 4)):
        highest = []
        for seed in range(2):
            alphas, betas = sums(batches(m, d, n, np.random.default_rng(seed)))
            second = sum(later @ one for i, one in enumerate(alphas) for later in alphas[i + 1 :])
            bound = 2 / np.abs((second + second.T) / 2).max()  # rate/4 |second| = 1/2
            last_right = 0.0
            for rate in bound * 1.3 ** np.arange(-3, 12):
                total = recover_total(*compose(alphas, betas, rate), rate, n, rows=m)
                if not total.refusal:
                    assert np.array_equal(total.alpha_sum, sum(alphas)), (m, d, n, seed, rate)
                    last_right = max(last_right, rate / bound)
            highest.append(last_right)
        assert all(0.7 < ratio < 1.4 for ratio in highest), (m, d, n)  # the published bound, up to a third-order term


def test_proved_sums_are_right_and_of_three_batches_none_is_proved():
    proved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([2, 3]))
        alphas, betas = sums(batches(6, 8, n, rng, density=rng.uniform(0.2, 0.8)))
        rate = 10 ** rng.uniform(-3, -1)
        total = recover_total(*compose(alphas, betas, rate), rate, n, rows=6, error=1e-15)
        proved += (says := not total.refusal and not total.assumption)
        assert not says or (n == 2 and np.array_equal(total.alpha_sum, sum(alphas))), seed
    assert proved >= 5


def test_rates_that_hide_the_sums_are_refused():
    alphas, betas = sums(batches(8, 10, 3, np.random.default_rng(1)))
    large = recover_total(*compose(alphas, betas, 0.5), 0.5, 3, rows=8)
    assert "the rate 0.5 hides the sum of 3 batches" in large.refusal
    small = recover_total(*compose(alphas, betas, 1e-9), 1e-9, 3, rows=8, error=1e-10)
    assert "too small for the precision" in small.refusal
