"""Binary columns among real-valued ones, and the real-valued features of rows that are known."""

import numpy as np
import pytest
from reconstruction_rounds import batch, rounds

from vflbench.attacks.batch_reconstruction.real_columns import binary_columns, real_features
from vflbench.attacks.batch_reconstruction.recover import least_squares


def mixed_table(m, binary, real, counts, rng, intercept=False):
    """(x (m, d) float64 with the columns in any order, which of them are binary in this batch, labels)."""
    ones = [np.ones((m, 1))] if intercept else []
    bits = (rng.random((m, binary)) < rng.uniform(0.1, 0.9, binary)).astype(float)
    x = np.hstack([*ones, bits, rng.normal(size=(m, real)), rng.integers(0, 4, (m, counts)).astype(float)])
    x = x[:, rng.permutation(x.shape[1])]
    return x, np.isin(x, (0, 1)).all(0), rng.choice([-1, 1], m)


def unrounded(x, y, rng):
    recovered = least_squares(*rounds(x, y, x.shape[1] + 1, rng), rate=0.1, reduction="sum", rows=len(x))
    assert recovered.refusal is not None
    return recovered


def test_random_mixed_tables_are_split_and_their_real_features_solved():
    """From updates to real values; most batches of 8 rows with 14 binary columns have independent rows."""
    independent = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, is_binary, y = mixed_table(8, 14, 3, 2, rng, intercept=seed % 2 == 1)
        recovered = unrounded(x, y, rng)
        tolerance = np.maximum(1e-6, 6 * recovered.alpha_error)
        intercept = int(np.flatnonzero(x.all(0) & is_binary)[0]) if seed % 2 else None
        columns = binary_columns(recovered.real_alpha, recovered.real_beta, 8, tolerance=tolerance, intercept=intercept)
        kept, others = np.flatnonzero(is_binary), np.flatnonzero(~is_binary)
        assert np.array_equal(columns.kept, kept), seed
        assert set(columns.left_out) == set(others), seed
        assert np.array_equal(columns.alpha, x[:, kept].T @ x[:, kept]), seed
        alpha = recovered.real_alpha
        features = real_features(x[:, kept], alpha[np.ix_(kept, others)], alpha[np.ix_(others, others)])
        full = np.linalg.matrix_rank(x[:, kept]) == 8
        independent += full
        assert (features.refusal is None) == full, seed
        if full:
            assert np.allclose(features.values, x[:, others], atol=1e-6), seed
            labels = real_features(x[:, kept], recovered.real_beta[kept][:, None])
            assert np.allclose(labels.values[:, 0], y, atol=1e-6), seed
    assert independent >= 57


def test_an_intercept_distinguishes_counts_from_bits_where_nothing_else_does():
    x = np.array([[1, 1, 0, 2], [1, 0, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=float)
    y = np.array([1, 1, -1, 1, -1, -1])
    alpha, beta = x.T @ x, x.T @ y
    columns = binary_columns(alpha, beta, 6, intercept=0)
    assert columns.kept.tolist() == [0, 1, 2]
    assert columns.left_out == {3: "its sum is 2, that of its squares 4: equal only for 0 and 1"}
    without = binary_columns(alpha[1:, 1:], beta[1:], 6)
    assert without.kept.tolist() == [0, 1, 2]  # sums alone do not exclude {0, 2} here, as documented


def test_products_that_are_not_known_check_nothing():
    x = np.eye(4)[:, [0, 1, 2, 3]]
    real = np.array([[0.5, 1], [2, 3], [1, 1], [0, 2]])
    gram = np.array([[real[:, 0] @ real[:, 0], np.nan], [np.nan, np.nan]])
    assert np.allclose(real_features(x, x.T @ real, gram).values, real)
    assert "among themselves" in real_features(x, x.T @ real, gram + 1e3).refusal


def test_a_column_with_integral_sums_is_left_out_by_its_products():
    """Standardised to a sum of squares that is an integer of the right parity: only products with others exclude it."""
    rng = np.random.default_rng(0)
    bits, y = batch(8, 10, rng)
    real = rng.normal(size=8)
    real -= y * (real @ y) / 8  # beta = 0
    real *= 2 / np.linalg.norm(real)  # alpha_ii = 4
    x = np.column_stack([bits, real])
    columns = binary_columns(x.T @ x, x.T @ y, 8, tolerance=1e-6)
    assert columns.kept.tolist() == list(range(10))
    assert "products with other columns" in columns.left_out[10]


def test_a_column_with_products_beyond_the_bounds_is_left_out():
    counts = np.array([3, 0, 0, 0, 0, 0, 0, 0, 0, 0])  # sum of squares 9 of 10 rows, overlaps of 3 with single ones
    x = np.column_stack([np.eye(10, dtype=int)[:, :1], np.tri(10, 4, dtype=int), counts])
    y = np.ones(10, dtype=int)
    columns = binary_columns(x.T @ x, x.T @ y, 10)
    assert list(columns.left_out) == [5]


def test_three_columns_of_ones_have_a_union_within_the_rows():
    """Pairwise possible for binary columns of 3 rows (2 ones each, overlaps 1, 1 and 1 at least), triple-wise not."""
    alpha = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    columns = binary_columns(alpha, np.array([1, 1, 1]), 2)
    assert len(columns.kept) == 2
    assert "triples" in next(iter(columns.left_out.values()))


def test_all_real_all_binary_nothing_and_one_row():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(8, 5)), rng.choice([-1, 1], 8)
    assert len(binary_columns(x.T @ x, x.T @ y, 8).kept) == 0
    bits, y = batch(8, 5, rng)
    assert binary_columns(bits.T @ bits, bits.T @ y, 8).left_out == {}
    assert len(binary_columns(np.zeros((0, 0)), np.zeros(0), 8).kept) == 0
    single = np.array([[1.0, 0.0, 0.7]])
    columns = binary_columns(single.T @ single, single[0], 1)
    assert columns.kept.tolist() == [0, 1]
    values = real_features(single[:, :2], np.array([[0.7], [0.0]])).values
    assert values == pytest.approx(np.array([[0.7]]))


def test_real_features_are_refused_with_a_reason():
    rng = np.random.default_rng(2)
    x, _ = batch(6, 9, rng)
    x[:, :6] = np.eye(6)  # independent rows
    real = rng.normal(size=(6, 2))
    assert np.allclose(real_features(x, x.T @ real, real.T @ real).values, real)
    twice = np.vstack([x, x[:1]])
    assert "rank 6" in real_features(twice, twice.T @ np.vstack([real, real[:1]])).refusal
    wrong = x.copy()
    wrong[0, 7] = 1 - wrong[0, 7]
    assert "not this batch" in real_features(wrong, x.T @ real).refusal
    assert "among themselves" in real_features(x, x.T @ real, real.T @ real + 1e3 * np.eye(2)).refusal
    assert real_features(np.zeros((0, 3)), np.zeros((3, 1))).refusal == "the batch has no rows"
    with pytest.raises(ValueError, match="alpha_BR"):
        real_features(x, np.zeros((3, 1)))


def test_a_tolerance_without_evidence_is_refused():
    with pytest.raises(ValueError, match="below 1/4"):
        binary_columns(np.eye(2), np.ones(2), 2, tolerance=0.3)
    with pytest.raises(ValueError, match=r"alpha must be \(d, d\)"):
        binary_columns(np.eye(2), np.ones(3), 2)
