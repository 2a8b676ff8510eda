"""A table that the user describes, of one file or of one file a party: the rows that all parties share are aligned by an
identifier, in one process or in each party's own. In its own, identifiers go to the label party, and positions and roles of
the shared rows come back.

A party's encoded columns can be kept as a folder: an array a file, and `schema.json`, which describes them and holds their
digests. Nothing of another party's is in it.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.data.base import DROPPED, TEST, TRAIN, VALIDATION, Dataset, class_rows
from vflbench.data.file_dataset import FileDataset, Request, prepare_table, read_arrays, write_arrays
from vflbench.data.files import Part, listed, open_parts
from vflbench.data.named_columns import COLUMNS_ARE, NamedColumns, class_lines, use_lines
from vflbench.data.readings import (
    NUMBER,
    ColumnShape,
    Mark,
    MissingAs,
    PositiveClass,
    class_names,
    described,
    has_indicator,
    readings_of,
)
from vflbench.data.rows import BUFFER_ROWS, EncodedRows, TrainTest, read_rows
from vflbench.data.table import LABEL_PARTY, Columns, Encoding, Features, PartyEncoding, RawTable
from vflbench.data.text import TextFormat
from vflbench.errors import UserError, printable, shown
from vflbench.files import in_a_line, open_to_write, sync_folder
from vflbench.options import options

_KEY = "dataset.party_files"


@dataclass(frozen=True)
class RowAlignment:
    """What the label party decides, and what each party gets of it: its own positions, and what each row is for.

    positions: party -> (m,) int64, where the m shared rows stand among the party's own, in the order of the label party's.
    role: (m,) uint8. facts: for the manifest. notes: lines to print.
    """

    positions: Mapping[str, Tensor]
    role: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartySource:
    """What one party's own file holds, and no other's.

    dataset: whose `party_files` names it. columns: all of the file. ids: (n,) identifiers, all different, none empty: what
    the label party gets. raw: (n,) its columns without the identifier; the labels are zeros but for the label party's.
    names: those that are features. class_names: of the label party's file. facts: for the manifest. notes: lines to print.
    lines: what its columns are taken for. prepared: a line on the table.
    """

    dataset: Any
    party: str
    columns: tuple[str, ...]
    ids: list[str]
    raw: RawTable
    names: tuple[str, ...]
    class_names: tuple[str, ...]
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    lines: tuple[str, ...] = ()
    prepared: str = ""

    def align(self, ids: Mapping[str, Sequence[str]], rng: torch.Generator) -> RowAlignment:
        """What the label party decides from its own file and the others' identifiers: which rows all parties share, and what
        each is for. The same draws as of one file of these rows.

        ids: non-label party -> its identifiers. Raises UserError where they are no list of different texts.
        """
        if LABEL_PARTY in ids or not ids:
            raise UserError("it must be of the non-label parties, at least one", key="dataset.id")
        positions, facts, notes = positions_of_shared({LABEL_PARTY: self.ids, **ids}, self.dataset.rows)
        raw = self.raw.take(positions[LABEL_PARTY].numpy())
        role, more, lines = self.dataset.choose(raw, list(ids), rng, self.class_names)
        facts = {"class_rows": class_rows(raw, self.class_names), **facts, **more}
        if list(self.class_names) != ["0", "1"]:
            facts["classes_are"] = list(self.class_names)
        facts[COLUMNS_ARE] = [*self.lines, *class_lines(self.dataset.label, facts["class_rows"])]
        return RowAlignment(positions, torch.from_numpy(role), facts, (*self.notes, *notes, *lines))

    def fitted(self, alignment: RowAlignment) -> tuple[RawTable, Encoding]:
        """Its aligned rows, and its encoding, which is fitted on them alone."""
        raw = self.raw.take(alignment.positions[self.party].numpy())
        return raw, self.dataset.fitted(raw, {self.party: self.names}, alignment.role.numpy())

    def table(self, positions: Tensor, role: Tensor) -> "PartyTable":
        """Its columns of the shared rows, by their place among them. positions: (m,) int64, where they stand in its file.
        role: (m,) uint8, what each is for. Both come from the label party. Raises UserError for what can't be.
        """
        whole, places = len(self.ids), positions.tolist() if positions.dtype == torch.int64 and positions.dim() == 1 else []
        fits = places and len(set(places)) == len(places) and min(places) >= 0 and max(places) < whole
        fits = fits and role.dtype == torch.uint8 and role.shape == positions.shape
        if not (fits and int(role.max()) <= VALIDATION and (role != DROPPED).any()):
            problem = f"they are not of different rows among the {whole:,} of the file, or use none of them"
            raise UserError(f"positions and roles that came from the label party: {problem}", key=f"party {self.party}")
        raw, encoding = self.fitted(RowAlignment({self.party: positions}, role))
        features = encoding.parties[self.party].of(raw)
        numeric, categorical = features.numeric.numpy(), features.categorical.numpy()
        for values in (numeric, categorical):
            values[role.numpy() == DROPPED] = 0
        return PartyTable(self.party, features.columns, numeric, categorical)

    def rows(self, alignment: RowAlignment) -> TrainTest:
        """The label party's rows: labels and its own columns, and no others."""
        raw, encoding = self.fitted(alignment)
        encoding = replace(encoding, parties=encoding.parties if self.names else {})
        role = alignment.role.numpy()
        digest = hashlib.sha256(self.raw.fingerprint.encode())
        digest.update(alignment.positions[LABEL_PARTY].numpy())
        digest.update(role)
        encoding.update(digest)
        facts = {**alignment.facts, "party_files": {LABEL_PARTY: dict(self.facts)}}
        return self.dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, alignment.notes)


