import numpy as np
import pytest
from reconstruction_rounds import batch, rounds

from vflbench.attacks.batch_reconstruction.batch_search import SearchOptions, search
from vflbench.attacks.batch_reconstruction.gram import in_order
from vflbench.attacks.batch_reconstruction.recover_gram import TrainingRules

SETTING = TrainingRules(others=1, rate=0.1, reduction="sum", batches=1, batch_size=5)


@pytest.fixture
def draw():
    return np.random.default_rng(4)


def test_the_batch_its_labels_and_how_they_were_found(draw):
    x, y = batch(5, 12, draw)
    found = search(*rounds(x, y, 14, draw), SETTING, SearchOptions())
    assert np.array_equal(in_order(found.rows), in_order(x))
    told = {tuple(row): label for row, label in zip(found.rows.tolist(), found.labels.tolist(), strict=True)}
    assert [told[tuple(row)] for row in x.tolist()] == y.tolist()
    assert found.figures["unique"] == found.figures["matches"] == 1
    assert found.figures["rounds"] == 14


def test_what_was_found_of_fewer_rounds_is_not_searched_for_again(draw, monkeypatch):
    x, y = batch(5, 8, draw)
    thetas, updates = rounds(x, y, 14, draw)
    first = search(thetas[:10], updates[:10], SETTING, SearchOptions())
    monkeypatch.setattr("vflbench.attacks.batch_reconstruction.batch_search.enumerate_batches", None)
    again = search(thetas, updates, SETTING, SearchOptions(), first)
    assert np.array_equal(again.rows, first.rows)
    assert again.figures["rounds"] == 14


def test_too_few_rounds_and_a_limit_are_told(draw):
    x, y = batch(5, 8, draw)
    thetas, updates = rounds(x, y, 14, draw)
    assert "too few rounds" in search(thetas[:8], updates[:8], SETTING, SearchOptions()).note
    x, y = batch(40, 20, draw)
    many = TrainingRules(others=1, rate=0.1, reduction="sum", batches=1, batch_size=40)
    limited = search(*rounds(x, y, 25, draw), many, SearchOptions(time_limit=0.2))
    assert limited.rows is None
    assert limited.note.startswith("limit: ")
    assert limited.gram is not None


def test_real_columns_follow_from_the_binary_ones(draw):
    x, y = batch(5, 12, draw)
    whole = np.column_stack([x, draw.random((5, 2))])
    thetas = draw.random((18, 14)) - 0.5
    found = search(thetas, -0.1 * (thetas @ (whole.T @ whole) / 4 - whole.T @ y / 2), SETTING, SearchOptions())
    assert found.binary.tolist() == [True] * 12 + [False] * 2
    order = [int(np.abs(found.rows[:, :12] - row).sum(1).argmin()) for row in x]
    assert np.allclose(found.rows[order], whole, atol=1e-6)


def test_where_several_batches_fit_each_entry_has_its_share(draw):
    x = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])  # has the products of 111, 100, 010, 001
    alone = TrainingRules(others=1, rate=0.1, reduction="sum", batches=1, batch_size=4)
    found = search(*rounds(x, np.array([1, 1, 1, 1]), 8, draw), alone, SearchOptions())
    assert found.figures["matches"] == len(found.candidates) == 2
    assert found.figures["entries_certain"] < 1
    assert np.allclose(found.shares.sum(0), x.sum(0))
    assert any(np.array_equal(in_order(c), in_order(x)) for c in found.candidates)
