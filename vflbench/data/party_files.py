"""One file a party: the rows that all share are aligned by an identifier."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from vflbench.data.alignment import KEY, Alignment, positions_of_shared
from vflbench.data.arrow_columns import raw_of
from vflbench.data.base import Dataset, class_rows
from vflbench.data.encode import Encoding
from vflbench.data.files import listed
from vflbench.data.raw import RawTable
from vflbench.data.rows import TrainTest
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError, shown
from vflbench.options import options


@dataclass(frozen=True)
class PartySource:
    """What one party's file holds.

    columns: all of the file. ids: (n,) identifiers, all different, none empty. raw: (n,) its columns without the identifier;
    the labels are zeros but for the label party's. class_names: of the label party's file. facts: for the manifest. notes:
    lines to print.
    """

    party: str
    columns: tuple[str, ...]
    ids: list[str]
    raw: RawTable
    class_names: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        party: str,
        columns: Sequence[str],
        ids: list[str],
        table: pa.Table,
        labels: tuple[np.ndarray, list[str]] | None,
        facts: Mapping[str, Any],
        notes: tuple[str, ...] = (),
    ) -> "PartySource":
        """table: the columns that are features, in order. labels: classes and their names, of the label party.

        Raises UserError for a non-label party without a column.
        """
        if labels is None and not table.column_names:
            problem = "it holds no column beside the identifiers; a party needs at least one"
            raise UserError(problem, key=f"{KEY}.{party}", value=facts.get("path"))
        classes, names = (None, []) if labels is None else labels
        raw = raw_of(table, table.column_names, classes, max(2, len(names)))
        return cls(party, tuple(columns), ids, raw, tuple(names), facts, notes)


@options
class PartyFiles(Dataset):
    """A dataset of one file, or of one file a party.

    party_files: party -> its file, in place of `path`. That of the label party holds the labels, and perhaps columns of its
    own; every other column of a file is its party's. id: the column of each file that identifies its rows; it is never a
    feature. Identifiers are compared as texts: '007' is not '7'. Rows are used in the order of the label party's file, if
    every party has them; others are left out, and counted.

    A subclass overrides `read_party`.
    """

    party_files: dict[str, str] | None = None
    id: str | None = None

    def read_party(self, party: str) -> PartySource:
        """The file of one party, and no other."""
        raise NotImplementedError

    def load(self, rng: torch.Generator) -> TrainTest:
        if self.party_files is None:
            self.check_path()
            return super().load(rng)
        self.check_parties()
        sources = {party: self.read_party(party) for party in self.party_files}
        named = {name for source in sources.values() for name in source.columns}
        for name in getattr(self, "types", None) or {}:
            if name not in named:
                problem = f"no file has such a column; the columns are {listed(sorted(named), 40)}"
                raise UserError(problem, key="dataset.types", value=name)
        return joint_rows(self, sources, rng)

    def file_of(self, party: str) -> str:
        """Its own. Raises UserError where none is named, or no column of identifiers."""
        files = self.party_files or {}
        if party not in files:
            raise UserError(f"it names no file of party {party}", key=KEY, value=files or None)
        if not self.id:
            raise UserError("it must name the column that identifies the rows of each file", key="dataset.id")
        return files[party]

    def check_path(self) -> None:
        """Raises UserError for options that don't fit one file of all columns."""
        if self.id is not None:
            raise UserError("it is for one file a party, dataset.party_files", key="dataset.id", value=self.id)
        if getattr(self, "path", None) is None:
            problem = "it must be given, as dataset.path=FILE; or one file a party, as dataset.party_files={label: FILE}"
            raise UserError(problem, key="dataset.path")

    def check_parties(self) -> None:
        """Raises UserError for options that don't fit `party_files`."""
        files = self.party_files or {}
        for party in files:
            if not party.isidentifier():
                raise UserError(f"a party's name must be a word, and {party!r} is not one", key=KEY, value=files)
        if LABEL_PARTY not in files or len(files) < 2:
            problem = f"it must name a file of party {LABEL_PARTY}, which holds the labels, and of at least one other"
            raise UserError(problem, key=KEY, value=files)
        path = getattr(self, "path", None)
        if path is not None:
            raise UserError("give this, or dataset.party_files, but not both", key="dataset.path", value=path)
        if self.parties != 1:
            problem = "the files in dataset.party_files say which party holds which column; leave this out"
            raise UserError(problem, key="dataset.parties", value=self.parties)