@options
class PartyFiles(NamedColumns, FileDataset):
    """A table whose columns the user describes, in one file, in several, or in one file a party.

    label: the column that holds the labels. positive: the label's positive value, or a list of its spellings; all others
    are negative. null uses the sorted order. types: column -> numeric, categorical, date or ignore. decimal: the mark before
    decimals; null: found by column. day_first: of dates such as 3/4/2020, whether this is April 3; null: found by column.
    missing_as: whether each column of numbers or dates in which values are missing has an `indicator` beside it, 0 or 1, or
    missing values are 0 alone, `zero`; null: an indicator where more than 1 % are missing.

    party_files: party -> its file, in place of `path`. That of the label party holds the labels, and perhaps columns of its
    own; every other column of a file is its party's. id: the column that identifies the rows of each file; it is never a
    feature. Identifiers are compared as texts: '007' is not '7'. Rows are used in the order of the label party's file, if
    every party has them; others are left out, and counted. Several files in `path` with `id` are joined in the same way.

    A subclass overrides `layout`.
    """

    path: str | list[str] | None = None  # type: ignore[assignment]
    positive: PositiveClass = None
    decimal: Mark | None = None
    day_first: bool | None = None
    missing_as: MissingAs | None = None
    party_files: dict[str, str] | None = None

    def layout(self, part: Part, wanted: Sequence[str]) -> TextFormat:
        """How to read a file, with all of its columns. wanted: columns that it should have."""
        raise NotImplementedError

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        names, class_of = class_names(labels, self.positive)
        return names, np.array([class_of[label] for label in labels], dtype=np.int64)

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The header's columns, each with the narrowest kind that fits all rows."""
        layout = self.layout(parts[0], [str(self.label)])
        refuse_other_columns(self._headers)
        self.check_named(layout.columns)
        return self._fitted_to_rows(layout, parts, str(self.label), "")

    def _fitted_to_rows(self, layout: TextFormat, parts: Sequence[Part], label: str, identifier: str) -> TextFormat:
        """The layout after a look at all rows. label, identifier: columns that are read as such; empty for none."""
        types, others = self.types or {}, {label, self.id} - {""}
        ignored = {name for name in layout.columns if types.get(name) == "ignore" and name not in others}
        unread = {name for name in layout.columns if name == self.id and name not in (label, identifier)}
        shapes = {name: ColumnShape() for name in layout.columns if name not in ignored | unread}
        look = replace(layout, readings=dict.fromkeys(shapes, NUMBER), ignored=frozenset(ignored | unread))
        for part, stream in open_parts(parts):
            for rows in self.blocks(part, stream, look):
                for name, shape in shapes.items():
                    for chunk in rows.table[name].chunks:
                        shape.add(chunk)
        readings, doubts = readings_of(self, shapes, others)
        doubts += layout.read_as.get("doubts", ())
        if layout.typed:
            meant = {name for name, shape in shapes.items() if shape.is_typed or types.get(name) == "numeric"}
            readings = {name: reading for name, reading in readings.items() if reading != NUMBER or name in meant}
        shown_as = described(readings, {name: shape.missing for name, shape in shapes.items()}, sorted(ignored), doubts)
        return replace(
            layout,
            label=label,
            id=identifier,
            readings=readings,
            ignored=look.ignored,
            indicators=frozenset(n for n in readings if has_indicator(self.missing_as, shapes[n].missing, shapes[n].rows)),
            read_as={**layout.read_as, **shown_as},
        )

    @cached_property
    def _headers(self) -> dict[Part, tuple[str, ...]]:
        """The columns of each file in `path`, where there are several."""
        parts = self.find(self.path or [])
        wanted = [name for name in (self.label, self.id) if name]
        return {part: self.layout(part, wanted).columns for part in parts} if len(parts) > 1 else {}

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        return _joined(self, list(self._joined().values())) if self._is_joined else super().read(rng)

    @property
    def _is_joined(self) -> bool:
        """Whether `path` names several files of different columns, and `id` the column that they share."""
        if self.path is None:
            problem = "it must be given, as dataset.path=FILE; or one file a party, as dataset.party_files={label: FILE}"
            raise UserError(problem, key="dataset.path")
        return self.id is not None and len(set(self._headers.values())) > 1

    def _joined(self) -> dict[str, PartySource]:
        self.check_label([name for names in self._headers.values() for name in names])
        labelled = [part for part, names in self._headers.items() if self.label in names]
        if len(labelled) != 1:
            what = f"{len(labelled)} of them have" if labelled else "none of them has"
            problem = f"{what} the column {shown(self.label, 60)}; of files that are joined, one holds the labels"
            raise UserError(problem, key="dataset.label", value=self.label)
        return {part.file.name: self._source(part.file.name, [part], part in labelled) for part in self._headers}

    def _source(self, party: str, parts: list[Part], is_label: bool) -> PartySource:
        """One table, with its identifiers. parts: its files, whose rows follow one another."""
        label, identifier = str(self.label) if is_label else "", str(self.id)
        layouts = {part: self.layout(part, [name for name in (identifier, label) if name]) for part in parts}
        refuse_other_columns({part: layout.columns for part, layout in layouts.items()})
        first, layout = next(iter(layouts.items()))
        names = layout.columns
        self.check_label(names)
        for key, name in (("dataset.id", identifier), *([("dataset.label", label)] if is_label else [])):
            if name not in names:
                problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
                raise first.error(problem)
        if self.party_files is not None and not is_label and self.label in names:
            what = f"it has the column {shown(self.label, 60)}, which is the label"
            raise first.error(f"{what}; it belongs into the label party's file alone")
        if not is_label and all(name == identifier or (self.types or {}).get(name) == "ignore" for name in names):
            raise first.error("it holds no column beside the identifiers; a party needs at least one")
        form = partial(self._fitted_to_rows, layout, parts, label, identifier)
        prepared = prepare_table(Request(self, parts, form, None, {"label": label, "identified": True}))
        kept = ("path", "read_as", "file_sha256", "bad_rows")
        facts = {name: fact for name, fact in prepared.facts.items() if name in kept}
        classes = tuple(prepared.facts.get("classes_are", ("0", "1"))) if is_label else ()
        notes, raw = tuple(prepared.notes(f" of party {party}")), prepared.table
        return PartySource(self, party, names, prepared.ids, raw, raw.names, classes, facts, notes, (), prepared.line())

    def read_party(self, party: str) -> PartySource:
        """The file of one party, and no other. Raises UserError where none is named, or no column of identifiers."""
        files = self.party_files or {}
        if party not in files:
            raise UserError(f"it names no file of party {party}", key=_KEY, value=files or None)
        if not self.id:
            raise UserError("it must name the column that identifies the rows of each file", key="dataset.id")
        try:
            return self._source(party, self.find(files[party]), party == LABEL_PARTY)
        except UserError as error:
            if error.key != "dataset.path":
                raise
            raise UserError(error.problem, key=f"{_KEY}.{party}", value=error.value) from error

    def party_source(self, party: str) -> PartySource:
        """The same without the columns that tell rows apart, and with lines on the others."""
        source = self.read_party(party)
        read_as = source.facts.get("read_as", {})
        left_out, doubts = self.judged(source.raw, read_as)
        names = tuple(name for name in source.raw.names if name not in left_out)
        if not names and party != LABEL_PARTY:
            problem = f"it holds no column beside identifiers ({', '.join(left_out)}); a party needs at least one"
            raise UserError(problem, key=f"{_KEY}.{party}", value=source.facts["path"])
        lines = use_lines(source.raw, read_as.get("columns", {}), left_out, f"party {party}: ")
        return replace(source, names=names, notes=(*source.notes, *doubts), lines=tuple(lines))

    def load(self, rng: torch.Generator) -> TrainTest:
        return super().load(rng) if self.party_files is None else joint_rows(self, self.sources(), rng)

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
        """What was read, and what each column is taken for: of one table, or of each file."""
        if self.party_files is None:
            if not self._is_joined:
                prepared = self.prepare()
                return [prepared.line(), *self.table_lines(prepared.table, prepared.facts)]
            sources = self._joined()
        else:
            self.check_parties()
            sources = {f"party {party}": self.read_party(party) for party in self.party_files}
        lines: list[str] = []
        for name, source in sources.items():
            rows = np.bincount(source.raw.labels, minlength=len(source.class_names)).tolist()
            facts = {**source.facts, "class_rows": dict(zip(source.class_names, rows, strict=False))}
            lines += [f"{name}, {shown(facts['path'], 200)}: {source.prepared}", *source.notes]
            lines += self.table_lines(source.raw, facts, labelled=bool(source.class_names))
        return lines

    def check_parties(self) -> None:
        """Raises UserError for options that don't fit `party_files`."""
        files = self.party_files or {}
        for party in files:
            if not party.isidentifier():
                raise UserError(f"a party's name must be a word, and {party!r} is not one", key=_KEY, value=files)
        if LABEL_PARTY not in files or len(files) < 2:
            problem = f"it must name a file of party {LABEL_PARTY}, which holds the labels, and of at least one other"
            raise UserError(problem, key=_KEY, value=files)
        if self.path is not None:
            raise UserError("give this, or dataset.party_files, but not both", key="dataset.path", value=self.path)
        if self.parties != 1:
            problem = "the files in dataset.party_files say which party holds which column; leave this out"
            raise UserError(problem, key="dataset.parties", value=self.parties)


