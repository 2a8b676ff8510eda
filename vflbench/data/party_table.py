"""One party's table as files: its own encoded columns, and nothing of another party's.

A table is a folder: an array a file, and `table.json`, which describes them and holds their digests.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from vflbench.data.base import DROPPED, TEST, TRAIN, VALIDATION, Dataset
from vflbench.data.cache import ArrayWriter, DamagedStoreError, Mapped
from vflbench.data.encode import stored
from vflbench.data.rows import BUFFER_ROWS, EncodedRows, TrainTest, positions_of
from vflbench.data.table import LABEL_PARTY, Columns, Features, RawTable
from vflbench.errors import UserError, printable
from vflbench.options import options
from vflbench.plain_files import in_a_line, sync_folder, written_whole

_ABOUT = "table.json"
_PIECE = 1 << 16  # rows checked at a time
_KINDS = {"numeric": np.float32, "categorical": np.int32, "labels": np.int32, "roles": np.uint8}


class _About(BaseModel):
    """table.json. classes and what follows: of the label party's."""

    model_config = ConfigDict(strict=True)

    version: Literal[1] = 1
    party: str
    rows: int = Field(ge=1, le=2**40)
    numeric: list[str]
    categorical: list[str]
    cardinalities: list[int]
    sha256: dict[str, str]
    classes: int = Field(2, ge=2)
    validation: bool = False
    fingerprint: str = ""
    facts: dict[str, Any] = {}
    notes: list[str] = []

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.numeric), tuple(self.categorical), tuple(self.cardinalities))


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
        positions = positions_of(ids, len(self))
        if isinstance(self.numeric, Tensor):
            return Features(self.columns, self.numeric, self.categorical).rows(torch.from_numpy(positions)).to(self.device)
        values = torch.from_numpy(self.numeric[positions]), torch.from_numpy(self.categorical[positions])
        return Features(self.columns, *values).to(self.device)


def write_party_tables(data: TrainTest, folder: Path) -> dict[str, Path]:
    """Write each party's table into a folder of its own, for its owner alone. Returns party -> folder.

    A non-label party's holds its columns; that of the label party the labels, which rows are trained and tested on, its own
    columns and what the manifest says. A row that the run doesn't use is zeros in all of them.

    Raises UserError where a folder is there already.
    """
    rows, place = data.train, folder
    columns = {LABEL_PARTY: Columns(), **rows.columns}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writers = {}
        for party, own in columns.items():
            place = folder / party
            place.mkdir(mode=0o700)
            writers[party] = {n: ArrayWriter(place / n, np.dtype(_KINDS[n]), w) for n, w in _widths(party, own).items()}
        for start in range(0, len(rows.role), BUFFER_ROWS):
            role = rows.role[start : start + BUFFER_ROWS]
            used = (role != DROPPED).nonzero()[0]
            raw = rows.raw.take(used + start)
            features = rows.encoding(raw)
            for party, arrays in writers.items():
                values: dict[str, np.ndarray] = {"labels": raw.labels, "roles": role[used]}
                if party in features:
                    block = features[party]
                    values |= {"numeric": block.numeric.numpy(), "categorical": block.categorical.numpy()}
                for name, writer in arrays.items():
                    whole = np.zeros((len(role),) if writer.width is None else (len(role), writer.width), writer.dtype)
                    if name in values:
                        whole[used] = values[name]
                    writer.write(whole)
            rows.raw.forget()
        of_label_party: dict[str, Any] = {
            "classes": rows.classes,
            "validation": data.validation is not None,
            "fingerprint": data.fingerprint,
            "facts": dict(data.facts),
            "notes": list(data.notes),
        }
        for party, own in columns.items():
            place = folder / party
            for writer in writers[party].values():
                writer.close()
            about = _About(
                party=party,
                rows=len(rows.role),
                numeric=list(own.numeric),
                categorical=list(own.categorical),
                cardinalities=list(own.cardinalities),
                sha256={name: writer.digest.hexdigest() for name, writer in writers[party].items()},
                **(of_label_party if party == LABEL_PARTY else {}),
            )
            with written_whole(place / _ABOUT, "w", private=True) as file:
                file.write(about.model_dump_json(indent=1))
        sync_folder(folder)
    except FileExistsError as error:
        raise UserError("there is such a folder already; name a new one", key="party table", value=place) from error
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="party table", value=place) from error
    return {party: folder / party for party in columns}


