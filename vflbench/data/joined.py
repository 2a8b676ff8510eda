"""Several files of one owner, side by side: rows with the same identifier are one row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from vflbench.data.alignment import positions_of_shared
from vflbench.data.files import Part, listed
from vflbench.data.party_source import PartySource, side_by_side
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown


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
        "notes": [*(note for source in sources for note in source.notes), _line(sources, len(raw))],
    }
    return raw, facts


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


def _line(sources: Sequence[PartySource], rows: int) -> str:
    sizes = ", ".join(f"{shown(source.party, 60)} {len(source.ids):,}" for source in sources)
    return f"{len(sources)} files joined: {rows:,} rows whose identifier is in all of them ({sizes})"
