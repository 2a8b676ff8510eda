"""What a guess from alpha and beta is worth, and one from shares of ones alone."""

import numpy as np
import pytest
from reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction.best_guess import guess_batch, guess_labels, guesses_by_columns
from vflbench.attacks.batch_reconstruction.solutions import align_rows


def right(guess, x):
    return float((guess[align_rows(guess, x)] == x).mean())


@pytest.mark.slow
def test_a_guess_from_alpha_beats_draws_by_its_diagonal():
    from_alpha, drawn = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = batch(32, 20, rng)
        guess = guess_batch(x.T @ x, x.T @ y, 32)
        assert np.array_equal(guess.rows.sum(0), x.sum(0))
        assert guess.difference == np.square(guess.rows.astype(int).T @ guess.rows - x.T @ x).sum() > 0
        from_alpha.append(right(guess.rows, x))
        drawn.append(right((rng.random(x.shape) < x.mean(0)).astype(int), x))
    assert np.mean(from_alpha) > 0.76 > 0.73 > np.mean(drawn)


def test_a_guess_follows_from_its_seed_and_small_batches_are_found():
    x, y = batch(4, 8, np.random.default_rng(0))
    guess, again = (guess_batch(x.T @ x, x.T @ y, 4) for _ in range(2))
    assert np.array_equal(guess.rows, again.rows)
    assert (guess.difference, guess.label_difference) == (0, 0)
    assert right(guess.rows, x) == 1
    assert np.array_equal(x.T @ guess_labels(x, x.T @ y), x.T @ y)


def test_rare_ones_are_guessed_by_the_majority():
    shares = np.full(10, 0.02)
    assert not guesses_by_columns(shares, 8).any()
    even = guesses_by_columns(np.full(10, 0.5), 8)
    assert 0.4 < even.mean() < 0.6
    assert even.shape == (20, 8, 10)
