"""Rows by id and in batches, in memory or a buffer at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.builders import table

from vflbench.data import rows as rows_module
from vflbench.data.base import Dataset
from vflbench.data.rows import AlignedRows, Batches, choose_batch_size, evenly_spaced, ordered_batches
from vflbench.data.table import CHUNK_ROWS, raw_table
from vflbench.options import options


@options
class Many(Dataset):
    """Row i has x = i, c = i % 50 and label i % 3 == 0."""

    n: int = 40_000

    def read(self, rng):
        i = np.arange(self.n)
        return raw_table({"x": i / 1, "c": (i % 50, 50)}, (i % 3 == 0).astype(int)), {}


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    """As if little fitted in memory: four chunks or so."""
    monkeypatch.setattr(rows_module, "BUFFER_ROWS", 4 * CHUNK_ROWS)


def load(**changes):
    return Many(**changes).load(torch.Generator().manual_seed(0))


def test_blocks_in_order_are_all_rows_whatever_fits_in_memory():
    data = load()
    for rows in (data.train, data.test):
        blocks = list(rows.blocks(None))
        assert max(map(len, blocks)) < 6 * CHUNK_ROWS
        ids = torch.cat([b.ids for b in blocks])
        assert torch.equal(rows.all().ids, ids)
    assert len(data.train) + len(data.test) == 40_000
    assert len(list(data.train.blocks(None))) > 5


def test_batches_of_any_size_are_cut_across_buffers():
    for batch_size in (1, 700, 4096, 9999, 36_000):
        data = load(n=40_000 if batch_size > 1 else 5000)
        met = list(Batches(data.train, batch_size, torch.Generator().manual_seed(1)))
        assert len(met) == len(data.train) // batch_size
        assert len(torch.cat(met).unique()) == len(met) * batch_size, batch_size


def test_rows_that_lie_side_by_side_are_met_far_apart():
    """A batch of 1000 holds rows of several chunks, in no order; and epochs differ."""
    data, rng = load(), torch.Generator().manual_seed(1)
    first, second = (list(Batches(data.train, 1000, rng)) for _ in range(2))
    assert all(len((ids // CHUNK_ROWS).unique()) >= 4 for ids in first)
    assert first[0].max() - first[0].min() > 8 * CHUNK_ROWS  # of a buffer, too
    neighbours = torch.cat([(ids.diff().abs() == 1) for ids in first]).double().mean()
    assert neighbours < 0.005
    assert not torch.equal(torch.cat(first), torch.cat(second))
    again = list(Batches(data.train, 1000, torch.Generator().manual_seed(1)))
    assert torch.equal(torch.cat(first), torch.cat(again))


def test_a_sample_is_spread_over_all_rows_and_ordered_batches_are_all_of_them():
    train = load().train
    sample = train.sample(5000)
    assert 3000 < len(sample) <= 7000
    assert sample.ids.min() < 2 * CHUNK_ROWS
    assert sample.ids.max() > 38_000
    assert len(train.sample(10**9)) == len(train)
    batches, whole = list(ordered_batches(train, 512)), train.all()
    assert {len(batch) for batch in batches[:6]} == {512}
    assert torch.equal(torch.cat([batch.ids for batch in batches]), whole.ids)
    assert torch.equal(torch.cat([batch.labels for batch in batches]), whole.labels)
    assert torch.equal(torch.cat([batch.features["a"].categorical for batch in batches]), whole.features["a"].categorical)


@pytest.mark.parametrize("buffer", [1 << 18, 4 * CHUNK_ROWS])
def test_any_rows_are_read_by_id_in_that_order(buffer, monkeypatch):
    monkeypatch.setattr(rows_module, "BUFFER_ROWS", buffer)
    data, ids = load(), torch.tensor([39_999, 3, 20_000, 3, 0])
    for split in (data.train, data.test):  # rows of either
        rows = split.at(ids)
        assert torch.equal(rows.ids, ids)
        assert torch.allclose(rows.features["a"].numeric[:, 0], ids / 39_999)
        assert torch.equal(rows.features["a"].categorical[:, 0], (ids % 50).int())
        assert torch.equal(rows.labels, (ids % 3 == 0).long())
    assert len(data.train.at(ids[:0])) == 0
    for outside in (-1, 40_000, 2**62):
        with pytest.raises(KeyError, match="2 rows, among which some are not in this table"):
            data.train.at(torch.tensor([5, outside]))


def test_a_lookup_is_a_copy_and_labels_may_be_others_than_those_of_the_table(rng):
    everything, ids = table(rng), torch.tensor([20, 5, 9, 10])
    rows = AlignedRows.of(everything)
    flipped = rows.relabelled(lambda ids, labels: torch.where(ids < 10, 1 - labels, labels))
    before, labels = everything.features["a"].numeric.clone(), everything.labels.clone()
    for read in (rows, flipped):
        read.parties["a"](ids).numeric.zero_()
        read.labels(ids).zero_()
    assert torch.equal(flipped.parties["a"](ids).numeric, before[ids])
    assert torch.equal(rows.labels(ids), labels[ids])
    assert torch.equal(flipped.labels(ids), torch.where(ids < 10, 1 - labels[ids], labels[ids]))
    assert torch.equal(flipped.rows(ids).labels, flipped.labels(ids))


@given(st.integers(1, 500), st.integers(1, 600))
def test_evenly_spaced_positions(count, wanted):
    positions = evenly_spaced(count, wanted)
    assert len(positions) == min(count, wanted)
    assert positions.unique().tolist() == positions.tolist()
    assert (positions[0], positions[-1]) == (0, count - 1 if min(count, wanted) > 1 else 0)
    gaps = positions.diff()
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


@given(st.sampled_from([3199, 3200, 6400, 12_799, 12_800, 51_200]) | st.integers(1, 200_000))
def test_auto_is_the_largest_power_of_two_that_leaves_a_hundred_steps(rows):
    fitting = [2**k for k in range(5, 10) if rows >= 100 * 2**k]
    assert choose_batch_size("auto", rows) == (max(fitting) if fitting else min(32, rows))
    assert choose_batch_size(70, rows) == min(70, rows)


def test_every_row_is_as_likely_as_any_other_to_be_left_over(rng):
    """19 rows in batches of 10: each is left out of 9/19 of the epochs; 5 standard errors."""
    rows, epochs = table(rng, rows=19), 2000
    met = torch.cat([ids for _ in range(epochs) for ids in Batches(rows, 10, rng)]).bincount(minlength=19)
    p = 10 / 19
    assert (met / epochs - p).abs().max() < 5 * (p * (1 - p) / epochs) ** 0.5
