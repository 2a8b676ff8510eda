import numpy as np
import pytest
import torch

from vflbench.data import rows as rows_module
from vflbench.data.base import Dataset
from vflbench.data.rows import Batches, ordered_batches
from vflbench.data.table import CHUNK_ROWS, raw_table
from vflbench.options import options


@options
class Many(Dataset):
    """Row i has x = i, c = i % 50 and label i % 3 == 0."""

    n: int = 40_000

    def read(self, rng):
        i = np.arange(self.n)
        return raw_table({"x": i / 1, "c": (i % 50, 50)}, (i % 3 == 0).astype(int)), {}


@pytest.fixture
def small_buffers(monkeypatch):
    """As if little fitted in memory: four chunks or so."""
    monkeypatch.setattr(rows_module, "BUFFER_ROWS", 4 * CHUNK_ROWS)


def load(**changes):
    return Many(**changes).load(torch.Generator().manual_seed(0))


@pytest.mark.usefixtures("small_buffers")
def test_blocks_in_order_are_all_rows_whatever_fits_in_memory():
    data = load()
    for rows in (data.train, data.test):
        blocks = list(rows.blocks(None))
        assert max(map(len, blocks)) < 6 * CHUNK_ROWS
        ids = torch.cat([b.ids for b in blocks])
        assert len(ids) == len(rows)
        assert (ids.diff() > 0).all()
        everything = rows.all()
        assert torch.allclose(everything.features["a"].numeric[:, 0], everything.ids / 39_999)
        assert torch.equal(everything.features["a"].categorical[:, 0], (everything.ids % 50).int())
        assert torch.equal(everything.labels, (everything.ids % 3 == 0).long())
    assert len(data.train) + len(data.test) == 40_000
    assert len(list(data.train.blocks(None))) > 5


@pytest.mark.usefixtures("small_buffers")
def test_batches_of_any_size_are_cut_across_buffers():
    for batch_size in (1, 700, 4096, 9999, 36_000):
        data = load(n=40_000 if batch_size > 1 else 5000)
        met = list(Batches(data.train, batch_size, torch.Generator().manual_seed(1)))
        assert len(met) == len(data.train) // batch_size
        assert len(torch.cat(met).unique()) == len(met) * batch_size, batch_size


@pytest.mark.usefixtures("small_buffers")
def test_rows_that_lie_side_by_side_are_met_far_apart():
    """A batch of 1000 holds rows of several chunks, in no order; and epochs differ."""
    data, rng = load(), torch.Generator().manual_seed(1)
    first, second = (list(Batches(data.train, 1000, rng)) for _ in range(2))
    assert all(len((ids // CHUNK_ROWS).unique()) >= 4 for ids in first)
    neighbours = torch.cat([(ids.diff().abs() == 1) for ids in first]).double().mean()
    assert neighbours < 0.005
    assert not torch.equal(torch.cat(first), torch.cat(second))
    again = list(Batches(data.train, 1000, torch.Generator().manual_seed(1)))
    assert torch.equal(torch.cat(first), torch.cat(again))


@pytest.mark.usefixtures("small_buffers")
def test_a_sample_is_spread_over_all_rows():
    train = load().train
    sample = train.sample(5000)
    assert 3000 < len(sample) <= 7000
    assert sample.ids.min() < 2 * CHUNK_ROWS
    assert sample.ids.max() > 38_000
    assert len(train.sample(10**9)) == len(train)
    assert len(ordered := torch.cat([b.ids for b in ordered_batches(train, 512)])) == len(train)
    assert (ordered.diff() > 0).all()


def test_any_rows_are_read_by_id_in_that_order(monkeypatch):
    data = load()
    ids = torch.tensor([39_999, 3, 20_000, 3, 0])
    for buffer in (rows_module.BUFFER_ROWS, 4 * CHUNK_ROWS):
        monkeypatch.setattr(rows_module, "BUFFER_ROWS", buffer)
        for split in (data.train, data.test):  # rows of either
            table = split.at(ids)
            assert torch.equal(table.ids, ids)
            assert torch.allclose(table.features["a"].numeric[:, 0], ids / 39_999)
            assert torch.equal(table.features["a"].categorical[:, 0], (ids % 50).int())
            assert torch.equal(table.labels, (ids % 3 == 0).long())
    assert len(data.train.at(ids[:0])) == 0
    for outside in (-1, 40_000, 2**62):
        with pytest.raises(KeyError, match="2 rows, among which some are not in this table"):
            data.train.at(torch.tensor([5, outside]))
