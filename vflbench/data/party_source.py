"""What one party's file holds, which rows all parties share, and several files of one owner side by side."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from vflbench.data.arrow_columns import raw_of
from vflbench.data.files import Part, listed
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown

KEY = "dataset.party_files"


@dataclass(frozen=True)
class Alignment:
    """What the label party decides, and what each party gets of it: its own positions, and what each row is for.

    positions: party -> (m,) int64, where the m shared rows stand among the party's own, in the order of the label party's.
    role: (m,) uint8. facts: for the manifest. notes: lines to print.
    """

    positions: Mapping[str, Tensor]
    role: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.role)


def positions_of_shared(
    ids: Mapping[str, Sequence[str]], most: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any], tuple[str, ...]]:
    """Party -> (m,) positions of the rows whose identifier every party has; facts, and lines to print.

    ids: party -> its identifiers, the label party's among them; '007' is not '7', nor is ' 7'. most: use the first so many.

    Raises UserError for what is no list of different texts, and where nothing is shared.
    """
    for party, own in ids.items():
        check_ids(party, own)
    places = {party: {text: place for place, text in enumerate(own)} for party, own in ids.items() if party != LABEL_PARTY}
    order = [place for place, text in enumerate(ids[LABEL_PARTY]) if all(text in other for other in places.values())]
    count = len(order)
    if not count:
        example = {party: shown(own[0], 30) for party, own in ids.items() if own}
        problem = "the parties share no row; identifiers are compared as texts, and the first ones are"
        raise UserError(f"{problem} {', '.join(f'{text!r} ({party})' for party, text in example.items())}", key="dataset.id")
    shared = [ids[LABEL_PARTY][place] for place in order[:most]]
    positions = {party: torch.tensor([of[text] for text in shared], dtype=torch.int64) for party, of in places.items()}
    positions[LABEL_PARTY] = torch.tensor(order[:most], dtype=torch.int64)
    rows = {party: {"rows": len(own), "shared": count} for party, own in ids.items()}
    left_out = {party: len(own) - count for party, own in ids.items() if len(own) > count}
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


@dataclass(frozen=True)
class PartySource:
    """What one party's file holds.

    columns: all of the file. ids: (n,) identifiers, all different, none empty. raw: (n,) its columns without the identifier;
    the labels are zeros but for the label party's. class_names: of the label party's file. facts: for the manifest. notes:
    lines to print. lines: what its columns are taken for.
    """

    party: str
    columns: tuple[str, ...]
    ids: list[str]
    raw: RawTable
    class_names: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

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

    def only(self, names: Collection[str], notes: Sequence[str], lines: Sequence[str]) -> "PartySource":
        """The same with these columns alone as features. lines: what they are taken for."""
        numeric = np.array([j for j, name in enumerate(self.raw.numeric_names) if name in names], dtype=np.int64)
        categorical = np.array([j for j, name in enumerate(self.raw.categorical_names) if name in names], dtype=np.int64)
        raw = replace(
            self.raw.only(numeric, categorical, most=len(self.raw)),
            names=tuple(name for name in self.raw.names if name in names),
            labels=self.raw.labels,
            fingerprint=self.raw.fingerprint,
        )
        return replace(self, raw=raw, notes=(*self.notes, *notes), lines=tuple(lines))


def side_by_side(parts: Sequence[RawTable], fingerprint: str) -> RawTable:
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


def refuse_label_column(dataset: Any, party: str, file: str, names: Sequence[str]) -> None:
    """Of files of parties, a non-label party's must not hold the labels."""
    if dataset.party_files is not None and party != LABEL_PARTY and dataset.label in names:
        problem = (
            f"it has the column {shown(dataset.label, 60)}, which is the label; it belongs into the label party's file alone"
        )
        raise UserError(problem, key=f"{KEY}.{party}", value=file)


class Joining(Protocol):
    """What a dataset says of the files to join."""

    path: Any
    label: str | None
    rows: int | None


