"""A label counts as known where every labelling of the rebuilt rows agrees, as an exhaustive search over labels says."""

from itertools import product

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram, agreed, sort_rows
from vflbench.attacks.batch_reconstruction.integer_programme import solve


def known_labels(x, beta):
    """(m,) the share of positives among equal rows where all labellings with this beta agree; else nan."""
    every = [np.array(signs) for signs in product((-1, 1), repeat=len(x)) if np.array_equal(x.T @ np.array(signs), beta)]
    equal = (x[:, None] == x[None]).all(axis=2).astype(int)
    shares = np.array([equal @ (one > 0) / equal.sum(axis=1) for one in every])
    return np.where((shares == shares[0]).all(axis=0) & x.any(axis=1), shares[0], np.nan)


def test_labels_are_certain_only_where_every_labelling_agrees():
    rng, ambiguous = np.random.default_rng(0), 0
    for _ in range(60):
        m, d = rng.integers(2, 8), rng.integers(1, 5)
        x = sort_rows(rng.integers(0, 2, (m, d))).astype(np.int64)
        y = rng.choice((-1, 1), m)
        gram, expected = Gram.of(x, y), known_labels(x, x.T @ y)
        found = enumerate_batches(gram)
        place = next(i for i, one in enumerate(found.batches) if np.array_equal(one, x))
        assert np.array_equal(agreed(found.labels[place]), expected, equal_nan=True)
        ambiguous += bool((np.isnan(expected) & x.any(axis=1)).any())
    assert ambiguous >= 3


def test_no_label_is_known_where_more_labellings_fit_than_are_listed(monkeypatch):
    """What the first ones agree on need not hold for the others."""
    x = np.array([[0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=np.int64)
    gram = Gram.of(x, np.array([1, -1, 1, -1, 1, 1, -1, 1]))
    for most in (1, 2, 3):
        assert np.isnan(agreed(enumerate_batches(gram, max_batches=most).labels[0])).all()
    monkeypatch.setattr("vflbench.attacks.batch_reconstruction.enumeration.MOST_LABELLINGS", 3)
    for found in (enumerate_batches(gram), solve(gram)):
        assert found.labels == ((),)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_programme_that_finds_one_labelling_says_which_labels_others_have_too(solver):
    x = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=np.int64)
    x, y = sort_rows(x).astype(np.int64), np.array([1, -1, 1, -1, 1, -1])
    found = solve(Gram.of(x, y), solver=solver)
    assert np.array_equal(agreed(found.labels[0]), known_labels(found.batches[0].astype(np.int64), x.T @ y), equal_nan=True)
    assert np.isnan(agreed(found.labels[0])).any()
