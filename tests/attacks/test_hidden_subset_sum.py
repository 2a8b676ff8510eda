"""Whole runs in which no batch comes twice; a batch from one update: where it must be met, and where nothing may be."""

import numpy as np
import pytest
from attacks.test_batch_reconstruction import rebuilt
from support.reconstruction_rounds import batch, gradient

from vflbench.attacks.hidden_subset_sum import HiddenSubsetSum, rows_of_one_update
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle

TWO_EPOCHS = {"features": 14, "epochs": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [{}, {"rows": 4, "reduction": "sum", "intercept": True}, {"rows": 4, "parties": 3, "aggregation": "plain"}]
)
def test_new_batches_in_every_round_hide_nothing(tmp_path, protocol):
    figures = rebuilt(tmp_path, HiddenSubsetSum(), defense=Shuffle(), **TWO_EPOCHS, **protocol)
    assert figures["exact"] == figures["columns_recovered"] >= 0.6, figures  # nothing wrong
    assert figures["matched_guess_right"] < 0.85 < figures["labels_right"]


@pytest.mark.parametrize(
    ("defense", "why", "protocol"),
    [
        (Gaussian(ratio=0.001), "", {}),
        (SelectiveUpdate(fraction=0.5), "in part", {}),
        (Shuffle(), "several local steps", {"rows": 3, "mode": "asynchronous", "batches": 2}),
    ],
)
def test_noise_partial_updates_and_several_steps_leave_a_guess(tmp_path, defense, why, protocol):
    figures = rebuilt(tmp_path, HiddenSubsetSum(), defense=defense, **TWO_EPOCHS, **protocol)
    assert figures["exact"] == figures["explained"] == figures["columns_recovered"] == 0
    assert abs(figures["entries_right"] - figures["matched_guess_right"]) < 0.1, figures
    assert why in (figures["notes"] or None)


def one_update(x, y, draw, *, scale=1.0, noise=0.0):
    """What follows from an update of these rows at a random model. noise: relative."""
    theta, step = scale * draw.normal(size=x.shape[1]) / 5, 0.1 / len(x)
    update = -step * gradient(x, y, theta)
    update = update + noise * np.abs(update).mean() * draw.normal(size=len(update))
    return rows_of_one_update(update, theta, len(x), step, 1e-16 * (1 + np.abs(theta).max()))


def labelled(x, y):
    """Rows with labels, in an order of their own; that of a row of zeros can't be told."""
    return sorted((*row, label if any(row) else 0) for row, label in zip(x.tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (4, 8), (11, 20)])
def test_rows_and_labels_follow_from_one_update(rows, columns):
    for seed in range(3):
        draw = np.random.default_rng(seed)
        x, y = batch(rows, columns, draw)
        answer = one_update(x, y, draw)
        assert labelled(answer.x, answer.y) == labelled(x, y), (seed, answer.refusal)
        assert not answer.refusal


def test_equal_rows_are_counted_with_their_labels():
    draw = np.random.default_rng(0)
    x, _ = batch(3, 20, draw)
    x, y = np.vstack([x[[0, 0, 0, 1, 1, 2]], np.zeros((1, 20), dtype=x.dtype)]), np.array([1, 1, -1, -1, -1, 1, 1])
    answer = one_update(x, y, draw)
    assert labelled(answer.x, answer.y) == labelled(x, y)


@pytest.mark.parametrize(
    ("rows", "columns", "disturbed", "why"),
    [
        (8, 20, {"noise": 1e-4}, ""),
        (8, 20, {"scale": 0.0}, "theta = 0"),
        (20, 20, {}, "at most 16 rows"),
        (17, 30, {}, "at most 16 rows"),
        (8, 8, {}, "at most 7 rows"),
        (16, 20, {}, ""),  # as many digits as 16 rows would need, a float64 does not have
    ],
)
def test_nothing_is_answered_where_the_update_does_not_tell_it(rows, columns, disturbed, why):
    draw = np.random.default_rng(1)
    answer = one_update(*batch(rows, columns, draw), draw, **disturbed)
    assert answer.x is None
    assert why in (answer.refusal or None)


def test_other_weights_than_those_of_the_model_are_no_batch():
    """Sums of the same rows with weights that no labels explain."""
    draw = np.random.default_rng(2)
    x, theta = batch(8, 20, draw)[0], draw.normal(size=20) / 5
    answer = rows_of_one_update(x.T @ draw.normal(size=8), theta, 8, 0.1 / 8, 1e-16)
    assert answer.x is None
    assert answer.candidates >= 8  # its rows were met all the same