def _widths(party: str, columns: Columns) -> dict[str, int | None]:
    """The arrays of a party's table and how wide each is."""
    own: dict[str, int | None] = {"numeric": len(columns.numeric), "categorical": len(columns.categorical)}
    return own | ({"labels": None, "roles": None} if party == LABEL_PARTY else {})


def _read(folder: Path, *, labelled: bool) -> tuple[_About, str, dict[str, np.ndarray]]:
    """The description, its digest, and the arrays, mapped from their files; every byte is checked."""
    name, arrays = _ABOUT, {}
    try:
        content = (folder / name).read_bytes()
        about = _About.model_validate_json(content)
        if (about.party == LABEL_PARTY) != labelled:
            raise ValueError(f"it is the table of party {about.party}")
        for name, width in _widths(about.party, about.columns).items():
            mapped, digest = Mapped(folder / name, about.rows, np.dtype(_KINDS[name]).name, width), hashlib.sha256()
            for start in range(0, about.rows if width != 0 else 0, _PIECE):
                digest.update(mapped.array[start : start + _PIECE])
                mapped.forget()
            if digest.hexdigest() != about.sha256.get(name):
                raise ValueError(f"its content differs from the digest in {_ABOUT}")
            arrays[name] = mapped.array
    except (OSError, ValueError, DamagedStoreError) as error:
        problem = f"the table of a party can't be read from this file: {in_a_line(error, 200)}; write the party tables anew"
        raise UserError(problem, key="party table", value=folder / name) from error
    return about, hashlib.sha256(content).hexdigest(), arrays


def read_party_table(folder: Path) -> PartyTable:
    """A non-label party's table. Raises UserError, naming the file, for one that is damaged or of another kind."""
    about, fingerprint, arrays = _read(folder, labelled=False)
    numeric, categorical = (
        torch.from_numpy(np.array(arrays[name])) if about.rows <= BUFFER_ROWS else arrays[name]
        for name in ("numeric", "categorical")
    )
    return PartyTable(about.party, about.columns, numeric, categorical, fingerprint)


def read_label_table(folder: Path) -> TrainTest:
    """The label party's rows: as those of the joint table, with its own columns and no others.

    Raises UserError, naming the file, for one that is damaged or of another kind.
    """
    about, fingerprint, arrays = _read(folder, labelled=True)
    columns, role = about.columns, arrays.pop("roles")
    raw = RawTable(
        names=columns.numeric + columns.categorical,
        numeric_names=columns.numeric,
        categorical_names=columns.categorical,
        sizes=columns.cardinalities,
        numeric=arrays["numeric"],
        categorical=arrays["categorical"],
        labels=arrays["labels"],
        classes=about.classes,
        fingerprint=fingerprint,
        stored=lambda name, _: arrays[name],  # all are its own
    )
    encoding = stored({LABEL_PARTY: columns} if len(columns) else {})
    train, test = (EncodedRows(raw, encoding, role, wanted) for wanted in (TRAIN, TEST))
    validation = EncodedRows(raw, encoding, role, VALIDATION) if about.validation else None
    return TrainTest(train, test, about.fingerprint, about.facts, tuple(map(printable, about.notes)), validation)


@options
class WrittenTable(Dataset):
    """Rows that were split and encoded before: labels and the label party's own columns, from `write_party_tables`."""

    folder: str

    def load(self, rng: torch.Generator) -> TrainTest:
        """Nothing is drawn. Raises UserError for a folder that is damaged."""
        return read_label_table(Path(self.folder))
