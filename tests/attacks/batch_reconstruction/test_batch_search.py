"""From rounds to a whole batch: recovery, search, division and real-valued columns together."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.reconstruction_rounds import batch, batches, compose, rounds

from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.batch_reconstruction.attack import search, side_by_side
from vflbench.attacks.batch_reconstruction.gram import sort_rows
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
    assert np.array_equal(sort_rows(result.rows), sort_rows(x))
    labels = {tuple(row): label for row, label in zip(result.rows.tolist(), result.labels.tolist(), strict=True)}
    assert [labels[tuple(row)] for row in x.tolist()] == y.tolist()
    assert result.figures["unique"] == result.figures["matches"] == 1
    assert result.figures["rounds"] == 14


def test_too_few_rounds_and_a_time_limit_are_reported(draw):
    x, y = batch(5, 8, draw)
    thetas, updates = rounds(x, y, 14, draw)
    assert "too few rounds" in search(thetas[:8], updates[:8], rules(8), OPTIONS).note
    limited = search(thetas, updates, rules(8), STOPPED)
    assert limited.rows is None
    assert limited.note.startswith("limit: ")


def test_several_matching_batches_give_each_entry_a_share(draw):
    x = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])  # has the products of 111, 100, 010, 001
    its_rules = rules(3, batch_size=4)
    result = search(*rounds(x, np.array([1, 1, 1, 1]), 8, draw), its_rules, OPTIONS)
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
    thetas = draw.normal(size=(30, 20))
    its_rules = rules(20, rate=1.7321, reduction="mean", batches=2, batch_size=11)
    result = search(thetas, eta - thetas @ gamma.T, its_rules, OPTIONS)
    assert result.figures["batches_separated"] == result.figures["unique"] == result.figures["entries_certain"] == 1
    for step, (x, y) in enumerate(parts):
        recovered = np.column_stack([result.rows, result.labels])[result.steps == step]
        assert sorted(recovered.tolist()) == sorted(np.column_stack([x, y]).tolist()), step


def test_batches_of_several_participants_stand_side_by_side(draw):
    results = []
    for _ in range(2):
        x, y = batch(4, 12, draw)
        results.append(search(*rounds(x, y, 14, draw), rules(12, batch_size=4), OPTIONS))
    both = side_by_side(results, 4, most=10)
    assert both.rows.shape == (8, 12)
    assert both.figures["unique"] == both.figures["entries_certain"] == 1
    limited = search(*rounds(x, y, 14, draw), rules(12, batch_size=4), STOPPED)
    half = side_by_side([results[0], limited], 4, most=10)
    assert np.isnan(half.rows[4:]).all()
    assert half.figures["unique"] == half.figures["proved"] == 0
    assert not half.candidates


@pytest.mark.parametrize("known", [True, False])
def test_updates_are_whole_only_if_the_rules_say_so(known):
    """The other never sends column 2, a row of its own, and the attacker all that it has: all looks whole to it."""
    x, y = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]), np.array([1, 1, 1, -1, 1, 1])
    for seed in range(20):
        thetas, updates = _largest_two_of_three(x, y, np.random.default_rng(seed))
        its_rules = rules(3, reduction="mean", batch_size=6, whole=False if known else None)
        result = search(thetas, updates, its_rules, OPTIONS)
        right = result.rows is not None and np.array_equal(sort_rows(result.rows[:, :2]), sort_rows(x[:, :2]))
        assert not result.figures.get("unique") or (right and not result.binary[2]), seed
        if not known:
            assert "no rule says" in result.note, seed  # wrong, and not called proved


def _largest_two_of_three(x, y, draw, rounds=5):
    """(n, 3) models and updates of who sends the largest two coordinates, beside an attacker who does as well."""
    theta, thetas, updates = np.zeros(3), [], []
    for _ in range(rounds):
        other_x, other_y = draw.random((6, 3)) < [0.0, 0.6, 0.9], draw.choice([-1, 1], 6)
        steps = []
        for rows, labels in ((x, y), (other_x, other_y)):
            step = 0.1 / 6 * rows.T @ (labels / 2 - rows @ theta / 4)
            step[np.abs(step).argmin()] = 0.0
            steps.append(step)
        thetas.append(theta)
        theta = theta + sum(steps) / 2
        updates.append(2 * (theta - thetas[-1]) - steps[1])
    return np.array(thetas), np.array(updates)