def joint_rows(dataset: PartyFiles, sources: Mapping[str, PartySource], rng: torch.Generator) -> TrainTest:
    """The rows of all parties in one process."""
    label = sources[LABEL_PARTY]
    others = {party: source for party, source in sources.items() if party != LABEL_PARTY}
    alignment = label.align({party: source.ids for party, source in others.items()}, rng)
    digest, parts, encodings = hashlib.sha256(), [], {}
    at_numeric = at_categorical = 0
    for party, source in {**others, LABEL_PARTY: label}.items():
        raw, encoding = source.fitted(alignment)
        digest.update(repr((party, source.raw.fingerprint)).encode())
        digest.update(alignment.positions[party].numpy())
        encoding.update(digest)
        parts.append(raw)
        if source.names:
            at = encoding.parties[party]
            encodings[party] = replace(at, numeric=at.numeric + at_numeric, categorical=at.categorical + at_categorical)
        at_numeric, at_categorical = at_numeric + len(raw.numeric_names), at_categorical + len(raw.categorical_names)
    role = alignment.role.numpy()
    digest.update(role)
    raw = _side_by_side(parts, digest.hexdigest())
    facts = {**alignment.facts, "party_files": {party: dict(source.facts) for party, source in sources.items()}}
    facts[COLUMNS_ARE] = [*(line for source in others.values() for line in source.lines), *alignment.facts[COLUMNS_ARE]]
    notes = tuple(note for source in others.values() for note in source.notes) + alignment.notes
    encoding = Encoding(encodings, dataset.numeric_transform)
    return dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, notes)


