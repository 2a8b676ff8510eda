"""alpha and beta from a few rounds, as integer relations; ambiguous ones are refused."""

import sys
from itertools import product

import numpy as np
import pytest
from reconstruction_rounds import batch, gradient, honest_run, is_recovered, rounds

from vflbench.attacks.batch_reconstruction.recovery.integer_relations import integer_relations
from vflbench.errors import UserError


@pytest.mark.slow
def test_a_few_pairs_are_enough():
    for m, d, n, dtype in ((11, 20, 2, float), (8, 10, 2, np.float32), (8, 5, 1, float), (1, 1, 1, float)):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            x, y = batch(m, d, rng)
            recovered = integer_relations(*rounds(x, y, n, rng, dtype=dtype), rate=0.1, reduction="sum", rows=m)
            assert is_recovered(recovered, x, y), (m, d, n, dtype, seed)
            assert recovered.rounds == n


def test_a_short_honest_run_is_enough():
    """Least squares needs a thousand rounds here."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        theirs, mine = batch(11, 20, rng), batch(11, 20, rng)
        assert is_recovered(
            integer_relations(*honest_run(theirs, mine, 12, rng), rate=0.1, reduction="sum", rows=11), *theirs
        )


def test_sparse_and_dense_batches_are_recovered():
    for density in (0.1, 0.3, 0.9):
        rng = np.random.default_rng(11)
        x, y = batch(11, 20, rng, density)
        assert is_recovered(integer_relations(*rounds(x, y, 3, rng), rate=0.1, reduction="sum", rows=11), x, y), density


def test_the_batch_size_follows_from_mean_gradients():
    rng = np.random.default_rng(12)
    x, y = batch(9, 8, rng)
    recovered = integer_relations(*rounds(x, y, 3, rng, mean=True), rate=0.1, reduction="mean")
    assert recovered.rows == 9
    assert is_recovered(recovered, x, y)


def test_too_few_pairs_noise_and_real_columns_are_refused():
    rng = np.random.default_rng(13)
    x, y = batch(11, 20, rng)
    for seed in range(5):
        few = integer_relations(*rounds(x, y, 1, np.random.default_rng(seed)), rate=0.1, reduction="sum", rows=11)
        assert few.alpha is None
        assert "too few" in few.refusal
    thetas, updates = rounds(x, y, 6, rng)
    noisy = integer_relations(thetas, updates + 1e-2 * rng.normal(size=updates.shape), rate=0.1, reduction="sum", rows=11)
    assert "noise" in noisy.refusal
    x = x.astype(float)
    x[:, 4] = rng.normal(size=11)
    assert "not binary" in integer_relations(*rounds(x, y, 6, rng), rate=0.1, reduction="sum", rows=11).refusal


def test_a_single_coordinate_and_pair_are_ambiguous_if_the_theta_is_an_integer():
    """4 g = alpha theta - 2 beta with theta = 2 has many small solutions, and is refused."""
    x, y = np.ones((5, 1)), np.array([1, 1, 1, -1, -1])
    thetas = np.full((1, 1), 2.0)
    updates = np.array([-0.1 * gradient(x, y, thetas[0])])
    recovered = integer_relations(thetas, updates, rate=0.1, reduction="sum", rows=5)
    assert recovered.alpha is None
    assert "not unique" in recovered.refusal


def test_a_coordinate_that_never_moves_is_ambiguous_although_all_else_fits():
    """theta_3 = 0 throughout: alpha_33 enters no update, whatever the number of rounds."""
    rng = np.random.default_rng(15)
    x, y = batch(8, 6, rng)
    x[:, 3] = np.arange(8) % 2
    thetas, _ = rounds(x, y, 6, rng)
    thetas[:, 3] = 0
    updates = np.array([-0.1 * gradient(x, y, theta) for theta in thetas])
    assert "not unique" in integer_relations(thetas, updates, rate=0.1, reduction="sum", rows=8).refusal
    alone = np.zeros((3, 1)), np.full((3, 1), 0.1 / 2 * 3)  # beta = 3, of any number of ones, without a batch size either
    assert "not unique" in integer_relations(*alone, rate=0.1, reduction="sum").refusal


def test_a_batch_whose_other_solution_takes_several_relations_at_once_is_ambiguous():
    """One round at theta = 0: alpha is free, and no single change of it leads from one batch to the other."""
    for rows, y in (((0b01110, 0b10001), (-1, -1)), ((0b1100, 0b0011), (-1, -1)), ((0b0011, 0b1100), (-1, 1))):
        d = max(rows).bit_length()
        x, y = np.array([[row >> k & 1 for k in reversed(range(d))] for row in rows]), np.array(y)
        updates = np.array([-0.1 * gradient(x, y, np.zeros(d))])
        recovered = integer_relations(np.zeros((1, d)), updates, rate=0.1, reduction="sum", rows=2)
        assert recovered.alpha is None, rows
        assert "not unique" in recovered.refusal, rows


@pytest.mark.slow
def test_a_unique_solution_is_the_only_one_of_all_small_batches():
    """Models of few digits have relations of their own. Whatever is answered is the only alpha and beta that fit."""
    sizes = {"unique": 0, "refused": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        m, d = 2, 3
        x, y = batch(m, d, rng)
        thetas = rng.normal(size=(1 + seed % 2, d)).round(seed % 3)
        updates = np.array([-0.1 * gradient(x, y, theta) for theta in thetas])
        recovered = integer_relations(thetas, updates, rate=0.1, reduction="sum", rows=m)
        sums = set()
        for bits, signs in product(product((0, 1), repeat=m * d), product((-1, 1), repeat=m)):
            other, labels = np.reshape(bits, (m, d)), np.array(signs)
            theirs = np.array([-0.1 * gradient(other, labels, theta) for theta in thetas])
            if np.abs(theirs - updates).max() < 1e-12:
                sums.add((*(other.T @ other).ravel().tolist(), *(other.T @ labels).tolist()))
        if recovered.refusal is None and not recovered.assumption:
            assert is_recovered(recovered, x, y), seed
            assert len(sums) == 1, seed
        sizes["refused" if recovered.refusal else "unique"] += 1
    assert min(sizes.values()) >= 10, sizes


def test_without_flint_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    rng = np.random.default_rng(14)
    with pytest.raises(UserError, match=r"attack.batch_reconstruction.recovery=lattice: .*\[lattice\]"):
        integer_relations(*rounds(*batch(4, 3, rng), 2, rng), rate=0.1, reduction="sum", rows=4)
