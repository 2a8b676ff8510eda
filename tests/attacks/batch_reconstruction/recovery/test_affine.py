"""Least squares for affine maps: planted maps, standard errors that cover the true errors, and the rounding of the input."""

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.recover import (
    FLOAT32,
    FLOAT64,
    fit_affine,
    rounding_unit,
)


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
