"""What an update of several local steps determines: Theorem 1, its expansion, the sums over all batches, and two batches.

Each entry of the map of two local steps holds two integers, at any rate; both batches follow from them.
"""

from itertools import product

import numpy as np
import pytest
from support.reconstruction_rounds import batch, batches, compose, gradient

from vflbench.attacks.batch_reconstruction.asynchronous import (
    TotalSums,
    labels_of_two,
    recover_map,
    recover_total,
    separate,
    symmetric_factors,
    two_steps,
)


def sums(parts):
    return [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]


def test_theorem_1():
    """The update is eta - gamma theta, both recovered from d + 1 rounds and equal to the products."""
    for n, mean in product((1, 2, 3, 5), (False, True)):
        rng = np.random.default_rng(n)
        m, d, rate = 8, 6, 0.05 / (8 if mean else 1)
        parts, thetas = batches(m, d, n, rng), rng.normal(size=(d + 1, d))
        gamma, eta = compose(*sums(parts), rate)
        after = thetas.copy()  # local steps on each batch, row by row of the data
        for (x, y), k in product(parts, range(d + 1)):
            after[k] -= rate * gradient(x, y, after[k])
        assert np.allclose(after - thetas, eta - thetas @ gamma.T, atol=1e-13), (n, mean)
        local_map = recover_map(thetas, after - thetas)
        assert np.allclose(-local_map.linear.T, gamma, atol=1e-11), (n, mean)
        assert np.allclose(local_map.constant, eta, atol=1e-11), (n, mean)
        assert (np.abs(local_map.linear.T + gamma) <= 6 * local_map.linear_error.T).all(), (n, mean)
        assert np.allclose(gamma, gamma.T) == (n == 1)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "d", "n"), [(8, 10, 3), (5, 8, 4)])
def test_rounding_is_right_while_the_second_order_term_is_below_one_half(m, d, n):
    for seed in range(2):
        alphas, betas = sums(batches(m, d, n, np.random.default_rng(seed)))
        second = sum(later @ one for i, one in enumerate(alphas) for later in alphas[i + 1 :])
        bound, last_right = 2 / np.abs((second + second.T) / 2).max(), 0.0  # rate/4 |second| = 1/2
        for rate in bound * 1.3 ** np.arange(-3, 12):
            total = recover_total(*compose(alphas, betas, rate), rate, n, rows=m)
            if not total.refusal:
                assert np.array_equal(total.alpha_sum, sum(alphas)), (seed, rate)
                last_right = rate / bound
        assert 0.7 < last_right < 1.4  # the published bound, up to a third-order term


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


def test_a_rate_that_is_too_small_for_the_precision_is_refused():
    alphas, betas = sums(batches(8, 10, 3, np.random.default_rng(1)))
    assert (
        "too small for the precision" in recover_total(*compose(alphas, betas, 1e-9), 1e-9, 3, rows=8, error=1e-10).refusal
    )


def planted(m, d, rate, seed):
    """alphas, gamma / q, eta / (2 q) and q, for mean gradients."""
    alphas, betas = sums(batches(m, d, 2, np.random.default_rng(seed)))
    gamma, eta = compose(alphas, betas, rate / m)
    q = rate / (4 * m)
    return alphas, gamma / q, eta / (2 * q), q


@pytest.mark.parametrize(
    ("seed", "shapes", "assumption"), [(3, ((11, 20), (6, 8)), ""), (1, ((4, 12), (8, 20)), "dependent")]
)
def test_at_a_simple_fraction_entries_are_ambiguous_and_the_factors_are_not(seed, shapes, assumption):
    """Dependent columns need an assumption there."""
    for rate, (m, d) in product((0.5, 2.0), shapes):
        alphas, scaled, labels, q = planted(m, d, rate, seed)
        assert separate(scaled, q, m, 1e-9)[0].max() > 1
        steps = two_steps(scaled, labels, q, m, 1e-9)
        assert np.array_equal(steps.alphas, alphas), (rate, m, d)
        assert assumption in steps.assumption
        assert bool(assumption) == bool(steps.assumption)
        assert assumption or steps.beta_sum is None or rate == 0.5, (rate, m, d)


def test_equal_batches_and_noise_are_not_divided():
    """With alpha_1 = alpha_2 every alpha that commutes with both gives the same antisymmetric part."""
    x, _ = batch(6, 5, np.random.default_rng(0))
    alpha = x.T @ x
    assert symmetric_factors(2 * alpha - alpha @ alpha, 1, 1, np.zeros((0, 5), int), 6) is None
    _, scaled, labels, q = planted(6, 8, 0.9731, seed=0)
    scaled = scaled + 0.01 * np.random.default_rng(1).normal(size=scaled.shape)
    assert "no sums of two binary batches" in two_steps(scaled, labels, q, 6, 1e-9).refusal
    assert recover_total(q * scaled, 2 * q * labels, 4 * q, 2, rows=6, error=q * 0.06 / 8).refusal


def test_what_is_separated_is_unique_by_exhaustion():
    """Of all pairs of batches with two rows and two columns, none has the map of another one with other terms."""
    every = [np.array(bits).reshape(2, 2) for bits in product((0, 1), repeat=4)]
    alphas = list({(x.T @ x).tobytes(): x.T @ x for x in every}.values())
    pairs = list(product(alphas, repeat=2))
    for rate in (0.3, 0.9731, 1.0, 2.0, 8 / 3):
        q, separated, divided = rate / 8, 0, 0
        maps = np.array([one + other - q * other @ one for one, other in pairs])
        for scaled in maps:
            steps = two_steps(scaled, np.zeros(2), q, 2, 1e-9)
            if steps is None or steps.refusal:
                continue
            separated += 1
            divided += steps.alphas is not None
            for k in np.flatnonzero(np.abs(maps - scaled).max(axis=(1, 2)) < 1e-9):
                assert np.array_equal(steps.alpha_sum, pairs[k][0] + pairs[k][1]), rate
                assert steps.alphas is None or np.array_equal(steps.alphas, pairs[k]), rate
        assert separated > 20, rate
        assert divided >= 1, rate


def test_equal_rows_of_a_batch_have_only_a_mean_label():
    first, second = np.array([[1, 0], [1, 0], [0, 0]]), np.array([[0, 1]])
    right = ((1, 0, np.array([0, -1])), (0, -1, np.array([0, 0])))  # beta_sum, and alpha_2 beta_1
    labels = labels_of_two(first, second, TotalSums(labels=right))
    assert np.array_equal(labels, [[0, 0, np.nan, -1]], equal_nan=True)


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0, 1.7321])
def test_labels_of_two_batches_follow_at_rates_that_hide_their_sums_and_others(rate):
    for seed in range(2):
        parts = batches(11, 20, 2, np.random.default_rng(seed))
        total = recover_total(*compose(*sums(parts), rate / 11), rate / 11, 2, rows=11, error=1e-15)
        assert (total.beta_sum is None) == (rate in (0.5, 1.0))
        labels = labels_of_two(parts[0][0], parts[1][0], total)
        assert np.array_equal(labels, [np.concatenate([y for _, y in parts])]), seed
        (b, a, right), *others = total.labels
        assert len(labels_of_two(parts[0][0], parts[1][0], TotalSums(labels=((b, a, right + 1), *others)))) == 0
