"""The real-valued features of rows whose binary columns are known."""

import numpy as np
from support.reconstruction_rounds import batch, rounds

from vflbench.attacks.batch_reconstruction.attack import real_features
from vflbench.attacks.batch_reconstruction.recover import least_squares
from vflbench.messages.facts import Schema


def mixed_table(m, binary, real, counts, rng):
    """(x (m, d) float64 with the columns in any order, which of them are binary in this batch, labels)."""
    bits = (rng.random((m, binary)) < rng.uniform(0.1, 0.9, binary)).astype(float)
    x = np.hstack([bits, rng.normal(size=(m, real)), rng.integers(0, 4, (m, counts)).astype(float)])
    x = x[:, rng.permutation(x.shape[1])]
    return x, np.isin(x, (0, 1)).all(0), rng.choice([-1, 1], m)


def test_random_mixed_tables_have_their_real_features_solved():
    """From updates to real values; most batches of 8 rows with 14 binary columns have independent rows."""
    independent = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, is_binary, y = mixed_table(8, 14, 3, 2, rng)
        pairs, schema = rounds(x, y, x.shape[1] + 1, rng), Schema(tuple(range(x.shape[1])))
        recovered = least_squares(*pairs, rate=0.1, rows=len(x), schema=schema)
        assert "not integral" in recovered.refusal  # some columns are not binary
        alpha = recovered.real_alpha
        kept, others = np.flatnonzero(is_binary), np.flatnonzero(~is_binary)
        values, refusal = real_features(x[:, kept], alpha[np.ix_(kept, others)], alpha[np.ix_(others, others)])
        full = np.linalg.matrix_rank(x[:, kept]) == 8
        independent += full
        assert (not refusal) == full, seed
        if full:
            assert np.allclose(values, x[:, others], atol=1e-6), seed
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
