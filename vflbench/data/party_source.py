"""What one party's file holds, in memory."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from vflbench.data.alignment import KEY
from vflbench.data.arrow_columns import raw_of
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown


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
            self.raw,
            names=tuple(name for name in self.raw.names if name in names),
            numeric_names=tuple(self.raw.numeric_names[j] for j in numeric),
            categorical_names=tuple(self.raw.categorical_names[j] for j in categorical),
            sizes=tuple(self.raw.sizes[j] for j in categorical),
            numeric=self.raw.numeric.take(numeric, axis=1),
            categorical=self.raw.categorical.take(categorical, axis=1),
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


def refuse_label_column(party: str, file: str, label: str, names: Sequence[str]) -> None:
    """A non-label party's file must not hold the labels."""
    if party != LABEL_PARTY and label in names:
        problem = f"it has the column {shown(label, 60)}, which is the label; it belongs into the label party's file alone"
        raise UserError(problem, key=f"{KEY}.{party}", value=file)
