"""A batch from one update: where it must be found, and where nothing may be."""

import numpy as np
import pytest
from support.reconstruction_rounds import batch

from vflbench.attacks.hidden_subset_sum import MOST_ROWS, rows_of_one_update

RATE = 0.1


def one_update(x, y, theta):
    """(d,) and the rounding of its entries."""
    step = RATE / len(x)
    return x.T @ (step * (y / 2 - x @ theta / 4)), step, 1e-16 * (1 + np.abs(theta).max())


def labelled(x, y):
    """Rows with labels, in an order of their own; that of a row of zeros can't be told."""
    return sorted((*row, label if any(row) else 0) for row, label in zip(x.tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (4, 8), (11, 20)])
def test_rows_and_labels_follow_from_one_update(rows, columns):
    for seed in range(3):
        draw = np.random.default_rng(seed)
        x, y = batch(rows, columns, draw)
        theta = draw.normal(size=columns) / 5
        update, step, error = one_update(x, y, theta)
        found = rows_of_one_update(update, theta, rows, step, error)
        assert labelled(found.x, found.y) == labelled(x, y), (seed, found.refusal)
        assert not found.refusal


def test_equal_rows_are_counted_with_their_labels():
    draw = np.random.default_rng(0)
    x, _ = batch(3, 20, draw)
    x, y = np.vstack([x[[0, 0, 0, 1, 1, 2]], np.zeros((1, 20), dtype=x.dtype)]), np.array([1, 1, -1, -1, -1, 1, 1])
    theta = draw.normal(size=20) / 5
    update, step, error = one_update(x, y, theta)
    found = rows_of_one_update(update, theta, 7, step, error)
    assert labelled(found.x, found.y) == labelled(x, y)


def test_nothing_is_answered_where_the_update_does_not_tell_it():
    draw = np.random.default_rng(1)
    for rows, columns, noise, scale, why in (
        (8, 20, 1e-4, 1.0, ""),  # noise of a ten-thousandth
        (8, 20, 0.0, 0.0, "theta = 0"),
        (20, 20, 0.0, 1.0, "at most 16 rows"),
        (8, 8, 0.0, 1.0, "at most 7 rows"),
        (MOST_ROWS + 1, 30, 0.0, 1.0, "at most 16 rows"),
        (16, 20, 0.0, 1.0, ""),  # as many digits as 16 rows would need, a float64 does not have
    ):
        x, y = batch(rows, columns, draw)
        theta = scale * draw.normal(size=columns) / 5
        update, step, error = one_update(x, y, theta)
        update = update + noise * np.abs(update).mean() * draw.normal(size=columns)
        found = rows_of_one_update(update, theta, rows, step, error)
        assert found.x is None, (rows, columns, noise, scale)
        assert found.refusal, (rows, columns, noise, scale)
        assert why in found.refusal


def test_other_weights_than_those_of_the_model_are_no_batch():
    """Sums of the same rows with weights that no labels explain."""
    draw = np.random.default_rng(2)
    x, _ = batch(8, 20, draw)
    theta = draw.normal(size=20) / 5
    found = rows_of_one_update(x.T @ draw.normal(size=8), theta, 8, RATE / 8, 1e-16)
    assert found.x is None
    assert found.candidates >= 8  # its rows were found all the same