def positions_of_shared(
    ids: Mapping[str, Sequence[str]], most: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any], tuple[str, ...]]:
    """Party -> (m,) positions of the rows whose identifier every party has; facts, and lines to print.

    ids: party -> its identifiers, the label party's among them; '007' is not '7', nor is ' 7'. most: use the first so many.

    Raises UserError for what is no list of different texts, and where nothing is shared.
    """
    for party, names in ids.items():
        check_ids(party, names)
    places = {party: {text: i for i, text in enumerate(names)} for party, names in ids.items() if party != LABEL_PARTY}
    order = [place for place, text in enumerate(ids[LABEL_PARTY]) if all(text in other for other in places.values())]
    count = len(order)
    if not count:
        example = {party: shown(names[0], 30) for party, names in ids.items() if names}
        problem = "the parties share no row; identifiers are compared as texts, and the first ones are"
        raise UserError(f"{problem} {', '.join(f'{text!r} ({party})' for party, text in example.items())}", key="dataset.id")
    shared = [ids[LABEL_PARTY][place] for place in order[:most]]
    positions = {party: torch.tensor([of[text] for text in shared], dtype=torch.int64) for party, of in places.items()}
    positions[LABEL_PARTY] = torch.tensor(order[:most], dtype=torch.int64)
    rows = {party: {"rows": len(names), "shared": count} for party, names in ids.items()}
    left_out = {party: len(names) - count for party, names in ids.items() if len(names) > count}
    notes: tuple[str, ...] = ()
    if left_out:
        listed = ", ".join(f"{number:,} of {party}" for party, number in left_out.items())
        notes = (f"the parties share {count:,} rows; rows that another party does not have are left out: {listed}",)
    return positions, {"party_rows": rows}, notes


