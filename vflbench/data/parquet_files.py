"""Parquet files as one Arrow table in memory, whoever has made them."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from vflbench.data.line_errors import names_error
from vflbench.data.opening import check_folder, kind_of, open_regular
from vflbench.errors import UserError, shown
from vflbench.numerics.memory import refuse_too_large

_MOST_FILES = 10_000


def read_parquet(path: str, rows: int | None) -> tuple[pa.Table, dict[str, Any]]:
    """All rows, or the first so many, of a file or of the files of a folder; and facts for the manifest.

    Raises UserError for what is no Parquet file, for files of other columns than the first, and for no row.
    """
    files = _files(path)
    tables: list[pa.Table] = []
    for file in files:
        left = None if rows is None else rows - sum(map(len, tables))
        if left is not None and left <= 0:
            break
        table = _read(file, left)
        if tables and table.schema.names != tables[0].schema.names:
            problem = f"its columns are not those of {shown(files[0].name, 60)}; files of one table have the same"
            raise UserError(problem, key="dataset.path", value=str(file))
        tables.append(table)
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        problem = f"its files have columns of other types: {shown(' '.join(str(error).split()), 200)}"
        raise UserError(problem, key="dataset.path", value=path) from error
    if not len(table):
        raise UserError("it holds no rows", key="dataset.path", value=path)
    facts: dict[str, Any] = {"path": str(Path(path).resolve())}
    if kind_of(path) is None:
        with open_regular(path) as stream:
            facts["file_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    return table.slice(0, rows), facts


def _files(path: str) -> list[Path]:
    if kind_of(path) != "a folder":
        return [Path(path)]
    check_folder(path)
    files = sorted(file for file in Path(path).iterdir() if file.suffix == ".parquet" and not file.name.startswith("."))
    if not 0 < len(files) <= _MOST_FILES:
        raise UserError(f"the folder holds {len(files):,} files NAME.parquet", key="dataset.path", value=path)
    return files


def _read(file: Path, rows: int | None) -> pa.Table:
    """The row groups that hold the first rows."""
    with open_regular(file) as stream:
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
