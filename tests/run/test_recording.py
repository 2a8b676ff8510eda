"""A recording as it is written by a run, and read by an audit: rows, values by id, and a full disk."""

import errno

import numpy as np
import pytest
from support.builders import run_in

from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError
from vflbench.messages.tables import LabelTable
from vflbench.run import recording
from vflbench.run.recording import RecordedRows
from vflbench.run.settings import Audit, Settings


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
    made = [RecordedRows(LabelTable(ids[o], labels[o], coin), 2).fingerprint for o in ([0, 1, 2], [2, 0, 1])]
    assert made[0] == made[1] != RecordedRows(LabelTable(ids, 1 - labels, coin), 2).fingerprint
