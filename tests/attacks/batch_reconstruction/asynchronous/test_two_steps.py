"""Each entry of the map of two local steps holds two integers, at any rate; both batches follow from them."""

from itertools import product

import numpy as np
from support.reconstruction_rounds import batch, batches, compose

from vflbench.attacks.batch_reconstruction.asynchronous import (
    TotalSums,
    labels_of_two,
    recover_total,
    separate,
    symmetric_factors,
    two_steps,
)


def planted(m, d, rate, seed, density=0.5):
    """alphas, betas, gamma / q, eta / (2 q) and q, for mean gradients."""
    parts = batches(m, d, 2, np.random.default_rng(seed), density)
    alphas, betas = [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]
    gamma, eta = compose(alphas, betas, rate / m)
    q = rate / (4 * m)
    return alphas, betas, gamma / q, eta / (2 * q), q


def test_at_a_simple_fraction_entries_are_ambiguous_and_the_factors_are_not():
    for rate, (m, d) in product((0.5, 2.0), ((11, 20), (6, 8))):
        alphas, _, scaled, labels, q = planted(m, d, rate, seed=3)
        count, _, _ = separate(scaled, q, m, 1e-9)
        assert count.max() > 1
        steps = two_steps(scaled, labels, q, m, 1e-9)
        assert np.array_equal(steps.alphas, alphas), (rate, m, d)
        assert not steps.assumption
        assert steps.beta_sum is None or rate == 0.5, (rate, m, d)


def test_dependent_columns_need_an_assumption_at_a_simple_fraction():
    for rate, (m, d) in product((0.5, 1.0), ((4, 12), (8, 20))):
        alphas, _, scaled, labels, q = planted(m, d, rate, seed=1)
        steps = two_steps(scaled, labels, q, m, 1e-9)
        assert np.array_equal(steps.alphas, alphas), (rate, m, d)
        assert "dependent" in steps.assumption


def test_equal_batches_and_noise_are_not_divided():
    """With alpha_1 = alpha_2 every alpha that commutes with both gives the same antisymmetric part."""
    x, _ = batch(6, 5, np.random.default_rng(0))
    alpha = x.T @ x
    assert symmetric_factors(2 * alpha - alpha @ alpha, 1, 1, np.zeros((0, 5), int), 6) is None
    _, _, scaled, labels, q = planted(6, 8, 0.9731, seed=0)
    noise = 0.01 * np.random.default_rng(1).normal(size=scaled.shape)
    assert "no sums of two binary batches" in two_steps(scaled + noise, labels, q, 6, 1e-9).refusal
    assert recover_total(q * (scaled + noise), 2 * q * labels, 4 * q, 2, rows=6, error=q * 0.06 / 8).refusal


def pairs_of_alphas(m, d):
    """Every alpha_1, alpha_2 of binary batches (m, d)."""
    alphas = {}
    for bits in product((0, 1), repeat=m * d):
        x = np.array(bits).reshape(m, d)
        alphas[(x.T @ x).tobytes()] = x.T @ x
    return list(product(alphas.values(), repeat=2))


def test_what_is_separated_is_unique_by_exhaustion():
    """Of all pairs of batches with two rows and two columns, none has the map of another one with other terms."""
    for rate in (0.3, 0.9731, 1.0, 2.0, 8 / 3):
        q, separated, divided = rate / 8, 0, 0
        pairs = pairs_of_alphas(2, 2)
        maps = np.array([one + other - q * other @ one for one, other in pairs])
        for scaled in maps:
            steps = two_steps(scaled, np.zeros(2), q, 2, 1e-9)
            if steps is None or steps.refusal:
                continue
            same = np.flatnonzero(np.abs(maps - scaled).max(axis=(1, 2)) < 1e-9)
            separated += 1
            for k in same:
                assert np.array_equal(steps.alpha_sum, pairs[k][0] + pairs[k][1]), rate
                assert steps.alphas is None or np.array_equal(steps.alphas, pairs[k]), rate
            divided += steps.alphas is not None
        assert separated > 20, rate
        assert divided >= 1, rate


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
