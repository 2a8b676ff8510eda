"""Tables in Parquet files."""

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch

from vflbench.data.arrow_columns import check_source, identifiers, labels_of, raw_of
from vflbench.data.files import Part, damaged, find_parts, kind_of, open_regular
from vflbench.data.labels import Positive, label_problem
from vflbench.data.party_files import PartyFiles
from vflbench.data.party_source import PartySource, check_labelled, join_problem, joined, of_party, refuse_label_column
from vflbench.data.readings import (
    MISSING_PART,
    NUMBER,
    ColumnShape,
    Mark,
    MissingAs,
    TypeOf,
    columns_of,
    described,
    has_indicator,
    readings_of,
)
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.data.text import names_error
from vflbench.errors import UserError, shown
from vflbench.options import options

_SUFFIXES = (".parquet", ".parq", ".pq")


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
        files = _files(self.path or [])
        headers = {Part(file): tuple(_schema(file).names) for file in files} if len(files) > 1 else {}
        if self.id is not None and len(set(headers.values())) > 1:
            self.check_label([name for names in headers.values() for name in names])
            check_labelled(self, headers)
            return joined(self, [self._source(p.file.name, p, is_label=self.label in headers[p]) for p in headers])
        join_problem(headers, self.id)
        table, facts = _read(files, self.rows)
        part = Part(Path(facts["path"]) if isinstance(facts["path"], str) else files[0])
        self.check_named(table.column_names)
        features, read_as = self._features(table, part, {str(self.label), str(self.id)})
        labels, names = self._labels(table, part)
        raw = raw_of(features, features.column_names, labels, max(2, len(names)))
        rows = np.bincount(labels, minlength=len(names)).tolist()
        classes = {} if names == ["0", "1"] else {"classes_are": names}
        return raw, {**facts, **classes, "class_rows": dict(zip(names, rows, strict=False)), "read_as": read_as}

    def read_party(self, party: str) -> PartySource:
        with of_party(party):
            return self._source(party, Part(Path(self.file_of(party))), is_label=party == LABEL_PARTY)

    def _source(self, party: str, part: Part, *, is_label: bool) -> PartySource:
        """One file, with its identifiers."""
        table, facts = _read(_files(str(part.file)), None)
        names = table.column_names
        self.check_label(names)
        check_source(self, part, names, is_label=is_label)
        refuse_label_column(self, party, str(part), names)
        column = table[str(self.id)]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            what = f"column {shown(self.id, 60)} is of type {shown(kind, 60)}; identifiers are texts or whole numbers"
            raise part.error(what)
        ids = identifiers(_texts(column, str(self.id), part).to_pylist(), str(self.id), part, range(1, len(table) + 1))
        features, read_as = self._features(table, part, {str(self.id), str(self.label)})
        labels = self._labels(table, part) if is_label else None
        return PartySource.of(party, names, ids, features, labels, {**facts, "read_as": read_as})

    def _features(self, table: pa.Table, part: Part, others: set[str]) -> tuple[pa.Table, dict[str, Any]]:
        """The columns that are features, of float64 or of text; and how they were read."""
        types: Mapping[str, str] = self.types or {}
        names = [name for name in table.column_names if name not in others and types.get(name) != "ignore"]
        kinds = {name: types.get(name) or _kind(table[name].type, name, part) for name in names}
        read = [name for name in names if kinds[name] in ("categorical", "date") or pa.types.is_string(table[name].type)]
        texts = {name: _texts(table[name], name, part) for name in read}
        shapes = {name: _shape(column) for name, column in texts.items() if types.get(name) != "categorical"}
        readings, doubts = readings_of(self, shapes, ())
        readings = {name: reading for name, reading in readings.items() if reading != NUMBER}  # these were meant as texts
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        counts = {name: table[name].null_count for name in names}  # of missing values
        for name in names:
            if name in readings:
                column = pc.if_else(pc.equal(texts[name], ""), None, texts[name]).combine_chunks().dictionary_encode()
                made = columns_of(column, readings[name])
                columns |= {name + end: pa.array(made[end]) for end in made if not end or name + end not in names}
                is_missing = column.is_null()
            elif kinds[name] == "numeric":
                columns[name] = _numbers(table[name], name, part)
                is_missing = table[name].is_null(nan_is_null=True)
            else:
                columns[name] = texts[name]
                continue
            counts[name] = pc.sum(is_missing).as_py()
            if has_indicator(self.missing_as, counts[name], len(table)) and name + MISSING_PART not in names:
                columns[name + MISSING_PART] = is_missing.cast(pa.float64())
        ignored = [name for name in table.column_names if types.get(name) == "ignore" and name not in others]
        return pa.table(columns) if columns else table.select([]), described(readings, counts, ignored, doubts)

    def _labels(self, table: pa.Table, part: Part) -> tuple[np.ndarray, list[str]]:
        column = _texts(table[self.label], str(self.label), part)
        for text in column.unique().to_pylist():
            problem = label_problem(text or "")
            if problem:
                row = pc.index(pc.fill_null(column, ""), text or "").as_py() + 1
                raise part.error(f"row {row:,}: column {shown(self.label, 60)}: {problem}")
        return labels_of(column, self.positive)


