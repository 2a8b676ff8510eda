"""One file a party: the rows that all share are aligned by an identifier, in one process or in each party's own.

In its own, identifiers go to the label party, and positions and roles of the shared rows come back.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vflbench.data.base import DROPPED, VALIDATION, Dataset, class_rows
from vflbench.data.encode import Encoding
from vflbench.data.files import listed
from vflbench.data.own_columns import COLUMNS_ARE, OwnColumns, class_lines
from vflbench.data.party_source import KEY, Alignment, PartySource, positions_of_shared, side_by_side
from vflbench.data.party_table import PartyTable
from vflbench.data.rows import TrainTest
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown
from vflbench.options import options

NOT_KEPT = "these files are not put into the cache: each run reads them"


@options
class PartyFiles(OwnColumns):
    """A dataset of one file, or of one file a party.

    party_files: party -> its file, in place of `path`. That of the label party holds the labels, and perhaps columns of its
    own; every other column of a file is its party's. id: the column that identifies the rows of each file; it is never a
    feature. Identifiers are compared as texts: '007' is not '7'. Rows are used in the order of the label party's file, if
    every party has them; others are left out, and counted. Several files in `path` with `id` are joined in the same way.

    A subclass overrides `read_party`.
    """

    party_files: dict[str, str] | None = None

    def read_party(self, party: str) -> PartySource:
        """The file of one party, and no other."""
        raise NotImplementedError

    def party_source(self, party: str) -> PartySource:
        """The same without the columns that tell rows apart."""
        return self.as_features(self.read_party(party))

    def load(self, rng: torch.Generator) -> TrainTest:
        if self.party_files is None:
            self.check_path()
            return super().load(rng)
        return joint_rows(self, self.sources(), rng)

    def sources(self) -> dict[str, PartySource]:
        """The files of all parties."""
        self.check_parties()
        sources = {party: self.party_source(party) for party in self.party_files or {}}
        named = {name for source in sources.values() for name in source.columns}
        for name in self.types or {}:
            if name not in named:
                problem = f"no file has such a column; the columns are {listed(sorted(named), 40)}"
                raise UserError(problem, key="dataset.types", value=name)
        return sources

    def described(self) -> list[str]:
        """What was read, and what each column is taken for: of one table, or of each party's file."""
        if self.party_files is None:
            self.check_path()
            raw, facts = self.read(torch.Generator())
            return [
                f"read: {len(raw):,} rows, {len(raw.names)} columns",
                *facts.get("notes", ()),
                *self.table_lines(raw, facts),
                NOT_KEPT,
            ]
        lines: list[str] = []
        self.check_parties()
        for party in self.party_files:
            source = self.read_party(party)
            rows = np.bincount(source.raw.labels, minlength=len(source.class_names)).tolist()
            facts = {**(source.facts or {}), "class_rows": dict(zip(source.class_names, rows, strict=False))}
            lines += [f"party {party}, {len(source.ids):,} rows of {shown(facts.get('path', ''), 200)}", *source.notes]
            lines += self.table_lines(source.raw, facts, labelled=bool(source.class_names))
        return [*lines, NOT_KEPT]

    def file_of(self, party: str) -> str:
        """Its own. Raises UserError where none is named, or no column of identifiers."""
        files = self.party_files or {}
        if party not in files:
            raise UserError(f"it names no file of party {party}", key=KEY, value=files or None)
        if not self.id:
            raise UserError("it must name the column that identifies the rows of each file", key="dataset.id")
        return files[party]

    def check_path(self) -> None:
        """Raises UserError for options that don't fit one table of all columns."""
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
    role, more, lines = dataset.choose(raw, list(ids), rng, label.class_names)
    facts = {"class_rows": class_rows(raw, label.class_names), **facts, **more}
    if list(label.class_names) != ["0", "1"]:
        facts["classes_are"] = list(label.class_names)
    named = getattr(dataset, "label", None)
    facts[COLUMNS_ARE] = [*label.lines, *(class_lines(named, facts["class_rows"]) if named else [])]
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
    raw = side_by_side(parts, digest.hexdigest())
    facts = {**alignment.facts, "party_files": {party: dict(source.facts or {}) for party, source in sources.items()}}
    facts[COLUMNS_ARE] = [*(line for source in others.values() for line in source.lines), *alignment.facts[COLUMNS_ARE]]
    notes = tuple(note for source in others.values() for note in source.notes) + alignment.notes
    encoding = Encoding(encodings, dataset.numeric_transform)
    return dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, notes)