def check_ids(party: str, ids: object) -> None:
    """Raises UserError for anything but a list of different texts that are not empty: it may have come from elsewhere."""
    if not isinstance(ids, list) or not all(isinstance(text, str) and text for text in ids):
        raise UserError(f"party {party} must give a list of texts, none of them empty", key="dataset.id")
    if len(set(ids)) < len(ids):
        text, count = Counter(ids).most_common(1)[0]
        raise UserError(f"party {party} has the identifier {shown(text, 60)!r} {count} times", key="dataset.id")


def _side_by_side(parts: Sequence[RawTable], fingerprint: str) -> RawTable:
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


def _joined(dataset: PartyFiles, sources: Sequence[PartySource]) -> tuple[RawTable, dict[str, Any]]:
    """One table of all columns, in the order of the files; its rows are those whose identifier each file has, in the order
    of the file with the labels. Facts for the manifest.

    Raises UserError where a column stands in two files. One of them has the labels.
    """
    owner: dict[str, str] = {}
    for source in sources:
        for name in source.raw.names:
            if owner.setdefault(name, source.party) != source.party:
                problem = f"both {shown(owner[name], 60)} and {shown(source.party, 60)} have the column {shown(name, 60)}"
                raise UserError(f"{problem}; rename it in one of them", key="dataset.path", value=dataset.path)
    names = {LABEL_PARTY if source.class_names else source.party: source for source in sources}
    positions, _, _ = positions_of_shared({name: source.ids for name, source in names.items()}, dataset.rows)
    raws = {name: source.raw.take(positions[name].numpy()) for name, source in names.items()}
    labels, classes = raws[LABEL_PARTY], list(names[LABEL_PARTY].class_names)
    digest = "-".join(source.raw.fingerprint for source in sources)
    raw = replace(_side_by_side([*raws.values()], digest), labels=labels.labels, classes=labels.classes)
    facts: dict[str, Any] = {
        "class_rows": dict(zip(classes, np.bincount(labels.labels, minlength=len(classes)).tolist(), strict=True)),
        **({} if classes == ["0", "1"] else {"classes_are": classes}),
        "files": {source.party: {**source.facts, "rows": len(source.ids)} for source in sources},
        "read_as": _merged(sources),
    }
    sizes = ", ".join(f"{shown(source.party, 60)} {len(source.ids):,}" for source in sources)
    line = f"{len(sources)} files joined: {len(raw):,} rows whose identifier is in all of them ({sizes})"
    return raw, {**facts, "notes": [*(note for source in sources for note in source.notes), line]}


