"""From a party nothing can be reached that another owns: all objects that hang on it are walked."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.builders import experiment
from support.raw_files import all_rows
from support.reachable import arrays

from vflbench.data import rows as rows_module
from vflbench.data.base import Dataset
from vflbench.data.csv import Csv
from vflbench.data.rows import AlignedRows, Batches, TrainTest
from vflbench.data.table import CHUNK_ROWS, fit, raw_table
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import PartyFeatures, PeerArchitectures
from vflbench.messages.threat import Role
from vflbench.options import options
from vflbench.protocols.split import Split
from vflbench.run.settings import Audit, Settings
from vflbench.run.setup import build_run

PARTIES = {"a": ["x", "p"], "b": ["y", "q"], "label": ["z", "r"]}
PREFIX = 40
"""So many values of a column in a row are that column: labels are coins, and numbers are drawn."""


@options
class Drawn(Dataset):
    """A number and a category of each party, and labels, all drawn by themselves."""

    n: int = 1500

    def read(self, rng):
        draws = np.random.default_rng(3)
        columns = {name: draws.random(self.n) for name in "xyz"}
        columns |= {name: (draws.permutation(self.n) % 97, 97) for name in "pqr"}
        return raw_table(columns, draws.integers(0, 2, self.n)), {}


def load(n=1500):
    return Drawn(n=n, parties=PARTIES).load(torch.Generator().manual_seed(0))


def load_stored(folder, n=3000):
    """The same from a file, through the cache of prepared tables."""
    raw = Drawn(n=n).read(None)[0]
    words = np.random.default_rng(4).permutation([f"w{code:02d}" for code in range(97)])
    columns = {**dict(zip("xyz", raw.numeric.T, strict=True)), **dict(zip("pqr", words[raw.categorical.T], strict=True))}
    pd.DataFrame({**columns, "target": raw.labels}).to_csv(folder / "rows.csv", index=False)
    return Csv(path=str(folder / "rows.csv"), label="target", parties=PARTIES).load(torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Secrets:
    """What a party must not hold: name -> (n,) values by row id, raw and encoded; orders of rows in which it may lie."""

    columns: dict[str, np.ndarray]
    orders: list[np.ndarray]

    def found(self, root) -> set[str]:
        """The columns of which many values can be reached from an object."""
        needles: dict[bytes, set[str]] = {}
        for name, values in self.columns.items():
            for order in self.orders:
                needles.setdefault(values[order[:PREFIX]].astype(np.float64).tobytes(), set()).add(name)
        names = set[str]()
        for array in arrays(root):
            for flat in _readings(array):
                for width in range(1, min(8, len(flat) // PREFIX) + 1):
                    for start in range(min(width, len(flat))):
                        names |= needles.get(flat[start : start + PREFIX * width : width].tobytes(), set())
                names |= {name for name, values in self.columns.items() if _scattered(flat, values)}
        return names


def _readings(array):
    """An array's numbers in a row, and what its bytes are as other numbers."""
    flat = np.ascontiguousarray(array).ravel()
    kinds = (np.uint8, np.int32, np.float64) if flat.dtype == np.uint8 else (flat.dtype,)
    for kind in kinds:
        with np.errstate(invalid="ignore"):
            yield flat[: len(flat) // np.dtype(kind).itemsize * np.dtype(kind).itemsize].view(kind).astype(np.float64)


def _scattered(flat, values):
    """Whether many of these numbers, of which hardly two are alike, stand there in any order."""
    if len(np.unique(values)) < len(values) / 2:
        return False
    between = flat[(flat > 0) & (flat < 1)]  # every column has both ends
    return np.isin(between, values).sum() > 16 + 3 * len(flat) * len(values) / 2**23


def secrets_of(data: TrainTest, *parties, labels, orders=()):
    whole = all_rows(data)
    back, raw, columns = whole.ids.argsort(), data.train.raw, {}
    for party in parties:
        block = whole.features[party]
        columns[f"{party} numeric"] = block.numeric[back, 0].numpy()
        columns[f"{party} categorical"] = block.categorical[back, 0].numpy()
        columns[f"{party} raw numeric"] = raw.numeric[:, raw.numeric_names.index(PARTIES[party][0])]
        columns[f"{party} raw categorical"] = raw.categorical[:, raw.categorical_names.index(PARTIES[party][1])]
    if labels:
        columns["labels"] = whole.labels[back].numpy()
    blocks = [*data.train.blocks(None), *data.test.blocks(None), data.train.sample(2000)]
    everything = [np.arange(len(back)), *(block.ids.numpy() for block in blocks), *orders]
    return Secrets(columns, [order for order in everything if len(order) >= PREFIX])


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "streamed"), [(False, False), (False, True), (True, True)])
def test_from_a_party_nothing_that_another_owns_can_be_reached(stored, streamed, tmp_path, monkeypatch):
    """After rounds that everything is collected of, predictions, lookups of rows that are in no buffer, and a second epoch;
    in the session that a run starts, so with its canaries, defenses and generators.
    """
    if streamed:
        monkeypatch.setattr(rows_module, "BUFFER_ROWS", CHUNK_ROWS)
    data = load_stored(tmp_path) if stored else load()
    parts = experiment(settings=Settings(epochs=2, batch_size=256, audit=Audit(batches=1, canaries=100)))
    session = build_run(parts, data, Generators(0), tmp_path).session
    orders = []
    for number, ids in enumerate(Batches(data.train, 256, torch.Generator().manual_seed(1))):
        session.round(ids, watch=Split().offers(Role.NON_LABEL) | Split().offers(Role.LABEL) if number < 2 else frozenset())
        orders.append(ids)
    anywhere = torch.randperm(len(data.train.role), generator=torch.Generator().manual_seed(2))[:300]
    session.facts(anywhere, frozenset({PartyFeatures}))
    session.predict(anywhere)
    orders = [ids.numpy() for ids in (*orders, anywhere)]
    for party in session.parties:
        others = [name for name in PARTIES if name != party.name]
        assert secrets_of(data, *others, labels=True, orders=orders).found(party) == set()
        reached = secrets_of(data, party.name, labels=False, orders=orders).found(party)
        assert {f"{party.name} numeric", f"{party.name} categorical"} <= reached  # the walk finds what is there
    known = session.facts(anywhere, frozenset({PeerArchitectures}))["label"][PeerArchitectures]
    assert secrets_of(data, *PARTIES, labels=True, orders=orders).found(known.peers) == set()
    label_party = session.label_party
    assert secrets_of(data, "a", "b", labels=False, orders=orders).found(label_party) == set()
    reached = secrets_of(data, "label", labels=True, orders=orders)
    if streamed:  # it reads rows by id, and of a file holds none
        assert (reached.found(label_party) == set()) is stored
        assert {"label numeric", "label categorical"} <= reached.found(label_party.rows(anywhere))
    else:
        assert {"labels", "label numeric"} <= reached.found(label_party)


