"""The step sizes at which an update of several local steps reveals its batches."""

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.asynchronous.rate_range import grid, rate_range


def test_the_grid_is_geometric_and_ends_at_one():
    rates = grid(4, 1e-3)
    assert len(rates) == 13
    assert rates[0] == pytest.approx(1e-3)
    assert rates[-1] == 1
    assert np.allclose(rates[1:] / rates[:-1], 10**0.25)


def test_the_range_ends_near_the_bound_for_rounding_and_beyond_it_for_the_root():
    rates = grid(4, 1e-3)
    for n in (2, 3):
        ranges = {
            estimate: rate_range(8, 10, n, np.random.default_rng(0), draws=3, estimate=estimate, rates=rates)
            for estimate in ("rounding", "root")
        }
        plain, root = ranges["rounding"], ranges["root"]
        assert plain.bound == root.bound
        assert plain.bound / 2.5 < plain.high < 2 * plain.bound, n
        assert root.high > 1.7 * plain.high, n
        assert plain.low == root.low == pytest.approx(1e-3), n
        assert plain.proved_wrong == root.proved_wrong == 0, n
        assert (root.division_high is not None) == (n == 2)


@pytest.mark.slow
def test_more_rows_columns_and_batches_narrow_it():
    def high(rows, columns, batches):
        return rate_range(
            rows, columns, batches, np.random.default_rng(1), draws=3, estimate="root", rates=grid(4, 1e-2)
        ).high

    assert high(4, 8, 2) > high(16, 8, 2)
    assert high(8, 8, 2) > high(8, 24, 2)
    assert high(8, 8, 2) > high(8, 8, 5)


def test_the_precision_of_the_differences_is_the_lower_end():
    rates = grid(1, 1e-10)
    double = rate_range(4, 5, 2, np.random.default_rng(2), draws=4, estimate="root", rates=rates)
    single = rate_range(4, 5, 2, np.random.default_rng(2), draws=4, estimate="root", rates=rates, dtype=np.float32)
    assert double.low < double.division_low
    assert double.low < single.low


@pytest.mark.slow
def test_separation_has_no_upper_end():
    """Only rates like 1, at which q is a simple fraction, need a lattice, and columns that are independent."""
    for columns in (8, 20):
        rates = np.array([0.01, 0.0973, 0.9731, 1.7321, 3.1416])
        measured = rate_range(8, columns, 2, np.random.default_rng(0), draws=3, share=1.0, rates=rates)
        assert measured.high == measured.division_high == 3.1416, columns
        assert measured.low == measured.division_low == 0.01, columns
        assert measured.wrong == measured.proved_wrong == 0, columns
