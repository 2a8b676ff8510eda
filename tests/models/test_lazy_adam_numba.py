"""The compiled row updates: whatever the width of a row and the number of threads, the bits are those of the plain form."""

from itertools import pairwise

import pytest
import torch

from vflbench.models.base import ColumnEmbedding
from vflbench.models.lazy_adam import TorchRows
from vflbench.models.lazy_adam_numba import NumbaRows
from vflbench.numerics.optim import IdleAdam

SIZES = (3, 40, 900, 4000)
HYPER = IdleAdam(0.9, 0.999), 1e-3, 1e-8


def rows(kind, dim):
    return kind(ColumnEmbedding(SIZES, dim, torch.Generator().manual_seed(0), std=0.01), *HYPER)


def batches(count, n=200):
    """Rows of the table that are met often, seldom, and twice in a batch."""
    rng = torch.Generator().manual_seed(1)
    offsets = torch.tensor([0, *SIZES]).cumsum(0)[:-1]
    for _ in range(count):
        ids = torch.stack([((size + 1) ** torch.rand(n, generator=rng)).long().clamp_max(size) - 1 for size in SIZES], 1)
        yield (ids + offsets).int()


def trained(table, count=6):
    """What is read in training, and the table, of which the numbers of a batch alone are left out."""
    read = []
    for ids in batches(count):
        values = table(ids)
        direction = torch.cos(torch.arange(values.numel(), dtype=torch.float32)).view_as(values)
        (values * direction).sum().backward()
        with torch.no_grad():
            table.update()
            read += [values.detach().clone(), table(ids)]
    return torch.stack(read), table.packed[:, : 3 * table.dim + 1].clone()


def general(dim):
    """The loops that take the width as a number."""
    table = rows(NumbaRows, dim)
    table._lanes = ()
    return table


def same(ours, others):
    return all(
        torch.equal(mine.view(torch.int32), other.view(torch.int32)) for mine, other in zip(ours, others, strict=True)
    )


def check(dim):
    plain = trained(rows(TorchRows, dim))
    assert same(trained(rows(NumbaRows, dim)), plain), dim
    assert same(trained(general(dim)), plain), dim


@pytest.mark.slow
def test_the_bits_of_all_widths():
    for dim in (3, 4, 17):
        check(dim)


@pytest.mark.slow  # it compiles for seconds
def test_threads_change_no_bit_and_share_all_columns():
    alone, together, threads = rows(NumbaRows, 4), rows(NumbaRows, 4), 3
    together._threads = threads
    assert same(trained(together), trained(alone))
    for n, c in ((1, 1), (5, 2), (8192, 4), (0, 4), (7, 40)):
        shares = together._shares(n, c)
        assert [start for start, _ in shares] + [c] == [0] + [stop for _, stop in shares]
        assert len(shares) <= threads
        assert all(left[1] == right[0] for left, right in pairwise(shares))


def test_a_batch_of_no_rows_and_ids_of_any_type_and_layout():
    table = rows(NumbaRows, 4)
    assert table(torch.empty(0, 4, dtype=torch.int32)).shape == (0, 4, 4)
    with torch.no_grad():
        table.update()
        ids = next(batches(1))
        for other in (ids.long(), ids.T.contiguous().T, ids.repeat(1, 2)[:, :4]):
            assert torch.equal(table(other), table(ids))
        for outside in (-1, sum(SIZES)):
            with pytest.raises(IndexError):
                table(torch.full((2, 4), outside, dtype=torch.int32))


def test_a_read_between_training_and_its_update_changes_nothing():
    """As an attack reads the table while a batch is on its way."""
    table, other = rows(NumbaRows, 4), rows(NumbaRows, 4)
    for ids in batches(3):
        values, expected = table(ids), other(ids)
        with torch.no_grad():
            table(torch.arange(sum(SIZES))[:, None])
            for one, read in ((table, values), (other, expected)):
                read.grad = torch.ones_like(read)
                one.update()
    assert torch.equal(table.packed[:, :13], other.packed[:, :13])
