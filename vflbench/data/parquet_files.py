"""Parquet files as one Arrow table in memory, whoever has made them."""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from vflbench.data.files import find_parts
from vflbench.data.line_errors import names_error
from vflbench.data.opening import check_folder, kind_of, open_regular
from vflbench.errors import UserError, shown
from vflbench.numerics.system import refuse_too_large

_MOST_FILES, _DEPTH = 10_000, 5
_SUFFIXES = (".parquet", ".parq", ".pq")


def read_parquet(path: str | Sequence[str | Path], rows: int | None) -> tuple[pa.Table, dict[str, Any]]:
    """All rows, or the first so many, of the files that `parquet_files` finds; and facts for the manifest.

    Raises UserError for what is no Parquet file, for files of other columns than the first, and for no row.
    """
    files = parquet_files(path)
    tables: list[pa.Table] = []
    for file in files:
        left = None if rows is None else rows - sum(map(len, tables))
        if left is not None and left <= 0:
            break
        table = _with_folders(_read(file, left), file, files[0])
        if tables and table.schema.names != tables[0].schema.names:
            problem = f"its columns are not those of {shown(files[0].name, 60)}; files of one table have the same"
            raise UserError(problem, key="dataset.path", value=str(file))
        tables.append(table)
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        problem = f"its files have columns of other types: {shown(' '.join(str(error).split()), 200)}"
        raise UserError(problem, key="dataset.path", value=str(path)) from error
    if not len(table):
        raise UserError("it holds no rows", key="dataset.path", value=str(path))
    facts: dict[str, Any] = {"path": str(Path(path).resolve()) if isinstance(path, str) else [str(f) for f in files]}
    if len(files) == 1 and kind_of(files[0]) is None:
        with open_regular(files[0]) as stream:
            facts["file_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    return table.slice(0, rows), facts


def parquet_files(path: str | Sequence[str | Path]) -> list[Path]:
    """A file; the files NAME.parquet of a folder and of the folders in it, by name; those that a pattern matches; or
    several of these. Raises UserError where there is none.
    """
    if not isinstance(path, str):
        files = [file for word in path for file in parquet_files(str(word))]
        if not files:
            raise UserError("it names no file", key="dataset.path", value=[])
        if len(set(files)) < len(files):
            repeated = next(file for file in files if files.count(file) > 1)
            problem = f"{shown(repeated, 200)} is named twice, so its rows would count double"
            raise UserError(problem, key="dataset.path", value=list(map(str, path)))
        return files
    path = os.path.expanduser(path)
    if kind_of(path) == "nothing" and glob.has_magic(path):
        return [part.file for part in find_parts(path)]
    if kind_of(path) != "a folder":
        return [Path(path)]
    check_folder(path)
    found = [file for file in _below(Path(path)) if file.suffix in _SUFFIXES]
    if not 0 < len(found) <= _MOST_FILES:
        problem = f"the folder holds {len(found):,} files NAME.parquet, in it and in the folders below it"
        raise UserError(problem, key="dataset.path", value=path)
    return found


def names_of(file: Path) -> tuple[str, ...]:
    """The columns of a file."""
    return tuple(_read(file, 0).schema.names)


def _below(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Files by name, those of a folder where its name stands; without what is hidden or begins with _, as written aside."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir() and not entry.is_symlink() and depth < _DEPTH:
            yield from _below(entry, depth + 1)
        elif not entry.is_dir():
            yield entry


def _with_folders(table: pa.Table, file: Path, first: Path) -> pa.Table:
    """With a column for each folder KEY=VALUE above the file, as parted tables are written; unless it has that column."""
    for folder in reversed(file.parents):
        key, equals, value = folder.name.partition("=")
        if equals and key.isidentifier() and key not in table.column_names and key in str(first):
            table = table.append_column(key, pa.array([unquote(value)] * len(table), pa.string()))
    return table


def _read(file: Path, rows: int | None) -> pa.Table:
    """The row groups that hold the first rows."""
    with open_regular(file) as stream:
        if stream.read(4) != b"PAR1":
            raise UserError(
                "it is no Parquet file; a table of text is read with dataset=csv", key="dataset.path", value=str(file)
            )
        try:
            opened = parquet.ParquetFile(stream)
            groups, size = [], 0
            for group in range(opened.num_row_groups):
                if rows is not None and size >= rows:
                    break
                groups.append(group)
                size += opened.metadata.row_group(group).num_rows
            problem = names_error(opened.schema_arrow.names)
            if problem:
                raise UserError(problem.replace("the header names", "it names"), key="dataset.path", value=str(file))
            refuse_too_large(
                max(0, size) * max(1, len(opened.schema_arrow.names)), 8, "the rows and columns", "dataset.rows"
            )
            table = opened.read_row_groups(groups)
            table.validate(full=True)
        except UserError:
            raise
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            OverflowError,
            MemoryError,
        ) as error:  # ValueError: names in no UTF-8
            reason = shown(" ".join(str(error).split()), 200)
            problem = f"it can't be read as a Parquet file: {reason}"
            raise UserError(problem, key="dataset.path", value=str(file)) from error
    return table
