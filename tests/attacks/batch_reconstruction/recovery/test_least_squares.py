"""alpha and beta by least squares: exact from d + 1 rounds, and a named refusal wherever rounding would be a guess."""

from itertools import product

import numpy as np
import pytest
from support.reconstruction_rounds import batch, gradient, honest_run, is_recovered, rounds

from vflbench.attacks.batch_reconstruction.recover import (
    FLOAT32,
    FLOAT64,
    fit_affine,
    least_squares,
    rounding_unit,
)
from vflbench.messages.facts import Schema


def recover(thetas, updates, *, rows):
    """Of columns that are all binary, from sums of gradients."""
    return least_squares(thetas, updates, rate=0.1, rows=rows, schema=Schema(tuple(range(thetas.shape[1]))))


def test_one_more_pair_than_coordinates_is_enough():
    for m, d in ((1, 1), (1, 4), (3, 1), (8, 5), (11, 20), (32, 64)):
        for dtype in (np.float64, np.float32):
            rng = np.random.default_rng(m * d)
            x, y = batch(m, d, rng)
            recovered = recover(*rounds(x, y, d + 1, rng, dtype=dtype), rows=m)
            assert is_recovered(recovered, x, y), (m, d, dtype, recovered.refusal)
            assert recovered.rounds == d + 1


def test_as_many_pairs_as_coordinates_leave_a_rank_one_freedom():
    rng = np.random.default_rng(0)
    d = 6
    x, y = batch(8, d, rng)
    thetas, updates = rounds(x, y, d, rng)
    alpha, beta = x.T @ x, x.T @ y
    v = np.linalg.solve(thetas, np.ones(d))  # the hyperplane v.theta = 1 that holds all thetas
    other_alpha, other_beta = alpha + np.outer(v, v), beta + v / 2
    for a, b in ((alpha, beta), (other_alpha, other_beta)):
        assert np.allclose(-0.1 * (thetas @ a / 4 - b / 2), updates, atol=1e-12)
    recovered = recover(thetas, updates, rows=8)
    assert recovered.alpha is None
    assert recovered.refusal == "too few rounds: 6 coordinates need 7 pairs, there are 6"


def test_thetas_in_a_hyperplane_are_refused_however_many():
    rng = np.random.default_rng(1)
    x, y = batch(8, 5, rng)
    thetas, _ = rounds(x, y, 30, rng)
    thetas[:, 4] = 1 - thetas[:, :4].sum(1)
    updates = np.array([-0.1 * gradient(x, y, theta) for theta in thetas])
    assert "not affinely independent" in recover(thetas, updates, rows=8).refusal
    assert "all 30 rounds are the same" in recover(np.ones((30, 5)), updates, rows=8).refusal


def test_an_honest_run_of_full_batches_is_refused_until_it_is_long():
    """Krylov: the first thetas lie on a line for float64. A result without a refusal must be right."""
    right = {}
    for n in (11, 21, 80, 1000):
        right[n] = 0
        for seed in range(3):
            rng = np.random.default_rng(seed)
            theirs, mine = batch(11, 20, rng), batch(11, 20, rng)
            recovered = recover(*honest_run(theirs, mine, n, rng), rows=11)
            assert recovered.refusal is not None or is_recovered(recovered, *theirs)
            right[n] += recovered.refusal is None
    assert right == {11: 0, 21: 0, 80: 0, 1000: 3}


def test_float32_parties_are_recognised_by_their_parameters():
    """Their step, 2 dtheta - own step in float64, is no float32 number, but as coarse as theta."""
    right = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theirs = batch(11, 20, rng)
        pairs = honest_run(theirs, None, 40, rng, fresh=8, dtype=np.float32)
        recovered = recover(*pairs, rows=11)
        assert recovered.refusal is not None or is_recovered(recovered, *theirs)
        right += recovered.refusal is None
    assert right >= 3


