"""Rows by id: whatever is in memory, each party finds its own columns of the rows that are asked for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.builders import session, table, weights

from vflbench.data import rows as rows_module
from vflbench.data.base import Dataset
from vflbench.data.rows import AlignedRows, Batches
from vflbench.data.table import CHUNK_ROWS, raw_table
from vflbench.messages.threat import Role
from vflbench.options import options
from vflbench.protocols.split import Split


@options
class Many(Dataset):
    """Row i has x = i / n at party a, c = i % 50 at party b, and label i % 3 == 0."""

    n: int = 12_000

    def read(self, rng):
        i = np.arange(self.n)
        columns = {"x": i / self.n, "z": np.sin(i), "c": (i % 50, 50)}
        return raw_table(columns, (i % 3 == 0).astype(int)), {}


def load():
    return Many(parties={"a": ["x", "z"], "b": ["c"]}).load(torch.Generator().manual_seed(0))


@pytest.fixture
def small_buffers(monkeypatch):
    """As if little fitted in memory: three chunks or so of the eleven that are trained on."""
    monkeypatch.setattr(rows_module, "BUFFER_ROWS", 3 * CHUNK_ROWS)


def test_rows_are_found_whether_ids_lie_close_together_or_far_apart(rng):
    """With a table of places, or by search; the same rows, and the same refusal of those that aren't held."""
    for gap, start, shuffled in ((1, 0, False), (1, 500, True), (2, 7, True), (1000, -30, True), (1000, 3, False)):
        rows = table(rng, rows=60)
        ids = torch.arange(60) * gap + start
        order = torch.randperm(60, generator=rng) if shuffled else torch.arange(60)
        held = AlignedRows.of(replace(rows, ids=ids[order]))
        asked = torch.randint(60, (200,), generator=rng)
        found = held.rows(ids[order][asked])
        assert torch.equal(found.labels, rows.labels[asked]), (gap, start)
        assert torch.equal(found.features["a"].categorical, rows.features["a"].categorical[asked])
        assert len(held.rows(ids[:0])) == 0
        for missing in (start - 1, start + 60 * gap, start + 1 if gap > 1 else start + 61, -(2**62), 2**62):
            with pytest.raises(KeyError):
                held.rows(torch.tensor([start, missing]))


def test_a_lookup_is_a_copy(rng):
    everything = table(rng)
    rows = AlignedRows.of(everything)
    before = everything.features["a"].numeric.clone()
    rows.parties["a"](everything.ids).numeric.zero_()
    rows.labels(everything.ids).zero_()
    assert torch.equal(everything.features["a"].numeric, before)
    assert everything.labels.any()


def test_labels_may_be_others_than_those_of_the_table(rng):
    everything = table(rng)
    rows = AlignedRows.of(everything)
    flipped = rows.relabelled(lambda ids, labels: torch.where(ids < 10, 1 - labels, labels))
    ids = torch.tensor([20, 5, 9, 10])
    assert torch.equal(flipped.labels(ids), torch.where(ids < 10, 1 - everything.labels[ids], everything.labels[ids]))
    assert torch.equal(flipped.rows(ids).labels, flipped.labels(ids))
    assert torch.equal(rows.labels(ids), everything.labels[ids])
    assert torch.equal(flipped.parties["a"](ids).numeric, everything.features["a"].numeric[ids])


@pytest.mark.usefixtures("small_buffers")
def test_training_from_buffers_gives_the_weights_of_the_same_order_in_memory():
    data, trained = load(), []
    everything = data.train.all()
    for rows in (data.aligned(), AlignedRows.of(everything)):
        split = session(everything, rows=rows)
        for ids in Batches(data.train, 700, torch.Generator().manual_seed(1)):
            split.round(ids, watch=Split().offers(Role.NON_LABEL))
        trained.append([*weights(split), split.predict(everything.ids[:3000])])
    assert all(map(torch.equal, *trained))