@pytest.mark.parametrize("stored", [False, True])
def test_a_party_reads_and_decodes_its_own_columns_alone(stored, tmp_path, monkeypatch):
    data = load_stored(tmp_path) if stored else load()
    everything = all_rows(data)
    everything = everything.rows(everything.ids.argsort())
    ids = torch.tensor([1400, 3, 3, 700, 1023, 1024])
    for most in (10**9, 10):
        monkeypatch.setattr(rows_module, "BUFFER_ROWS", most)
        rows = AlignedRows.encoded(data.train.raw, data.train.encoding, torch.device("cpu"))
        for party, reader in rows.parties.items():
            for wanted in (ids, ids[:0]):
                ours, theirs = reader(wanted), everything.features[party].rows(wanted)
                assert torch.equal(ours.numeric, theirs.numeric)
                assert torch.equal(ours.categorical, theirs.categorical)
                assert ours.columns == theirs.columns


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux alone says what of a map is in memory")
def test_what_is_measured_of_every_row_on_disk_is_not_held_in_memory(tmp_path):
    raw = load_stored(tmp_path, 20_000).train.raw
    unread = replace(raw, numeric=np.memmap(raw.folder / "numeric", raw.numeric.dtype, "r", shape=raw.numeric.shape))
    fit(unread, PARTIES, np.arange(20_000), every_row_fitted=True)
    maps = Path("/proc/self/smaps").read_text()
    assert "0" in re.findall(rf"{raw.folder}/numeric\n(?:.*\n)*?Rss: +([0-9]+) kB", maps)


def test_a_party_that_meets_damage_in_its_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "BUFFER_ROWS", CHUNK_ROWS)
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    for name, lookup in (("numeric", lambda rows: rows.parties["a"]), ("labels", lambda rows: rows.labels)):
        rows = lookup(load_stored(tmp_path).aligned())
        rows(torch.arange(5))
        for file in (tmp_path / "cache" / "prepared").glob(f"*/{name}"):
            file.unlink()
        for ids in ([2999], [0]):
            with pytest.raises(UserError, match="the prepared data is damaged.*run the command again"):
                rows(torch.tensor(ids))
