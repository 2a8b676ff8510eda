"""A party's table as files: what is read back is, bit for bit, what the joint table holds of that party."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.pretend_device import CARD, PretendCard
from support.reachable import arrays

from vflbench.data import party_files, rows
from vflbench.data.csv import Csv
from vflbench.data.party_files import read_label_table, read_party_table, write_party_tables
from vflbench.data.pictures import Digits
from vflbench.data.rows import TrainTest
from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError


def load(dataset) -> TrainTest:
    return dataset.load(torch.Generator().manual_seed(3))


def small(**options) -> TrainTest:
    made = {"rows": 3000, "numeric": 4, "categorical": 4, "vocabulary": 200}
    return load(Synthetic(**{**made, **options}))


def csv(folder: Path) -> TrainTest:
    rows = (f"{i % 71},c{i % 13},{i / 7 if i % 5 else ''},{'ab'[i % 2]},{i % 3}" for i in range(400))
    lines = ["age,city,pay,job,y", *rows]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    parties = {"a": ["age", "city"], "b": ["pay"], "label": ["job"]}
    return load(Csv(path=str(folder / "rows.csv"), label="y", parties=parties, validation_fraction=0.2, fit_on="train"))


TABLES = {
    "1 party": lambda _: small(),
    "2 parties": lambda _: small(parties=2, sample=0.5, positive_ratio=0.5, validation_fraction=0.1),
    "4 parties": lambda _: small(parties=4, split="chronological"),
    "own columns": lambda _: small(parties={"a": ["I1", "C*"], "label": ["I2", "I3"]}, fit_on="train", min_count=3),
    "digits": lambda _: load(Digits(parties=2)),
    "csv": csv,
}


def assert_same(joint: TrainTest, read: TrainTest, tables) -> None:
    """Batches, samples, labels and each party's features."""
    assert (read.fingerprint, read.notes) == (joint.fingerprint, joint.notes)
    assert dict(read.facts) == json.loads(json.dumps(dict(joint.facts)))
    assert list(read.held_out) == list(joint.held_out)
    whole, own = joint.aligned(), read.aligned()
    for name, theirs in {"train": joint.train, **joint.held_out}.items():
        ours = read.train if name == "train" else read.held_out[name]
        assert (len(ours), ours.classes, ours.class_ratios) == (len(theirs), theirs.classes, theirs.class_ratios)
        assert dict(ours.columns) == {party: c for party, c in theirs.columns.items() if party == "label"}
        assert_same_rows(ours.all(), theirs.all())
        for ids in (theirs.all().ids.flip(0), torch.tensor([], dtype=torch.int64)):
            assert torch.equal(own.labels(ids), whole.labels(ids))
            assert_same_rows(ours.at(ids), theirs.at(ids))
            for party, table in tables.items():
                assert_same_features(table.lookup(ids), whole.parties[party](ids))


def assert_same_rows(ours, theirs) -> None:
    assert torch.equal(ours.ids, theirs.ids)
    assert torch.equal(ours.labels, theirs.labels)
    assert set(ours.features) == set(theirs.features) & {"label"}
    for party, features in ours.features.items():
        assert_same_features(features, theirs.features[party])


def assert_same_features(ours, theirs) -> None:
    assert ours.columns == theirs.columns
    for one, other in ((ours.numeric, theirs.numeric), (ours.categorical, theirs.categorical)):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_read_is_what_the_joint_table_holds(name, streamed, tmp_path, monkeypatch):
    if streamed:
        for module in (rows, party_files):
            monkeypatch.setattr(module, "BUFFER_ROWS", 1024)
    joint = TABLES[name](tmp_path)
    folders = write_party_tables(joint, tmp_path / "tables")
    assert set(folders) == {*joint.train.columns, "label"}
    tables = {party: read_party_table(folder) for party, folder in folders.items() if party != "label"}
    for party, table in tables.items():
        assert (table.party, table.columns, len(table)) == (party, joint.train.columns[party], len(joint.train.role))
    assert_same(joint, read_label_table(folders["label"]), tables)
    files = [*(tmp_path / "tables").rglob("*")]
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o700", "0o600"}
    assert len(files) == 4 * len(tables) + 6


def test_rows_that_the_run_does_not_use_are_zeros_and_a_lookup_is_a_copy(tmp_path):
    joint = small(sample=0.4)
    table = read_party_table(write_party_tables(joint, tmp_path)["a"])
    dropped = torch.from_numpy((joint.train.role == 0).nonzero()[0])
    assert len(dropped) == 1800
    kept = table.lookup(dropped)
    assert not kept.numeric.any()
    with PretendCard():
        assert table.lookup(dropped.to(CARD)).numeric.device == CARD
    assert not kept.categorical.any()
    ids = joint.train.all().ids[:5]
    before = table.lookup(ids).numeric.clone()
    table.lookup(ids).numeric.zero_()
    assert torch.equal(table.lookup(ids).numeric, before)


def test_a_party_s_folder_holds_no_bytes_of_another_s(tmp_path):
    """Nor labels: neither in the arrays that are read, nor in the files."""
    joint = small(parties={"a": ["I1", "C1"], "b": ["I2", "C2"]})
    folders = write_party_tables(joint, tmp_path)
    y = joint.train.raw.labels
    for party, other in ("ab", "ba"):
        content = b"".join(file.read_bytes() for file in sorted(folders[party].iterdir()))
        rows = joint.train.at(torch.arange(3000)).features[other]
        for column in (rows.numeric[:, 0], rows.categorical[:, 0]):
            assert column.numpy()[:20].tobytes() not in content
        assert y[:60].astype(np.uint8).tobytes() not in content
        assert y[:60].astype(np.int32).tobytes() not in content
        assert joint.fingerprint.encode() not in content
        names = [*joint.train.columns[other].numeric, *joint.train.columns[other].categorical]
        assert not any(f'"{name}"'.encode() in content for name in names)
    label = b"".join(file.read_bytes() for file in sorted(folders["label"].iterdir()))
    assert y[:60].astype(np.int32).tobytes() in label
    assert not any(f'"{name}"'.encode() in label for name in ("I1", "C1", "I2", "C2"))
    assert sum(array.size for array in arrays(read_label_table(folders["label"]).aligned().labels)) < 10 * len(y)


def test_a_damaged_folder_is_refused_by_the_name_of_the_file(tmp_path):
    folders = write_party_tables(small(rows=300, parties={"a": ["I1", "C1"], "label": ["I2", "C2"]}), tmp_path)
    with pytest.raises(UserError, match="it is the table of party label"):
        read_party_table(folders["label"])
    with pytest.raises(UserError, match="it is the table of party a"):
        read_label_table(folders["a"])
    for party, read in (("a", read_party_table), ("label", read_label_table)):
        for file in folders[party].iterdir():
            whole = file.read_bytes()
            for damaged in (b"", whole[:-4], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
                file.write_bytes(damaged)
                differs = f"/{party}: the table of a party can't be read: {file.name}.*differs from"
                with pytest.raises(UserError, match=differs):
                    read(folders[party])
            file.write_bytes(whole)
        read(folders[party])
