"""alpha and beta of as many columns as the updates determine: means, several participants, partly shared updates."""

from itertools import product

import numpy as np
import pytest
from reconstruction_rounds import batch, batches, rounds

from vflbench.attacks.batch_reconstruction.asynchronous.local_map import compose
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recover_gram import TrainingRules, recover_gram


@pytest.fixture
def draw():
    return np.random.default_rng(3)


def recover(thetas, updates, *, knows=True, method="least_squares", **changes):
    rules = {"others": 1, "rate": 0.1, "reduction": "sum", "batches": 1, "batch_size": 6} | changes
    return recover_gram(thetas, updates, TrainingRules(**rules), method, knows_batch_size=knows)


def test_alpha_and_beta_are_those_of_the_batch():
    for method, reduction in product(("least_squares", "lattice"), ("sum", "mean")):
        draw = np.random.default_rng(3)
        x, y = batch(6, 8, draw)
        recovered = recover(*rounds(x, y, 12, draw, mean=reduction == "mean"), method=method, reduction=reduction)
        truth = Gram.of(x, y)
        assert np.array_equal(recovered.gram.alpha, truth.alpha), (method, reduction)
        assert np.array_equal(recovered.gram.beta, truth.beta), (method, reduction)
        assert recovered.gram.rows == 6
        assert recovered.kept.tolist() == list(range(8))


def test_means_of_several_participants_are_means_of_each_batch(draw):
    parts = [batch(3, 8, draw) for _ in range(2)]
    thetas, first = rounds(*parts[0], 12, draw, mean=True)
    x, y = parts[1]
    second = -0.1 * (thetas @ (x.T @ x) / 4 - x.T @ y / 2) / 3
    whole = Gram.of(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    for knows in (True, False):
        recovered = recover(thetas, first + second, knows=knows, others=2, reduction="mean", batch_size=3)
        assert np.array_equal(recovered.gram.alpha, whole.alpha)
        assert recovered.gram.rows == 6


def test_columns_that_never_move_are_columns_of_zeros(draw):
    x, y = batch(6, 8, draw)
    x[:, [2, 5]] = 0
    thetas, updates = rounds(x, y, 14, draw)
    thetas[:, [2, 5]] = 0
    updates = -0.1 * (thetas @ (x.T @ x) / 4 - x.T @ y / 2)
    assert np.array_equal(recover(thetas, updates).gram.alpha, x.T @ x)


def test_dependent_columns_leave_directions_that_no_row_has(draw):
    x, y = batch(6, 8, draw)
    x[:, 7] = 1 - x[:, 6]
    x[:, 5] = 1 - x[:, 4]  # x4 + x5 - x6 - x7 = 0 in every row, and so in every step
    thetas = (draw.random((14, 20)) - 0.5) @ np.concatenate([x, x[:, [0, 1, 2, 3, 4, 5, 6, 7]][::-1], x, x[:2]])
    updates = -0.1 * (thetas @ (x.T @ x) / 4 - x.T @ y / 2)
    recovered = recover(thetas, updates)
    assert np.linalg.matrix_rank(thetas - thetas.mean(0)) < 8
    assert np.array_equal(recovered.gram.alpha, x.T @ x)


def test_coordinates_that_are_shared_often_enough_are_recovered(draw):
    x, y = batch(6, 5, draw, density=0.9)
    thetas, updates = rounds(x, y, 40, draw)
    for round_number in range(40):  # four of five in each round, coordinate 4 only twice
        hidden = round_number % 4 if round_number < 2 else 4
        updates[round_number, hidden] = 0
    recovered = recover(thetas, updates, whole=False)
    assert recovered.kept.tolist() == [0, 1, 2, 3]
    assert np.array_equal(recovered.gram.alpha, (x.T @ x)[:4, :4])
    assert "1 of 5 coordinates" in recovered.note


def test_a_batch_size_that_sums_do_not_determine_is_reported(draw):
    x, y = batch(6, 4, draw)
    recovered = recover(*rounds(x, y, 10, draw), knows=False)
    assert recovered.gram is None
    assert "batch size is not known" in recovered.note


def test_several_batches_of_several_others_are_no_single_map(draw):
    x, y = batch(6, 4, draw)
    assert "no single map" in recover(*rounds(x, y, 10, draw), others=2, batches=2).note


def test_sums_over_several_local_batches_follow_from_their_map_unless_the_rate_hides_them(draw):
    parts = batches(6, 8, 3, draw)
    alphas, betas = [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]
    thetas = draw.normal(size=(12, 8))
    for rate, is_hidden in ((0.003, False), (0.5, True)):
        gamma, eta = compose(alphas, betas, rate)
        recovered = recover(thetas, eta - thetas @ gamma.T, rate=rate, batches=3)
        if is_hidden:
            assert recovered.gram is None
            assert "hides the sum of 3 batches" in recovered.note
        else:
            assert np.array_equal(recovered.gram.alpha, sum(alphas))
            assert np.array_equal(recovered.gram.beta, sum(betas))
            assert recovered.gram.rows == 18
    assert "too few rounds" in recover(thetas[:8], thetas[:8], batches=3).note


def test_partly_shared_updates_are_refused_without_enough_rounds_or_a_fixed_batch(draw):
    x, y = batch(6, 5, draw)
    thetas, updates = rounds(x, y, 40, draw)
    hidden = np.arange(5) == np.arange(40)[:, None] % 5
    sent = np.where(hidden, 0, updates)
    assert "no coordinate was shared often enough" in recover(thetas[:6], sent[:6], whole=False).note
    assert "need a known batch size" in recover(thetas, sent, whole=False, knows=False).note
    noise = np.where(hidden, 0, 0.05 * draw.normal(size=updates.shape))
    assert recover(thetas, sent + noise, whole=False).gram is None