def test_ill_conditioned_thetas_are_refused_with_the_condition_and_never_rounded_wrongly():
    rng = np.random.default_rng(3)
    x, y = batch(8, 6, rng)
    base = rng.normal(size=(12, 6))
    reasons = []
    for dtype, spread in product(
        (np.float64, np.float32), 10.0 ** -np.arange(0, 16, 1.5)
    ):  # one direction that hardly changes
        direction = np.ones(6) / np.sqrt(6)  # hardly changes
        thetas = base - (1 - spread) * np.outer(base @ direction, direction)
        updates = np.array([-0.1 * gradient(x, y, theta) for theta in thetas]).astype(dtype)
        recovered = recover(thetas, updates, rows=8)
        assert recovered.refusal is not None or is_recovered(recovered, x, y)
        reasons.append(recovered.refusal)
    assert reasons[0] is None
    assert any(r and "condition of the design" in r for r in reasons)
    assert "not affinely independent" in reasons[-1]


def test_little_noise_is_averaged_out_and_much_is_refused():
    rng = np.random.default_rng(4)
    x, y = batch(8, 10, rng)
    for noise, n, is_enough in ((1e-3, 60, True), (0.02, 60, False), (0.02, 4_000, True)):
        thetas, updates = rounds(x, y, n, rng)
        recovered = recover(thetas, updates + noise * rng.normal(size=updates.shape), rows=8)
        assert is_recovered(recovered, x, y) == is_enough, (noise, n)
        if not is_enough:
            assert "too uncertain to be rounded" in recovered.refusal
            assert recovered.residual == pytest.approx(40 * noise, rel=0.3)  # 4 g = -4 update / rate


def test_columns_that_are_not_binary_are_refused_but_reported_unrounded():
    rng = np.random.default_rng(9)
    x, y = batch(8, 6, rng)
    x = x.astype(float)
    x[:, 2] = rng.normal(size=8)
    recovered = recover(*rounds(x, y, 12, rng), rows=8)
    assert "not integral" in recovered.refusal
    assert recovered.alpha is None
    assert np.allclose(recovered.real_alpha, x.T @ x, atol=1e-9)
    assert np.allclose(recovered.real_beta, x.T @ y, atol=1e-9)


def test_small_real_numbers_in_a_sparse_batch_are_no_zeros():
    rng = np.random.default_rng(17)
    x, y = batch(8, 12, rng, density=0.1)
    x = x.astype(float)
    x[:, 2] = 0.05 * rng.random(8)
    assert "not integral" in recover(*rounds(x, y, 30, rng), rows=8).refusal


def planted(n, d, rng, noise=0.0):
    points, linear, constant = rng.normal(size=(n, d)) + 5, rng.normal(size=(d, d)), rng.normal(size=d)
    return points, points @ linear + constant + noise * rng.normal(size=(n, d)), linear, constant


def test_standard_errors_are_the_spread_over_repeated_noise():
    rng = np.random.default_rng(1)
    points, values, linear, _ = planted(300, 3, rng)
    fits = [fit_affine(points, values + 0.1 * rng.normal(size=values.shape), floor=0.0) for _ in range(400)]
    assert np.std([fit.linear for fit in fits], axis=0) == pytest.approx(fits[0].linear_error, rel=0.2)
    assert np.std([fit.constant for fit in fits], axis=0) == pytest.approx(fits[0].constant_error, rel=0.2)
    assert np.mean([fit.residual for fit in fits]) == pytest.approx(0.1, rel=0.02)
    assert np.abs(np.mean([fit.linear for fit in fits], axis=0) - linear).max() < 0.01


def test_float32_is_recognised_by_its_values():
    numbers = np.random.default_rng(4).normal(size=(3, 2))
    single = numbers.astype(np.float32).astype(float)
    assert rounding_unit(numbers, numbers) == FLOAT64
    assert rounding_unit(single, numbers) == rounding_unit(numbers, single) == FLOAT32
