"""From rounds to a whole batch: recovery, search, division and real-valued columns together."""

from types import SimpleNamespace

import numpy as np
import pytest
from attacks.batch_reconstruction.test_enumeration import TWINS
from support.reconstruction_rounds import batch, batches, compose, rounds

from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.batch_reconstruction.attack import real_features, search, side_by_side
from vflbench.attacks.batch_reconstruction.gram import sort_rows
from vflbench.attacks.batch_reconstruction.recover import least_squares
from vflbench.messages.facts import Rules, Schema


def rules(columns, **changes):
    """Of columns that are all binary."""
    usual = {"parties": 2, "whole": True, "rate": 0.1, "reduction": "sum", "batches": 1, "batch_size": 5}
    return Rules(**usual | changes, schema=Schema(tuple(range(columns))))


OPTIONS = BatchReconstruction(time_limit=1e6)  # a limit that no test reaches
STOPPED = SimpleNamespace(solver="exact", time_limit=0.0, max_batches=1000)


@pytest.fixture
def draw():
    return np.random.default_rng(4)


def test_the_batch_and_its_labels_are_recovered_with_the_figures_of_the_search(draw):
    x, y = batch(5, 12, draw)
    result = search(*rounds(x, y, 14, draw), rules(12), OPTIONS)
    assert sorted(np.c_[result.rows, result.labels].tolist()) == sorted(np.c_[x, y].tolist())
    assert result.figures["unique"] == result.figures["matches"] == 1
    assert result.figures["rounds"] == 14


def test_a_time_limit_is_reported(draw):
    limited = search(*rounds(*batch(5, 8, draw), 14, draw), rules(8), STOPPED)
    assert limited.rows is None
    assert limited.note.startswith("limit: ")


def test_several_matching_batches_give_each_entry_a_share(draw):
    x = TWINS
    result = search(*rounds(x, np.array([1, 1, 1, 1]), 8, draw), rules(3, batch_size=4), OPTIONS)
    assert result.figures["matches"] == len(result.candidates) == 2
    assert result.figures["entries_certain"] < 1
    assert np.allclose(result.shares.sum(0), x.sum(0))
    assert any(np.array_equal(sort_rows(c), sort_rows(x)) for c in result.candidates)


def test_no_figure_claims_what_rests_on_an_assumption(draw):
    """That updates are whole, where no rule says so, but they are, and the batch is the right one."""
    x, y = batch(5, 12, draw)
    thetas, updates = rounds(x, y, 14, draw, mean=True)
    known, unknown = (search(thetas, updates, rules(12, reduction="mean", whole=it), OPTIONS) for it in (True, None))
    assert known.figures["unique"] == known.figures["proved"] == known.figures["entries_certain"] == 1
    assert np.array_equal(sort_rows(unknown.rows), sort_rows(x))
    assert unknown.assumption
    assert unknown.figures["matches"] == 1
    assert unknown.figures["unique"] == unknown.figures["proved"] == unknown.figures["entries_certain"] == 0


def test_two_local_batches_at_a_large_rate_are_recovered_one_by_one(draw):
    """22 rows x 20 columns together, 11 x 20 each."""
    parts = batches(11, 20, 2, draw)
    gamma, eta = compose([x.T @ x for x, _ in parts], [x.T @ y for x, y in parts], 1.7321 / 11)
    thetas, its_rules = draw.normal(size=(30, 20)), rules(20, rate=1.7321, reduction="mean", batches=2, batch_size=11)
    result = search(thetas, eta - thetas @ gamma.T, its_rules, OPTIONS)
    assert result.figures["batches_separated"] == result.figures["unique"] == result.figures["entries_certain"] == 1
    for step, (x, y) in enumerate(parts):
        recovered = np.c_[result.rows, result.labels][result.steps == step]
        assert sorted(recovered.tolist()) == sorted(np.c_[x, y].tolist()), step


def test_batches_of_several_participants_stand_side_by_side(draw):
    seen = [rounds(*batch(4, 12, draw), 14, draw) for _ in range(2)]
    first, second, limited = (
        search(*seen[k], rules(12, batch_size=4), options) for k, options in ((0, OPTIONS), (1, OPTIONS), (1, STOPPED))
    )
    both, half = (side_by_side([first, other], 4, most=10) for other in (second, limited))
    assert np.array_equal(both.rows, np.concatenate([first.rows, second.rows]))
    assert both.figures["unique"] == both.figures["entries_certain"] == 1
    assert np.isnan(half.rows[4:]).all()
    assert half.figures["unique"] == half.figures["proved"] == 0
    assert not half.candidates


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
