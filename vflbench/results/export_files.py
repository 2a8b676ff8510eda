"""Writes an export (`vflbench.results.export`) as .jsonl, .csv or .parquet."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.plain_files import written_whole
from vflbench.results.export import COLUMNS, FACTS, MEASURED, TYPES, facts_of, lines, measured, run_names
from vflbench.results.runs import Oddity, Run
from vflbench.results.table_formats import csv_text
from vflbench.results.tree import Tree
from vflbench.results.untrusted import Unreadable

ENDINGS = (".jsonl", ".csv", ".parquet")
_Measured = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]


def write_export(tree: Tree, folders: Sequence[Path], file: Path) -> int:
    """Write the measurements of the tree's runs and return the number of lines. folders: those that it was read from.

    Runs whose measurements can't be read are moved to the odd ones. Raises UserError if nothing is left, or if the file has
    another ending or can't be written.
    """
    if file.suffix not in ENDINGS:
        raise UserError(
            f"the file's name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}", key="--export", value=file
        )
    unreadable: list[tuple[Run, Unreadable | FileNotFoundError]] = []
    try:
        count = _WRITERS[file.suffix](_of_runs(tree.runs, folders, unreadable), file)
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="--export", value=file) from error
    bad = {id(run) for run, _ in unreadable}
    tree.runs = [run for run in tree.runs if id(run) not in bad]
    tree.odd += [Oddity("unreadable", run.folder, _reason(error)) for run, error in unreadable]
    return count


def _of_runs(runs: Sequence[Run], folders: Sequence[Path], unreadable: list[tuple[Run, Any]]) -> Iterator[_Measured]:
    """Run by run, in the order of their names. Raises UserError after the last if there was none."""
    is_there = False
    for name, run in sorted(zip(run_names(runs, folders), runs, strict=True), key=lambda pair: pair[0]):
        try:
            rows = measured(run)
        except (Unreadable, FileNotFoundError) as error:
            unreadable.append((run, error))
            continue
        is_there = True
        yield facts_of(run, name), rows
    if not is_there:
        problem = "there is no finished run in or under it whose measurements can be read"
        raise UserError(problem, key="report", value=", ".join(map(str, folders)))


def _reason(error: Unreadable | FileNotFoundError) -> str:
    return error.problem if isinstance(error, Unreadable) else "no metrics.csv"


def _write_lines(runs: Iterator[_Measured], file: Path) -> int:
    count = 0
    with written_whole(file, "w", encoding="ascii", newline="\n") as stream:
        for facts, rows in runs:
            stream.writelines(lines(facts, rows))
            count += len(rows)
    return count


def _write_csv(runs: Iterator[_Measured], file: Path) -> int:
    """null is an empty cell. What a spreadsheet would compute has an apostrophe before it."""
    count = 0
    with written_whole(file, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for facts, rows in runs:
            head = [_cell(facts[name]) for name in FACTS]
            writer.writerows([*head, *(_cell(row[name]) for name in MEASURED)] for row in rows)
            count += len(rows)
    return count


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else csv_text(value) if isinstance(value, str) else value


def _write_parquet(runs: Iterator[_Measured], file: Path) -> int:
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[TYPES[name]]) for name in COLUMNS])
    tables = []
    for facts, rows in runs:
        columns = [pyarrow.repeat(pyarrow.scalar(facts[name], schema.field(name).type), len(rows)) for name in FACTS]
        columns += [pyarrow.array([row[name] for row in rows], schema.field(name).type) for name in MEASURED]
        tables.append(pyarrow.Table.from_arrays(columns, schema=schema))
    table = pyarrow.concat_tables(tables)
    with written_whole(file) as stream:
        parquet.write_table(table, stream)
    return len(table)


_WRITERS = {".jsonl": _write_lines, ".csv": _write_csv, ".parquet": _write_parquet}
