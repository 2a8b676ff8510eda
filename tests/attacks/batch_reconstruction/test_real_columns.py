"""The real-valued features of rows whose binary columns are known."""

import numpy as np
from support.reconstruction_rounds import batch, rounds

from vflbench.attacks.batch_reconstruction.attack import real_features
from vflbench.attacks.batch_reconstruction.recover import least_squares
from vflbench.messages.facts import Schema


def test_random_mixed_tables_have_their_real_features_solved():
    """From updates to real values; most batches of 8 rows with 14 binary columns have independent rows."""
    independent = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        bits, y = batch(8, 14, rng, rng.uniform(0.1, 0.9, 14))
        x = np.hstack([bits, rng.normal(size=(8, 3)), rng.integers(0, 4, (8, 2))])[:, rng.permutation(19)]
        recovered = least_squares(*rounds(x, y, 20, rng), rate=0.1, rows=8, schema=Schema(tuple(range(19))))
        assert "not integral" in recovered.refusal  # some columns are not binary
        is_binary, alpha = np.isin(x, (0, 1)).all(0), recovered.real_alpha  # in this batch
        values, refusal = real_features(x[:, is_binary], alpha[is_binary][:, ~is_binary], alpha[~is_binary][:, ~is_binary])
        full = np.linalg.matrix_rank(x[:, is_binary]) == 8
        independent += full
        assert (not refusal) == full, seed
        assert not full or np.allclose(values, x[:, ~is_binary], atol=1e-6), seed
    assert independent >= 27


def test_real_features_are_refused_with_a_reason():
    rng = np.random.default_rng(2)
    x, _ = batch(6, 9, rng)
    x[:, :6] = np.eye(6)  # independent rows
    real = rng.normal(size=(6, 2))
    gram = real.T @ real
    assert np.allclose(real_features(x, x.T @ real, gram)[0], real)
    twice = np.vstack([x, x[:1]])
    assert "rank 6" in real_features(twice, twice.T @ np.vstack([real, real[:1]]), gram)[1]
    wrong = x.copy()
    wrong[0, 7] = 1 - wrong[0, 7]
    assert "not this batch" in real_features(wrong, x.T @ real, gram)[1]
    assert "among themselves" in real_features(x, x.T @ real, gram + 1e3 * np.eye(2))[1]
    assert "not known precisely" in real_features(x, np.nan * x.T @ real, gram)[1]
