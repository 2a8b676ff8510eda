"""Tables in Parquet files."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.arrow_columns import labels_of, raw_of
from vflbench.data.files import listed
from vflbench.data.labels import Positive, StrayLabelError, label_problem
from vflbench.data.parquet_files import read_parquet
from vflbench.data.party_files import PartyFiles, PartySource, of_party, refuse_label_column
from vflbench.data.raw import RawTable
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError, shown
from vflbench.options import options


@options
class Parquet(PartyFiles):
    """A Parquet file, or a folder of them, read into memory; the user names the label column and each party's columns.

    Integers, floating-point numbers and decimals are numeric. Texts, booleans, dictionaries, dates and times are categories,
    by their text. `types` overrides both. A missing value (null, and NaN) is 0 in a numeric column and a category of its own
    in a categorical one. Classes are the label's values, as in `dataset=csv`.

    path: a file, or a folder whose files NAME.parquet are read by name and have the same columns. label: the column that
    holds the labels. positive: the label's positive value, or a list of its spellings; all others are negative. types:
    column -> numeric, categorical or ignore.
    """

    path: str | None = None
    label: str
    positive: Positive = None
    types: dict[str, Literal["numeric", "categorical", "ignore"]] | None = None

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        file = str(self.path)
        table, facts = read_parquet(file, self.rows)
        self._check_named(file, table.column_names, {"dataset.label": self.label})
        for name in self.types or {}:
            self._check_named(file, table.column_names, {"dataset.types": name})
        features, (labels, names) = self._features(table, file, {self.label}), self._labels(table, file)
        raw = raw_of(features, features.column_names, labels, max(2, len(names)))
        return raw, {**facts, **({} if names == ["0", "1"] else {"classes_are": names})}

    def read_party(self, party: str) -> PartySource:
        file, is_label = self.file_of(party), party == LABEL_PARTY
        with of_party(party):
            table, facts = read_parquet(file, None)
            names = table.column_names
            self._check_named(
                file, names, {"dataset.id": str(self.id), **({"dataset.label": self.label} if is_label else {})}
            )
            refuse_label_column(party, file, self.label, names)
            ids = _identifiers(table[self.id], str(self.id), file)
            features = self._features(table, file, {str(self.id), self.label})
            labels = self._labels(table, file) if is_label else None
        return PartySource.of(party, names, ids, features, labels, facts)

    def _check_named(self, file: str, names: list[str], wanted: dict[str, str]) -> None:
        for key, name in wanted.items():
            if name not in names:
                problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
                raise UserError(problem, key="dataset.path", value=file)

    def _features(self, table: pa.Table, file: str, others: set[str]) -> pa.Table:
        """The columns that are features: of float64, or of text."""
        columns = {}
        for name in table.column_names:
            kind = (self.types or {}).get(name)
            if name in others or kind == "ignore":
                continue
            if (kind or _kind(table[name].type, name, file)) == "numeric":
                columns[name] = _numbers(table[name], name, file)
            else:
                columns[name] = _texts(table[name], name, file)
        return pa.table(columns) if columns else table.select([])

    def _labels(self, table: pa.Table, file: str) -> tuple[np.ndarray, list[str]]:
        column = _texts(table[self.label], self.label, file)
        for text in column.unique().to_pylist():
            problem = label_problem(text or "")
            if problem:
                row = pc.index(pc.fill_null(column, ""), text or "").as_py() + 1
                raise UserError(f"row {row:,}: column {shown(self.label, 60)}: {problem}", key="dataset.path", value=file)
        try:
            return labels_of(column, self.positive)
        except StrayLabelError as error:
            row = pc.index(column, error.label).as_py() + 1
            raise UserError(f"row {row:,}: {error}", key="dataset.path", value=file) from error


def _kind(kind: pa.DataType, name: str, file: str) -> str:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "numeric"
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_boolean(inner) or types.is_string(inner) or types.is_large_string(inner) or types.is_temporal(inner):
        return "categorical"
    if types.is_dictionary(kind) and (types.is_integer(inner) or types.is_floating(inner)):
        return "categorical"
    raise UserError(
        f"column {shown(name, 60)} is of type {shown(kind, 60)}, which is no number and no text; "
        f"leave it out with dataset.types={{{shown(name, 60)}: ignore}}",
        key="dataset.path",
        value=file,
    )


def _numbers(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    """float64 with null where missing."""
    try:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        plain = plain.cast(pa.int8()) if pa.types.is_boolean(plain.type) else plain
        values = plain.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        problem = f"column {shown(name, 60)} can't be read as numbers: {shown(' '.join(str(error).split()), 200)}"
        raise UserError(problem, key="dataset.path", value=file) from error
    infinite = pc.is_inf(values).combine_chunks()
    if pc.any(infinite).as_py():
        row = pc.index(infinite, True).as_py() + 1
        raise UserError(f"row {row:,}: column {shown(name, 60)} is infinite", key="dataset.path", value=file)
    return values


def _texts(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    try:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        return plain.cast(pa.string())
    except pa.ArrowException as error:
        problem = f"column {shown(name, 60)} can't be read as texts: {shown(' '.join(str(error).split()), 200)}"
        raise UserError(problem, key="dataset.path", value=file) from error


def _identifiers(column: pa.ChunkedArray, name: str, file: str) -> list[str]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        problem = f"column {shown(name, 60)} is of type {shown(kind, 60)}; identifiers are texts or whole numbers"
        raise UserError(problem, key="dataset.path", value=file)
    ids: list[str | None] = _texts(column, name, file).to_pylist()
    places: dict[str, int] = {}
    for row, text in enumerate(ids, 1):
        if not text:
            problem = f"row {row:,}: the row has no identifier in column {shown(name, 60)}"
            raise UserError(problem, key="dataset.path", value=file)
        if text in places:
            problem = (
                f"rows {places[text]:,} and {row:,}: column {shown(name, 60)} has the identifier {shown(text, 60)!r} twice"
            )
            raise UserError(problem, key="dataset.path", value=file)
        places[text] = row
    return list(places)