def align(dataset: Dataset, label: PartySource, ids: Mapping[str, Sequence[str]], rng: torch.Generator) -> Alignment:
    """What the label party decides from its own file and the others' identifiers. ids: of the non-label parties.

    The same draws as of one file of these rows.
    """
    everyone = {LABEL_PARTY: label.ids, **ids}
    positions, facts, notes = positions_of_shared(everyone, dataset.rows)
    raw = label.raw.take(positions[LABEL_PARTY].numpy())
    role, more, lines = dataset.choose(raw, list(ids), rng)
    facts = {"class_rows": class_rows(raw, label.class_names), **facts, **more}
    if list(label.class_names) != ["0", "1"]:
        facts["classes_are"] = list(label.class_names)
    return Alignment(positions, torch.from_numpy(role), facts, (*label.notes, *notes, *lines))


def fitted_to(dataset: Dataset, source: PartySource, alignment: Alignment) -> tuple[RawTable, Encoding]:
    """A party's aligned rows, and its encoding, which is fitted on them alone."""
    raw = source.raw.take(alignment.positions[source.party].numpy())
    return raw, dataset.fitted(raw, {source.party: raw.names}, alignment.role.numpy())


def joint_rows(dataset: PartyFiles, sources: Mapping[str, PartySource], rng: torch.Generator) -> TrainTest:
    """The rows of all parties in one process."""
    label = sources[LABEL_PARTY]
    others = {party: source for party, source in sources.items() if party != LABEL_PARTY}
    alignment = align(dataset, label, {party: source.ids for party, source in others.items()}, rng)
    digest, parts, encodings = hashlib.sha256(), [], {}
    at_numeric = at_categorical = 0
    for party, source in {**others, LABEL_PARTY: label}.items():
        raw, encoding = fitted_to(dataset, source, alignment)
        digest.update(repr((party, source.raw.fingerprint)).encode())
        digest.update(alignment.positions[party].numpy())
        encoding.update(digest)
        parts.append(raw)
        if raw.names:
            own = encoding.parties[party]
            encodings[party] = replace(own, numeric=own.numeric + at_numeric, categorical=own.categorical + at_categorical)
        at_numeric, at_categorical = at_numeric + len(raw.numeric_names), at_categorical + len(raw.categorical_names)
    role = alignment.role.numpy()
    digest.update(role)
    raw = _joined(parts, digest.hexdigest())
    facts = {**alignment.facts, "party_files": {party: dict(source.facts or {}) for party, source in sources.items()}}
    notes = tuple(note for source in others.values() for note in source.notes) + alignment.notes
    encoding = Encoding(encodings, dataset.numeric_transform)
    return dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, notes)


def _joined(parts: Sequence[RawTable], fingerprint: str) -> RawTable:
    """The columns of all tables side by side, with the labels of the last."""
    return RawTable(
        names=tuple(name for part in parts for name in part.names),
        numeric_names=tuple(name for part in parts for name in part.numeric_names),
        categorical_names=tuple(name for part in parts for name in part.categorical_names),
        sizes=tuple(size for part in parts for size in part.sizes),
        numeric=np.concatenate([part.numeric for part in parts], axis=1),
        categorical=np.concatenate([part.categorical for part in parts], axis=1),
        labels=parts[-1].labels,
        classes=parts[-1].classes,
        fingerprint=fingerprint,
    )


@contextmanager
def of_party(party: str) -> Iterator[None]:
    """Errors of dataset.path are of this party's file."""
    try:
        yield
    except UserError as error:
        if error.key != "dataset.path":
            raise
        raise UserError(error.problem, key=f"{KEY}.{party}", value=error.value) from error


def refuse_label_column(party: str, file: str, label: str, names: Sequence[str]) -> None:
    """A non-label party's file must not hold the labels."""
    if party != LABEL_PARTY and label in names:
        problem = f"it has the column {shown(label, 60)}, which is the label; it belongs into the label party's file alone"
        raise UserError(problem, key=f"{KEY}.{party}", value=file)
