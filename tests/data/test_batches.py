import pytest
import torch
from builders import table
from hypothesis import given
from hypothesis import strategies as st

from vflbench.data.batches import choose_batch_size, evenly_spaced, ordered_batches, shuffled_batches


@pytest.mark.parametrize(
    ("rows", "size"), [(10, 10), (500, 32), (3199, 32), (7200, 64), (12_800, 128), (98_743, 512), (10**8, 512)]
)
def test_auto_leaves_a_hundred_steps_where_it_can(rows, size):
    assert choose_batch_size("auto", rows) == size


def test_a_given_size_is_kept_unless_there_are_fewer_rows():
    assert choose_batch_size(8192, 10_000) == 8192
    assert choose_batch_size(8192, 100) == 100


def test_an_epoch_meets_each_row_at_most_once_in_full_batches(rng):
    rows = table(rng, rows=103)
    batches = shuffled_batches(rows, 10, rng)
    met = [batch.ids for batch in batches]
    assert (len(batches), batches.rows) == (10, 100)
    assert all(len(ids) == 10 for ids in met)
    assert len(torch.cat(met).unique()) == 100
    assert not torch.equal(torch.cat(met), torch.cat([b.ids for b in shuffled_batches(rows, 10, rng)]))


def test_rows_left_over_differ_from_epoch_to_epoch(rng):
    rows = table(rng, rows=19)
    met = torch.cat([b.ids for _ in range(30) for b in shuffled_batches(rows, 10, rng)])
    assert len(met.unique()) == 19


def test_rows_of_all_blocks_stay_together(rng):
    rows = table(rng, rows=50, parties=("a", "b"))
    for batch in shuffled_batches(rows, 7, rng):
        for party, block in batch.features.items():
            assert torch.equal(block.numeric, rows.features[party].numeric[batch.ids])
            assert torch.equal(block.categorical, rows.features[party].categorical[batch.ids])
        assert torch.equal(batch.labels, rows.labels[batch.ids])


def test_ordered_batches_hold_every_row_once_in_order(rng):
    rows = table(rng, rows=23)
    assert torch.equal(torch.cat([b.ids for b in ordered_batches(rows, 10)]), rows.ids)


@given(st.integers(1, 500), st.integers(1, 600))
def test_evenly_spaced_positions(count, wanted):
    positions = evenly_spaced(count, wanted)
    assert len(positions) == min(count, wanted)
    assert positions.unique().tolist() == positions.tolist()
    assert (positions[0], positions[-1]) == (0, count - 1 if min(count, wanted) > 1 else 0)
    gaps = positions.diff()
    assert not len(gaps) or gaps.max() - gaps.min() <= 1
