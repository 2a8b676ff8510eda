"""A recording as it is written by a run, and read by an audit: rows, values by id, and a full disk."""

import errno

import numpy as np
import pytest
import torch
from builders import run_in

from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError
from vflbench.messages.tables import Labels
from vflbench.messages.threat import Unavailable
from vflbench.run import recording
from vflbench.run.recording import RecordedRows, Table
from vflbench.run.settings import Audit, Settings


@pytest.mark.parametrize("labelled", [True, False])
def test_labels_by_id(labelled):
    rng = np.random.default_rng(5)
    ids = rng.permutation(10**6)[:500].astype(np.int64)
    labels = rng.integers(0, 3, 500) if labelled else ids
    canary = rng.random(500) < 0.1
    for order in (np.arange(500), ids.argsort()):
        rows = RecordedRows(Labels(ids[order], labels[order], canary[order]), 3, labelled=labelled)
        asked = torch.from_numpy(rng.choice(ids, 60, replace=False))
        wanted = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        assert rows.labels(asked).tolist() == [wanted[i] for i in asked.tolist()]
        assert rows.labels(asked[:0]).tolist() == []
        assert set(rows.canary_ids.tolist()) == set(ids[canary])
        shares = torch.bincount(torch.from_numpy(labels), minlength=3).double() if labelled else torch.ones(3).double()
        assert rows.class_ratios == tuple((shares / shares.sum()).tolist())
        with pytest.raises(UserError, match="no label of 1 rows"):
            rows.labels(torch.tensor([int(asked[0]), 10**7]))


def test_the_values_of_a_row_are_the_last_that_were_put_in():
    table = Table()
    table.put(torch.tensor([7, 3]), {"f": torch.tensor([[1.0], [2.0]]), "g": torch.tensor([[8.0], [9.0]])})
    table.put(torch.tensor([5, 3]), {"f": torch.tensor([[3.0], [4.0]])})
    assert {name: of.tolist() for name, of in table.of(torch.tensor([3, 5, 7])).items()} == {"f": [[4.0], [3.0], [1.0]]}
    assert table.filled(torch.tensor([4, 7]))["f"].tolist() == [[0.0], [1.0]]
    with pytest.raises(Unavailable):
        table.of(torch.tensor([4]))
    assert Table().filled(torch.tensor([4])) == {}


@pytest.mark.parametrize("name", ["write_batch_file", "write_rows", "write_manifest"])
def test_a_full_disk_is_one_line(tmp_path, monkeypatch, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording if name == "write_rows" else recording.files, name, full)
    settings = Settings(epochs=1, batch_size=50, record="messages", audit=Audit(batches=1))
    with pytest.raises(UserError, match=r"^record=messages: messages can't be recorded: No space left on device$"):
        run_in(tmp_path, dataset=Synthetic(rows=200, vocabulary=100), attacks={}, settings=settings)


def test_rows_have_one_fingerprint_in_any_order():
    ids, labels, coin = np.array([7, 2, 5]), np.array([0, 1, 1]), np.zeros(3, dtype=bool)
    made = [RecordedRows(Labels(ids[o], labels[o], coin), 2).fingerprint for o in ([0, 1, 2], [2, 0, 1])]
    assert made[0] == made[1] != RecordedRows(Labels(ids, 1 - labels, coin), 2).fingerprint
