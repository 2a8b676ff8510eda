"""Tables in Parquet files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.arrow_columns import labels_of, raw_of
from vflbench.data.column_shapes import ColumnShape
from vflbench.data.csv_format import TypeOf, readings_of
from vflbench.data.files import Part, listed
from vflbench.data.labels import Positive, StrayLabelError, label_problem
from vflbench.data.parquet_files import names_of, parquet_files, read_parquet
from vflbench.data.party_files import PartyFiles
from vflbench.data.party_source import PartySource, check_labelled, join_problem, joined, of_party, refuse_label_column
from vflbench.data.readings import MISSING_PART, Date, Mark, MissingAs, columns_of, has_indicator
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown
from vflbench.options import options


@options
class Parquet(PartyFiles):
    """Parquet files, read into memory; the user names the label column and each party's columns.

    Integers, floating-point numbers and decimals are numeric. Dates and times become numbers (days since the first, month,
    weekday, hour), and so do texts that stand for dates or amounts. Other texts, booleans, dictionaries and times of day are
    categories, by their text. `types` overrides this. A column that tells every row apart, such as a customer's number, is
    left out, and a line says so. A missing value (null, and NaN) is 0 in a numeric column, beside which a column says where
    (`missing_as`), and a category of its own in a categorical one. Classes are the label's values, as in `dataset=csv`.

    path: a file; a folder, whose files NAME.parquet, in it and below it, are read by name; a pattern; or several. Files have
    the same columns, and rows follow one another; with `id`, files of other columns are joined. label: the column that
    holds the labels. positive: the label's positive value, or a list of its spellings; all others are negative. types:
    column -> numeric, categorical, date or ignore. decimal, day_first: of texts that stand for numbers; missing_as: of
    missing values; as in `dataset=csv`.
    """

    path: str | list[str] | None = None
    label: str | None = None
    positive: Positive = None
    types: dict[str, TypeOf] | None = None
    decimal: Mark | None = None
    day_first: bool | None = None
    missing_as: MissingAs | None = None

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        path, headers = self.path or [], self._headers()
        if self.id is not None and len(set(headers.values())) > 1:
            self.check_label([name for names in headers.values() for name in names])
            check_labelled(self, headers)
            return joined(self, [self._source(part.file.name, str(part.file), names) for part, names in headers.items()])
        join_problem(headers, self.id)
        table, facts = read_parquet(path, self.rows)
        file = str(path)
        self.check_named(table.column_names)
        features, read_as = self._features(table, file, {str(self.label), str(self.id)})
        labels, names = self._labels(table, file)
        raw = raw_of(features, features.column_names, labels, max(2, len(names)))
        rows = np.bincount(labels, minlength=len(names)).tolist()
        classes = {} if names == ["0", "1"] else {"classes_are": names}
        return raw, {**facts, **classes, "class_rows": dict(zip(names, rows, strict=False)), "read_as": read_as}

    def read_party(self, party: str) -> PartySource:
        with of_party(party):
            return self._source(party, self.file_of(party), None if party == LABEL_PARTY else ())

    def _headers(self) -> dict[Part, tuple[str, ...]]:
        """The columns of each file, where several are named one by one or by a pattern."""
        path = self.path or []
        files = [Path(path)] if isinstance(path, str) and Path(path).is_dir() else parquet_files(path)
        return {Part(file): names_of(file) for file in files} if len(files) > 1 else {}

    def _source(self, party: str, file: str, columns: tuple[str, ...] | None) -> PartySource:
        """One file, with its identifiers. columns: of a file that is joined; empty for a party that has no labels."""
        is_label = columns is None or self.label in columns
        table, facts = read_parquet(file, None)
        names = table.column_names
        self.check_label(names)
        for key, name in {"dataset.id": str(self.id), **({"dataset.label": str(self.label)} if is_label else {})}.items():
            if name not in names:
                problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
                raise UserError(problem, key="dataset.path", value=file)
        if self.party_files is not None:
            refuse_label_column(party, file, str(self.label), names)
        ids = _identifiers(table[str(self.id)], str(self.id), file)
        features, read_as = self._features(table, file, {str(self.id), str(self.label)})
        labels = self._labels(table, file) if is_label else None
        return PartySource.of(party, names, ids, features, labels, {**facts, "read_as": read_as})

    def _features(self, table: pa.Table, file: str, others: set[str]) -> tuple[pa.Table, dict[str, Any]]:
        """The columns that are features, of float64 or of text; and how they were read."""
        types: Mapping[str, str] = self.types or {}
        names = [name for name in table.column_names if name not in others and types.get(name) != "ignore"]
        kinds = {name: types.get(name) or _kind(table[name].type, name, file) for name in names}
        read = [name for name in names if kinds[name] in ("categorical", "date") or pa.types.is_string(table[name].type)]
        texts = {name: _texts(table[name], name, file) for name in read}
        shapes = {name: _shape(column) for name, column in texts.items() if types.get(name) != "categorical"}
        readings, doubts = readings_of(self, shapes, ())
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        counts = {name: table[name].null_count for name in names}  # of missing values
        for name in names:
            if name in readings:
                made = columns_of(pc.if_else(pc.equal(texts[name], ""), None, texts[name]), readings[name])
                columns |= {name + part: made[part] for part in made if not part or name + part not in names}
            elif kinds[name] == "numeric":
                columns[name] = _numbers(table[name], name, file)
            else:
                columns[name] = texts[name]
                continue
            is_missing = table[name].is_null(nan_is_null=True)
            if name in readings:
                is_missing = pc.or_(is_missing, pc.fill_null(pc.equal(texts[name], ""), True))
            counts[name] = pc.sum(is_missing).as_py()
            indicated = has_indicator(self.missing_as, counts[name], len(table))
            if indicated and name + MISSING_PART not in names:
                columns[name + MISSING_PART] = is_missing.cast(pa.float64())
        missing = {name: count for name, count in counts.items() if count}
        ignored = [name for name in table.column_names if types.get(name) == "ignore" and name not in others]
        return pa.table(columns) if columns else table.select([]), {
            "columns": {name: reading.words for name, reading in readings.items()},
            "first": {name: reading.day(0) for name, reading in readings.items() if isinstance(reading, Date)},
            **({"missing": missing} if missing else {}),
            **({"ignored": dict.fromkeys(ignored, "as dataset.types says")} if ignored else {}),
            **({"doubts": doubts} if doubts else {}),
        }

    def _labels(self, table: pa.Table, file: str) -> tuple[np.ndarray, list[str]]:
        column = _texts(table[self.label], str(self.label), file)
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


def _shape(column: pa.ChunkedArray) -> ColumnShape:
    shape = ColumnShape()
    values = column.drop_null().unique()
    shape.add_texts(values.filter(pc.not_equal(values, "")))
    return shape


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