def _read(files: Sequence[Path], rows: int | None) -> tuple[pa.Table, dict[str, Any]]:
    """All rows, or the first so many, of files with the same columns; and facts for the manifest.

    Folders KEY=VALUE above the files, as parted tables are written, are columns of texts.
    """
    part = Part(files[0])
    schemas = [_schema(file) for file in files]
    for file, schema in zip(files, schemas, strict=True):
        problem = names_error(schema.names)
        if problem:
            raise Part(file).error(problem.replace("the header names", "it names"))
        if schema.names != schemas[0].names:
            what = f"its columns are not those of {shown(files[0].name, 60)}; files of one table have the same"
            raise Part(file).error(what)
    with damaged(part):
        parted = ds.HivePartitioning.discover(infer_dictionary=True)
        several = ds.dataset(list(map(str, files)), format="parquet", partitioning=parted)
        folders = [field for field in several.schema if field.name not in schemas[0].names]
        schema = pa.unify_schemas([*schemas, pa.schema(folders)], promote_options="permissive")
        several = several.replace_schema(schema)
        table = several.to_table() if rows is None else several.head(rows)
        table.validate(full=True)
    if not len(table):
        raise part.error("it holds no rows")
    facts: dict[str, Any] = {"path": str(part.file.resolve()) if len(files) == 1 else list(map(str, files))}
    if len(files) == 1:
        with open_regular(files[0]) as stream:
            facts["file_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    return table.replace_schema_metadata(None), facts


def _schema(file: Path) -> pa.Schema:
    with open_regular(file) as stream, damaged(file):
        if stream.read(4) != b"PAR1":
            raise Part(file).error("it is no Parquet file; a table of text is read with dataset=csv")
        return pq.read_schema(file).remove_metadata()


def _files(path: str | Sequence[str]) -> list[Path]:
    """A file; the files NAME.parquet of a folder and of the folders in it, by name; those that a pattern matches; or
    several of these. Without what is hidden or begins with _, as written aside. Raises UserError where there is none.
    """
    if not isinstance(path, str):
        files = [file for word in path for file in _files(word)]
        repeated = next((file for file in files if files.count(file) > 1), None)
        if repeated is not None or not files:
            problem = (
                f"{shown(repeated, 200)} is named twice, so its rows would count double" if files else "it names no file"
            )
            raise UserError(problem, key="dataset.path", value=list(path))
        return files
    folder = Path(os.path.expanduser(path))
    if kind_of(folder) == "nothing" and glob.has_magic(path):
        return [part.file for part in find_parts(path)]
    if kind_of(folder) != "a folder":
        return [folder]
    below = [file for file in sorted(folder.rglob("*")) if file.suffix in _SUFFIXES and file.is_file()]
    found = [file for file in below if not any(name[0] in "._" for name in file.relative_to(folder).parts)]
    if not found:
        problem = "the folder holds no files NAME.parquet, in it or in the folders below it"
        raise UserError(problem, key="dataset.path", value=path)
    return found


def _shape(column: pa.ChunkedArray) -> ColumnShape:
    shape = ColumnShape()
    values = column.drop_null().unique()
    shape.add(values.filter(pc.not_equal(values, "")))
    return shape


def _kind(kind: pa.DataType, name: str, part: Part) -> str:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return "numeric"
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_boolean(inner) or types.is_string(inner) or types.is_large_string(inner) or types.is_temporal(inner):
        return "categorical"
    if types.is_dictionary(kind) and (types.is_integer(inner) or types.is_floating(inner)):
        return "categorical"
    problem = f"column {shown(name, 60)} is of type {shown(kind, 60)}, which is no number and no text"
    raise part.error(f"{problem}; leave it out with dataset.types={{{shown(name, 60)}: ignore}}")


def _numbers(column: pa.ChunkedArray, name: str, part: Part) -> pa.ChunkedArray:
    """float64 with null where missing."""
    values = _cast(
        _cast(column, pa.int8(), name, part) if pa.types.is_boolean(column.type) else column, pa.float64(), name, part
    )
    infinite = pc.is_inf(values).combine_chunks()
    if pc.any(infinite).as_py():
        raise part.error(f"row {pc.index(infinite, True).as_py() + 1:,}: column {shown(name, 60)} is infinite")
    return values


def _texts(column: pa.ChunkedArray, name: str, part: Part) -> pa.ChunkedArray:
    return _cast(column, pa.string(), name, part)


def _cast(column: pa.ChunkedArray, kind: pa.DataType, name: str, part: Part) -> pa.ChunkedArray:
    try:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        return plain.cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowException as error:
        what = "numbers" if pa.types.is_floating(kind) else "texts"
        raise part.error(f"column {shown(name, 60)} can't be read as {what}: {shown(str(error), 200)}") from error