def joined(dataset: Joining, sources: Sequence[PartySource]) -> tuple[RawTable, dict[str, Any]]:
    """One table of all columns, in the order of the files; its rows are those whose identifier each file has, in the order
    of the file with the labels. Facts for the manifest.

    Raises UserError where a column stands in two files. One of them has the labels, see `check_labelled`.
    """
    labelled = [source for source in sources if source.class_names]
    owner: dict[str, str] = {}
    for source in sources:
        for name in source.raw.names:
            if name in owner:
                problem = f"both {shown(owner[name], 60)} and {shown(source.party, 60)} have the column {shown(name, 60)}"
                raise UserError(f"{problem}; rename it in one of them", key="dataset.path", value=dataset.path)
            owner[name] = source.party
    names = {LABEL_PARTY if source is labelled[0] else source.party: source for source in sources}
    positions, _, _ = positions_of_shared({name: source.ids for name, source in names.items()}, dataset.rows)
    raws = [source.raw.take(positions[name].numpy()) for name, source in names.items()]
    labels = labelled[0].raw.labels[positions[LABEL_PARTY].numpy()]
    digest = "-".join(source.raw.fingerprint for source in sources)
    raw = replace(side_by_side(raws, digest), labels=labels, classes=labelled[0].raw.classes)
    classes, rows = list(labelled[0].class_names), np.bincount(labels, minlength=len(labelled[0].class_names))
    facts: dict[str, Any] = {
        "class_rows": dict(zip(classes, rows.tolist(), strict=True)),
        **({} if classes == ["0", "1"] else {"classes_are": classes}),
        "files": {source.party: {**(source.facts or {}), "rows": len(source.ids)} for source in sources},
        "read_as": _merged(sources),
    }
    sizes = ", ".join(f"{shown(source.party, 60)} {len(source.ids):,}" for source in sources)
    line = f"{len(sources)} files joined: {len(raw):,} rows whose identifier is in all of them ({sizes})"
    return raw, {**facts, "notes": [*(note for source in sources for note in source.notes), line]}


def check_labelled(dataset: Joining, headers: Mapping[Part, Sequence[str]]) -> None:
    """Raise UserError where not exactly one of the files has the labels."""
    count = sum(dataset.label in names for names in headers.values())
    if count != 1:
        what = f"{count} of them have" if count else "none of them has"
        problem = f"{what} the column {shown(dataset.label, 60)}; of files that are joined, one holds the labels"
        raise UserError(problem, key="dataset.label", value=dataset.label)


def join_problem(headers: Mapping[Part, Sequence[str]], identifier: str | None) -> None:
    """Raise UserError for files of different columns whose rows can't be appended."""
    sets = [set(names) for names in headers.values()]
    if identifier is not None or not sets or all(names == sets[0] for names in sets):
        return
    first, other = (
        next(part for part in headers if set(headers[part]) == names)
        for names in (sets[0], next(s for s in sets if s != sets[0]))
    )
    shared = [name for name in headers[first] if all(name in names for names in sets)]
    problem = f"its columns are not those of {shown(first.file.name, 60)}, so that its rows can't follow"
    how = (
        f"; to join the files side by side, name the column that they share: dataset.id={shown(shared[0], 60)}"
        if shared
        else ""
    )
    only = f"; these share the columns {listed(shared, 10)}" if len(shared) > 1 else ""
    raise UserError(problem + how + only, key="dataset.path", value=str(other))


def _merged(sources: Sequence[PartySource]) -> dict[str, Any]:
    """How all files were read."""
    merged: dict[str, Any] = {}
    for source in sources:
        for key, value in (source.facts or {}).get("read_as", {}).items():
            if isinstance(value, Mapping):
                merged[key] = {**merged.get(key, {}), **value}
            elif isinstance(value, list):
                merged[key] = [*merged.get(key, []), *value]
    return merged