class OwnFile:
    """A party's own file. dataset: whose `party_files` names it; the others' are not looked at."""

    def __init__(self, dataset: PartyFiles, party: str):
        self.dataset, self.party = dataset, party
        self._source: PartySource = dataset.party_source(party)

    def __len__(self) -> int:
        return len(self._source.ids)

    def ids(self) -> list[str]:
        """The identifiers of its rows, in the order of the file: what the label party gets."""
        return list(self._source.ids)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that a person must not miss."""
        return (*self._source.lines, *self._source.notes) if self.party != LABEL_PARTY else self._source.notes

    def table(self, positions: Tensor, role: Tensor) -> PartyTable:
        """Its columns of the shared rows, by their place among them. positions: (m,) int64, where they stand in its file.
        role: (m,) uint8, what each is for. Both come from the label party. Raises UserError for what can't be.
        """
        source, alignment = self._source, Alignment({self.party: positions}, role)
        self._check(positions, role)
        raw, encoding = fitted_to(self.dataset, source, alignment)
        features = encoding(raw)[self.party]
        dropped = role == DROPPED
        features.numeric[dropped], features.categorical[dropped] = 0, 0
        digest = hashlib.sha256(raw.fingerprint.encode())
        for values in (features.numeric, features.categorical):
            digest.update(values.numpy())
        encoding.update(digest)
        return PartyTable(self.party, features.columns, features.numeric, features.categorical, digest.hexdigest())

    def _check(self, positions: Tensor, role: Tensor) -> None:
        whole, places = len(self), positions.tolist() if positions.dtype == torch.int64 and positions.dim() == 1 else []
        fits = places and len(set(places)) == len(places) and min(places) >= 0 and max(places) < whole
        fits = fits and role.dtype == torch.uint8 and role.shape == positions.shape
        if not (fits and int(role.max()) <= VALIDATION and (role != DROPPED).any()):
            problem = f"they are not of different rows among the {whole:,} of the file, or use none of them"
            raise UserError(f"positions and roles that came from the label party: {problem}", key=f"party {self.party}")


class LabelFile(OwnFile):
    """The label party's own file, and what it decides from the identifiers of the others."""

    def __init__(self, dataset: PartyFiles):
        super().__init__(dataset, LABEL_PARTY)

    def align(self, ids: Mapping[str, Sequence[str]], rng: torch.Generator) -> Alignment:
        """Which rows all parties share, and what each is for: the same as in one process, from the same generator state.

        ids: non-label party -> its identifiers. Raises UserError where they are no list of different texts.
        """
        if LABEL_PARTY in ids or not ids:
            raise UserError("it must be of the non-label parties, at least one", key="dataset.id")
        return align(self.dataset, self._source, ids, rng)

    def rows(self, alignment: Alignment) -> TrainTest:
        """The label party's rows: labels and its own columns, and no others."""
        raw, encoding = fitted_to(self.dataset, self._source, alignment)
        encoding = replace(encoding, parties=encoding.parties if raw.names else {})
        role = alignment.role.numpy()
        digest = hashlib.sha256(self._source.raw.fingerprint.encode())
        digest.update(alignment.positions[LABEL_PARTY].numpy())
        digest.update(role)
        encoding.update(digest)
        raw, facts = replace(raw, fingerprint=digest.hexdigest()), {**alignment.facts}
        facts["party_files"] = {LABEL_PARTY: dict(self._source.facts or {})}
        return self.dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, alignment.notes)


def own_file(dataset: PartyFiles, party: str) -> OwnFile:
    """What a party reads of its own file, and of no other's."""
    return LabelFile(dataset) if party == LABEL_PARTY else OwnFile(dataset, party)
