"""From rounds to a whole batch: recovery, search, division and real-valued columns together."""

import numpy as np
import pytest
from reconstruction_rounds import batch, batches, rounds

from vflbench.attacks.batch_reconstruction import batch_search
from vflbench.attacks.batch_reconstruction.asynchronous.local_map import compose
from vflbench.attacks.batch_reconstruction.batch_search import SearchOptions, search
from vflbench.attacks.batch_reconstruction.recover_gram import TrainingRules
from vflbench.attacks.batch_reconstruction.solutions import sort_rows

RULES = TrainingRules(others=1, rate=0.1, reduction="sum", batches=1, batch_size=5)
OPTIONS = SearchOptions(time_limit=1e6)  # a limit that no test reaches


@pytest.fixture
def draw():
    return np.random.default_rng(4)


def test_the_batch_and_its_labels_are_recovered_with_the_figures_of_the_search(draw):
    x, y = batch(5, 12, draw)
    result = search(*rounds(x, y, 14, draw), RULES, OPTIONS)
    assert np.array_equal(sort_rows(result.rows), sort_rows(x))
    labels = {tuple(row): label for row, label in zip(result.rows.tolist(), result.labels.tolist(), strict=True)}
    assert [labels[tuple(row)] for row in x.tolist()] == y.tolist()
    assert result.figures["unique"] == result.figures["matches"] == 1
    assert result.figures["rounds"] == 14


def test_a_result_of_fewer_rounds_is_not_searched_for_again(draw, monkeypatch):
    x, y = batch(5, 8, draw)
    thetas, updates = rounds(x, y, 14, draw)
    first = search(thetas[:10], updates[:10], RULES, OPTIONS)
    monkeypatch.setattr(batch_search, "enumerate_batches", None)
    again = search(thetas, updates, RULES, OPTIONS, first)
    assert np.array_equal(again.rows, first.rows)
    assert again.figures["rounds"] == 14


def test_too_few_rounds_and_a_time_limit_are_reported(draw):
    x, y = batch(5, 8, draw)
    thetas, updates = rounds(x, y, 14, draw)
    assert "too few rounds" in search(thetas[:8], updates[:8], RULES, OPTIONS).note
    limited = search(thetas, updates, RULES, SearchOptions(time_limit=0.0))
    assert limited.rows is None
    assert limited.note.startswith("limit: ")
    assert limited.gram is not None


def test_real_columns_follow_from_the_binary_ones(draw):
    x, y = batch(5, 12, draw)
    whole = np.column_stack([x, draw.random((5, 2))])
    thetas = draw.random((18, 14)) - 0.5
    result = search(thetas, -0.1 * (thetas @ (whole.T @ whole) / 4 - whole.T @ y / 2), RULES, OPTIONS)
    assert result.binary.tolist() == [True] * 12 + [False] * 2
    order = [int(np.abs(result.rows[:, :12] - row).sum(1).argmin()) for row in x]
    assert np.allclose(result.rows[order], whole, atol=1e-6)


def test_several_matching_batches_give_each_entry_a_share(draw):
    x = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])  # has the products of 111, 100, 010, 001
    rules = TrainingRules(others=1, rate=0.1, reduction="sum", batches=1, batch_size=4)
    result = search(*rounds(x, np.array([1, 1, 1, 1]), 8, draw), rules, OPTIONS)
    assert result.figures["matches"] == len(result.candidates) == 2
    assert result.figures["entries_certain"] < 1
    assert np.allclose(result.shares.sum(0), x.sum(0))
    assert any(np.array_equal(sort_rows(c), sort_rows(x)) for c in result.candidates)


def test_two_local_batches_are_recovered_in_the_order_of_their_steps(draw):
    parts = batches(4, 14, 2, draw)
    gamma, eta = compose([x.T @ x for x, _ in parts], [x.T @ y for x, y in parts], 0.01)
    thetas = draw.normal(size=(20, 14))
    rules = TrainingRules(others=1, rate=0.01, reduction="sum", batches=2, batch_size=4)
    result = search(thetas, eta - thetas @ gamma.T, rules, OPTIONS)
    assert result.figures["told_apart"] == result.figures["unique"] == 1
    assert result.steps.tolist() == [0] * 4 + [1] * 4
    for step, (x, y) in enumerate(parts):
        recovered = np.column_stack([result.rows, result.labels])[result.steps == step]
        assert sorted(recovered.tolist()) == sorted(np.column_stack([x, y]).tolist()), step


def test_an_integer_programme_finds_the_batch_too(draw):
    x, y = batch(5, 12, draw)
    result = search(*rounds(x, y, 14, draw), RULES, SearchOptions(solver="highs", time_limit=1e6))
    assert np.array_equal(sort_rows(result.rows), sort_rows(x))
    figures = result.figures
    assert (figures["ended"], figures["proved"], figures["unique"]) == (1, 0, 0)  # one batch of possibly many
