"""One party's table as files: its own encoded columns, and nothing of another party's."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.data.base import DROPPED, TEST, TRAIN, VALIDATION
from vflbench.data.encode import stored
from vflbench.data.party_folder import FolderReader, FolderWriter
from vflbench.data.rows import BUFFER_ROWS, EncodedRows, TrainTest, rising
from vflbench.data.table import LABEL_PARTY, Columns, Features, RawTable


@dataclass(frozen=True)
class PartyTable:
    """A non-label party's encoded columns, by row id: the position of the row among those that the parties have aligned.

    numeric: (n, k) float32. categorical: (n, c) int32. Both are tensors in memory, or arrays on disk. fingerprint: SHA-256
    of the content.
    """

    party: str
    columns: Columns
    numeric: Any
    categorical: Any
    fingerprint: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __len__(self) -> int:
        return len(self.numeric)

    def to(self, device: torch.device) -> "PartyTable":
        """The same rows, handed out on another device."""
        return replace(self, device=device)

    def lookup(self, ids: Tensor) -> Features:
        """A copy of these rows, ids (n,), in that order. Raises KeyError for an id that no row has."""
        if not isinstance(self.numeric, Tensor):
            positions, back = rising(ids, len(self))
            values = torch.from_numpy(self.numeric[positions]), torch.from_numpy(self.categorical[positions])
            return Features(self.columns, *values).rows(back).to(self.device)
        places = ids.cpu()
        if len(places) and not (int(places.min()) >= 0 and int(places.max()) < len(self)):
            raise KeyError(f"{len(places)} rows, among which some are not in this table")
        return Features(self.columns, self.numeric, self.categorical).rows(places).to(self.device)


def write_party_tables(data: TrainTest, folder: Path) -> dict[str, Path]:
    """Write each party's table into a folder of its own, for its owner alone. Returns party -> folder.

    A non-label party's holds its columns; that of the label party the labels, which rows are trained and tested on, its own
    columns and what the manifest says. A row that the run doesn't use is zeros in all of them.

    Raises UserError where a folder is there already.
    """
    rows = data.train
    columns = {**dict.fromkeys([LABEL_PARTY], Columns()), **rows.columns}
    writers = {party: FolderWriter(folder / party, own, labelled=party == LABEL_PARTY) for party, own in columns.items()}
    for start in range(0, len(rows.role), BUFFER_ROWS):
        role = rows.role[start : start + BUFFER_ROWS]
        used = (role != DROPPED).nonzero()[0]
        raw = rows.raw.take(used + start)
        features = rows.encoding(raw)
        for party, writer in writers.items():
            values = {"labels": raw.labels, "roles": role[used]} if party == LABEL_PARTY else {}
            if party in features:
                block = features[party]
                values |= {"numeric": block.numeric.numpy(), "categorical": block.categorical.numpy()}
            writer.write(len(role), used, values)
        rows.raw.forget()
    of_label_party = {
        "classes": rows.classes,
        "validation": data.validation is not None,
        "fingerprint": data.fingerprint,
        "facts": dict(data.facts),
        "notes": list(data.notes),
    }
    for party, writer in writers.items():
        writer.finish({"party": party, **(of_label_party if party == LABEL_PARTY else {})})
    return {party: writer.folder for party, writer in writers.items()}


def read_party_table(folder: Path) -> PartyTable:
    """A non-label party's table. Raises UserError, naming the file, for one that is damaged or of another kind."""
    reader = FolderReader(folder, labelled=False)
    numeric, categorical = reader.features()
    if len(numeric) > BUFFER_ROWS:
        return PartyTable(reader.party, reader.columns, numeric, categorical, reader.fingerprint)
    in_memory = (torch.from_numpy(np.array(values)) for values in (numeric, categorical))
    return PartyTable(reader.party, reader.columns, next(in_memory), next(in_memory), reader.fingerprint)


def read_label_table(folder: Path) -> TrainTest:
    """The label party's rows: as those of the joint table, with its own columns and no others.

    Raises UserError, naming the file, for one that is damaged or of another kind.
    """
    reader = FolderReader(folder, labelled=True)
    numeric, categorical = reader.features()
    labels, role = reader.labels()
    columns: Mapping[str, Columns] = {LABEL_PARTY: reader.columns} if len(reader.columns) else {}
    about = reader.about
    raw = RawTable(
        names=reader.columns.numeric + reader.columns.categorical,
        numeric_names=reader.columns.numeric,
        categorical_names=reader.columns.categorical,
        sizes=reader.columns.cardinalities,
        numeric=numeric,
        categorical=categorical,
        labels=labels,
        classes=about["classes"],
        fingerprint=reader.fingerprint,
        stored=lambda name, _: {"numeric": numeric, "categorical": categorical, "labels": labels}[name],  # all are its own
    )
    encoding = stored(columns)
    train, test = (EncodedRows(raw, encoding, role, wanted) for wanted in (TRAIN, TEST))
    validation = EncodedRows(raw, encoding, role, VALIDATION) if about["validation"] else None
    return TrainTest(train, test, about["fingerprint"], about["facts"], tuple(about["notes"]), validation)