def refuse_other_columns(headers: Mapping[Part, Sequence[str]]) -> None:
    """Raise UserError for files of different columns, whose rows can't be appended."""
    for other, names in headers.items():
        first, columns = next(iter(headers.items()))
        if set(names) != set(columns):
            shared = [name for name in columns if all(name in names for names in headers.values())]
            how = f"; to join the files side by side, name the column that they share: dataset.id={listed(shared, 1)}"
            problem = f"its columns are not those of {shown(first.file.name, 60)}, so that its rows can't follow"
            raise other.error(problem + how * bool(shared))


def _merged(sources: Sequence[PartySource]) -> dict[str, Any]:
    """How all files were read."""
    merged: dict[str, Any] = {}
    for key, value in (item for source in sources for item in source.facts.get("read_as", {}).items()):
        if key == "doubts":
            merged[key] = [*merged.get(key, []), *value]
        elif key != "delimiter":
            merged[key] = {**merged.get(key, {}), **value}
    return merged


@dataclass(frozen=True)
class PartyTable:
    """A non-label party's encoded columns, by row id: the position of the row among those that the parties have aligned.

    numeric: (n, k) float32. categorical: (n, c) int32. Both are in memory or mapped from their files.
    """

    party: str
    columns: Columns
    numeric: np.ndarray
    categorical: np.ndarray

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
        for party, held in columns.items():
            place = folder / party
            place.mkdir(mode=0o700)
            shapes: dict[str, tuple[str, tuple[int, ...]]] = {"numeric": ("float32", (len(rows.role), len(held.numeric)))}
            shapes["categorical"] = ("int32", (len(rows.role), len(held.categorical)))
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
            about = {"party": party, **vars(held), **(of_label_party if party == LABEL_PARTY else {})}
            write_arrays(place, shapes, about)
        sync_folder(folder)
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="party table", value=place) from error
    return {party: folder / party for party in columns}


def _read(folder: Path, *, labelled: bool) -> tuple[dict[str, Any], Columns, dict[str, Any]]:
    """The description, the columns, and the arrays, mapped from their files; every byte is checked."""
    try:
        about, arrays = read_arrays(folder)
        if (about["party"] == LABEL_PARTY) != labelled:
            raise ValueError(f"it is the table of party {about['party']}")
        columns = Columns(*(tuple(about[name]) for name in ("numeric", "categorical", "cardinalities")))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = f"the table of a party can't be read: {in_a_line(error, 200)}; write the party tables anew"
        raise UserError(problem, key="party table", value=folder) from error
    return about, columns, arrays


def read_party_table(folder: Path) -> PartyTable:
    """A non-label party's table. Raises UserError, naming the file, for one that is damaged or of another kind."""
    about, columns, arrays = _read(folder, labelled=False)
    return PartyTable(about["party"], columns, **arrays)


def read_label_table(folder: Path) -> TrainTest:
    """The label party's rows: as those of the joint table, with its own columns and no others.

    Raises UserError, naming the file, for one that is damaged or of another kind.
    """
    about, columns, arrays = _read(folder, labelled=True)
    role = arrays.pop("roles")
    raw = RawTable(
        names=columns.numeric + columns.categorical,
        numeric_names=columns.numeric,
        categorical_names=columns.categorical,
        sizes=columns.cardinalities,
        **arrays,
        classes=about["classes"],
        folder=folder,
    )
    numeric, categorical = (np.arange(len(names)) for names in (columns.numeric, columns.categorical))
    least = np.zeros(len(numeric))  # they are encoded
    encoding = PartyEncoding(columns, numeric, least, least + 1, categorical, (None,) * len(categorical))
    train = EncodedRows(raw, Encoding({LABEL_PARTY: encoding} if len(columns) else {}, "none"), role, TRAIN)
    test, validation = replace(train, wanted=TEST), replace(train, wanted=VALIDATION) if about["validation"] else None
    return TrainTest(train, test, about["fingerprint"], about["facts"], tuple(map(printable, about["notes"])), validation)


@options
class WrittenTable(Dataset):
    """Rows that were split and encoded before: labels and the label party's own columns, from `write_party_tables`."""

    folder: str

    def load(self, rng: torch.Generator) -> TrainTest:
        """Nothing is drawn. Raises UserError for a folder that is damaged."""
        return read_label_table(Path(self.folder))
