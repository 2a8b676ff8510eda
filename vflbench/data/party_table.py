"""One party's table as files: its own encoded columns, and nothing of another party's.

A table is a folder: an array a file, and `schema.json`, which describes them and holds their digests.
"""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.data.base import DROPPED, TEST, TRAIN, VALIDATION, Dataset
from vflbench.data.cache import read_arrays, write_arrays
from vflbench.data.encode import Encoding, PartyEncoding
from vflbench.data.rows import BUFFER_ROWS, EncodedRows, TrainTest, read_rows
from vflbench.data.table import LABEL_PARTY, Columns, Features, RawTable
from vflbench.errors import UserError, printable
from vflbench.options import options
from vflbench.plain_files import in_a_line, open_to_write, sync_folder


@dataclass(frozen=True)
class PartyTable:
    """A non-label party's encoded columns, by row id: the position of the row among those that the parties have aligned.

    numeric: (n, k) float32. categorical: (n, c) int32. Both are in memory or mapped from their files. fingerprint: SHA-256
    of the content.
    """

    party: str
    columns: Columns
    numeric: np.ndarray
    categorical: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.numeric)

    def lookup(self, ids: Tensor) -> Features:
        """A copy of these rows, ids (n,), in that order and where the ids are. Raises KeyError for an id that no row has."""
        return read_rows(self._features, (self.numeric, self.categorical), ids)

    def _features(self, *values: np.ndarray) -> Features:
        return Features(self.columns, *map(torch.from_numpy, values))


def write_party_tables(data: TrainTest, folder: Path) -> dict[str, Path]:
    """Write each party's table into a folder of its own, for its owner alone. Returns party -> folder.

    A non-label party's holds its columns; that of the label party the labels, which rows are trained and tested on, its own
    columns if it has any, and facts and notes. Rows that the run drops are zeros. Raises UserError where a folder is there.
    """
    rows, place = data.train, folder
    columns = {LABEL_PARTY: Columns(), **rows.columns}
    of_label_party: dict[str, Any] = {
        "classes": rows.classes,
        "validation": data.validation is not None,
        "fingerprint": data.fingerprint,
        "facts": dict(data.facts),
        "notes": list(data.notes),
    }
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for party, own in columns.items():
            place = folder / party
            place.mkdir(mode=0o700)
            shapes: dict[str, tuple[str, tuple[int, ...]]] = {"numeric": ("float32", (len(rows.role), len(own.numeric)))}
            shapes["categorical"] = ("int32", (len(rows.role), len(own.categorical)))
            if party == LABEL_PARTY:
                shapes |= {"labels": ("int32", (len(rows.role),)), "roles": ("uint8", (len(rows.role),))}
            encoding = rows.encoding.parties.get(party)
            with ExitStack() as stack:
                files = {name: stack.enter_context(open_to_write(place / name, "wb", private=True)) for name in shapes}
                for start in range(0, len(rows.role), BUFFER_ROWS):
                    role = rows.role[start : start + BUFFER_ROWS]
                    used = (role != DROPPED).nonzero()[0]
                    raw = rows.raw.take(used + start)
                    values: dict[str, np.ndarray] = {"labels": raw.labels, "roles": role[used]}
                    if encoding is not None:
                        block = encoding.of(raw)
                        values |= {"numeric": block.numeric.numpy(), "categorical": block.categorical.numpy()}
                    for name, (dtype, (_, *width)) in shapes.items():
                        whole = np.zeros((len(role), *width), dtype)
                        whole[used] = values.get(name, 0)
                        files[name].write(whole.tobytes())
            about = {"party": party, **vars(own), **(of_label_party if party == LABEL_PARTY else {})}
            write_arrays(place, shapes, about)
        sync_folder(folder)
    except FileExistsError as error:
        raise UserError("there is such a folder already; name a new one", key="party table", value=place) from error
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="party table", value=place) from error
    return {party: folder / party for party in columns}


def _read(folder: Path, *, labelled: bool) -> tuple[dict[str, Any], Columns, str, dict[str, Any]]:
    """The description, the columns, a digest of both, and the arrays, mapped from their files; every byte is checked."""
    try:
        about, arrays = read_arrays(folder)
        if (about["party"] == LABEL_PARTY) != labelled:
            raise ValueError(f"it is the table of party {about['party']}")
        columns = Columns(*(tuple(about[name]) for name in ("numeric", "categorical", "cardinalities")))
        digest = hashlib.sha256((folder / "schema.json").read_bytes()).hexdigest()
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = f"the table of a party can't be read: {in_a_line(error, 200)}; write the party tables anew"
        raise UserError(problem, key="party table", value=folder) from error
    return about, columns, digest, arrays


def read_party_table(folder: Path) -> PartyTable:
    """A non-label party's table. Raises UserError, naming the file, for one that is damaged or of another kind."""
    about, columns, fingerprint, arrays = _read(folder, labelled=False)
    return PartyTable(about["party"], columns, **arrays, fingerprint=fingerprint)


def read_label_table(folder: Path) -> TrainTest:
    """The label party's rows: as those of the joint table, with its own columns and no others.

    Raises UserError, naming the file, for one that is damaged or of another kind.
    """
    about, columns, fingerprint, arrays = _read(folder, labelled=True)
    role = arrays.pop("roles")
    raw = RawTable(
        names=columns.numeric + columns.categorical,
        numeric_names=columns.numeric,
        categorical_names=columns.categorical,
        sizes=columns.cardinalities,
        **arrays,
        classes=about["classes"],
        fingerprint=fingerprint,
        folder=folder,
    )
    numeric, categorical = (np.arange(len(names)) for names in (columns.numeric, columns.categorical))
    least = np.zeros(len(numeric))  # they are encoded
    own = PartyEncoding(columns, numeric, least, least + 1, categorical, (None,) * len(categorical))
    train = EncodedRows(raw, Encoding({LABEL_PARTY: own} if len(columns) else {}, "none"), role, TRAIN)
    test, validation = replace(train, wanted=TEST), replace(train, wanted=VALIDATION) if about["validation"] else None
    return TrainTest(train, test, about["fingerprint"], about["facts"], tuple(map(printable, about["notes"])), validation)


@options
class WrittenTable(Dataset):
    """Rows that were split and encoded before: labels and the label party's own columns, from `write_party_tables`."""

    folder: str

    def load(self, rng: torch.Generator) -> TrainTest:
        """Nothing is drawn. Raises UserError for a folder that is damaged."""
        return read_label_table(Path(self.folder))
