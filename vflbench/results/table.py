"""The one long table: every measurement, a row each. `load` returns it, `report --export` writes it."""

import io
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, csv, parquet

from vflbench.errors import UserError
from vflbench.files import written_whole
from vflbench.results import folder as files
from vflbench.results.folder import Unreadable, cleaned
from vflbench.results.runs import Oddity, Run, entries, short_hash
from vflbench.results.schema import COLUMNS as MEASURED
from vflbench.results.schema import MetricRow, level_of

_FACTS = (
    *("run", "experiment", "dataset", "data_digest", "version", "made_by", "setting", "seed"),
    *("adversary", "defense", "options", "failed"),
)
"""The columns that all rows of a run have in common."""
TABLE_COLUMNS = (*_FACTS, *MEASURED, "level", "infinite")
ENDINGS = (".jsonl", ".csv", ".parquet")
_TYPES = {
    **dict.fromkeys(("value", "ci_low", "ci_high"), pa.float64()),
    **dict.fromkeys(("epoch", "seed", "infinite"), pa.int64()),
    "visible": pa.bool_(),
}
"""Of the columns that hold no text."""
_SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in TABLE_COLUMNS])
_ORDER = ("epoch", "split", "party", "layer", "message", "attack", "metric")
"""By which rows of a run are sorted."""


def read_table(folder: Path) -> pa.Table:
    """metrics.csv in the order in which it was written, with the types of `MetricRow`; null in place of an empty cell."""
    path = folder / files.METRICS
    how = {"column_types": _SCHEMA, "include_columns": MEASURED, "null_values": [""], "strings_can_be_null": True}
    convert, parse = csv.ConvertOptions(**how), csv.ParseOptions(newlines_in_values=True)
    try:
        table = csv.read_csv(io.BytesIO(files.read_bytes(path)), csv.ReadOptions(use_threads=False), parse, convert)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise error if isinstance(error, Unreadable) else Unreadable(path, error) from error
    if any(table[name].null_count for name in ("epoch", "split", "metric")):
        raise Unreadable(path, "a row of it has no epoch, split or metric")
    for number, column in enumerate(table.schema):
        if column.type == pa.string():
            coded = table[number].combine_chunks().dictionary_encode()
            texts = pa.array(map(cleaned, coded.dictionary.to_pylist()), pa.string())
            table = table.set_column(number, column, texts.take(coded.indices))
    return table


def read_metrics(folder: Path) -> list[MetricRow]:
    """All rows of metrics.csv, in the order in which they were written."""
    rows = read_table(folder).to_pylist()
    return [MetricRow(**{key: value for key, value in row.items() if value is not None}) for row in rows]


def load(folder: str | os.PathLike[str], options: Sequence[str] = ()) -> pa.Table:
    """The measurements of every finished run in or under a folder, one row each: an Arrow table.

        import pyarrow.compute as pc
        from vflbench import load

        table = load("outputs", options=["defense.marvell.sumkl"])
        norm = table.filter((pc.field("attack") == "norm") & (pc.field("metric") == "leak_auc_two_sided"))
        norm.group_by(["setting", "defense.marvell.sumkl", "layer"]).aggregate([("value", "mean")]).to_pylist()

    The page docs/reference/results.md describes its columns (COLUMNS here). What does not apply is null. options: dotted
    keys of config.yaml, each of which becomes a column; null in runs without that option.

    Unfinished runs are left out, and with a warning those that can't be read. So is the honest run that a run with an
    adversary keeps. Raises UserError if there is no finished run.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UserError("there is no such folder", key="folder", value=folder)
    if taken := [key for key in options if key in TABLE_COLUMNS]:
        raise UserError("the table has another column of this name", key="options", value=",".join(taken))
    there = list(entries([root]))
    table, unreadable = long_table([entry for entry in there if isinstance(entry, Run)], [root], options)
    for one in (*there, *unreadable):
        if isinstance(one, Oddity) and one.kind == "unreadable":
            warnings.warn(f"{cleaned(one.path)} is left out: {one.reason}", stacklevel=2)
    if not len(table):
        raise UserError("there is no finished run in or under it", key="folder", value=folder)
    return table


def long_table(runs: Sequence[Run], folders: Sequence[Path], options: Sequence[str] = ()) -> tuple[pa.Table, list[Oddity]]:
    """The table of these runs, sorted by run and place, and those whose metrics.csv can't be read. folders: where they lie.

    The same runs make the same table, wherever they lie.
    """
    import pandas  # late: it takes half a second to import, and a run's own words do without

    names, columns = run_names(runs, folders), {key: _option([run.option(key) for run in runs]) for key in options}
    schema = pa.schema([*_SCHEMA, *((key, column.type) for key, column in columns.items())])
    tables, odd = [schema.empty_table()], []
    for number in sorted(range(len(runs)), key=names.__getitem__):
        run, threats = runs[number], runs[number].manifest.threats
        try:
            measured = read_table(run.folder).to_pandas()
        except (FileNotFoundError, Unreadable) as error:
            odd.append(Oddity("unreadable", run.folder, getattr(error, "problem", f"no {files.METRICS}")))
            continue
        levels = {attack: level_of(attack, threats) for attack in measured["attack"].dropna().unique()}
        parts = [measured.assign(level=measured["attack"].map(levels)), pandas.DataFrame(_of_summary(run))]
        facts = _facts_of(run, names[number]) | {key: column[number].as_py() for key, column in columns.items()}
        rows = pandas.concat(parts).sort_values([*_ORDER]).assign(**facts, infinite=None)
        tables.append(pa.Table.from_pandas(rows, schema, preserve_index=False))
    table = pa.concat_tables(tables).replace_schema_metadata()
    signs = compute.if_else(compute.is_inf(table["value"]), compute.sign(table["value"]), None)
    return table.set_column(TABLE_COLUMNS.index("infinite"), "infinite", signs.cast(pa.int64())), odd


def run_names(runs: Sequence[Run], folders: Sequence[Path]) -> list[str]:
    """The folder of each run, from the one that was named, or from the one in which all that were named lie."""
    top = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    names = [run.folder.name if run.folder == top else run.folder.relative_to(top).as_posix() for run in runs]
    return [os.fsencode(name).decode(errors="backslashreplace") for name in names]


def _option(values: Sequence[Any]) -> pa.Array:
    """The values of an option as bool, int64, float64 or, where none of these holds all of them, as texts."""
    texts = [None if value is None else str(value) for value in values]
    plain = [value if isinstance(value, bool | int | float) else text for value, text in zip(values, texts, strict=True)]
    try:
        column = pa.array(plain)
    except (pa.ArrowException, OverflowError):
        column = pa.array(texts)
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _facts_of(run: Run, name: str) -> dict[str, Any]:
    """FACTS -> value. name: of the run.

    options: all options that a result depends on, but for the seed, as a JSON object of dotted keys; infinite ones are texts
    in it. setting: s and 8 digits, equal for two runs that differ in nothing but the seed; with the letter, no reader of CSV
    takes 72e83572 for an infinite number.
    """
    data, source = run.manifest.data, run.manifest.source or {}
    content = data.fingerprint or (data.model_extra or {}).get("file_sha256") or source.get("state")
    leaves = {key: value for key, value in files.flat(files.essential(run.config)) if key != "seed"}
    infinite = {key: str(value) for key, value in leaves.items() if isinstance(value, float) and math.isinf(value)}
    options = json.dumps(leaves | infinite, sort_keys=True, default=str)
    values = {
        "run": name,
        "experiment": run.experiment or None,
        "dataset": run.dataset,
        "data_digest": json.dumps(content) if isinstance(content, list | dict) else content or None,
        "version": run.manifest.vflbench,
        "made_by": f"m{run.made_by}",
        "setting": f"s{short_hash([options, run.made_by, run.dataset])}",
        "adversary": run.adversary,
        "defense": run.defense,
        "options": options,
        "failed": run.summary.failed,
    }
    values = {key: text if text is None else cleaned(text, 1 << 20) for key, text in values.items()}
    return values | {"seed": run.seed if run.seed is not None and abs(run.seed) < 2**63 else None}


def _of_summary(run: Run) -> Iterator[dict[str, Any]]:
    """Of the whole run: seconds, promised ceilings, and what the worst attack of each level reads."""
    whole = {"epoch": max(run.summary.epochs - 1, 0), "split": "run"}
    yield whole | {"metric": "seconds", "value": run.summary.seconds}
    for defense, promise in run.summary.guarantees.items():
        for name in ("leak_auc_one_message", "leak_auc_all_messages") if promise else ():
            yield whole | {"attack": defense, "metric": f"promised_{name}", "value": getattr(promise, name)}
    for level, one in run.summary.verdict.levels.items():
        place = {key: getattr(one, key) or None for key in ("party", "layer", "message", "attack")} | {"visible": True}
        figure = {"metric": f"worst_{one.figure.replace(' ', '_').lower()}", "value": one.value}
        yield whole | place | figure | {"level": level, "ci_low": one.low, "ci_high": one.high}


def export(runs: Sequence[Run], folders: Sequence[Path], file: Path) -> tuple[int, list[Oddity]]:
    """Write the table as .jsonl, .csv or .parquet. Returns the number of rows, and runs that can't be read.

    Raises UserError if nothing is left, or if the file has another ending or can't be written.
    """
    if file.suffix not in ENDINGS:
        raise UserError("the file's name must end in .jsonl, .csv or .parquet", key="--export", value=file)
    table, odd = long_table(runs, folders)
    if not len(table):
        problem = "there is no finished run in or under it whose measurements can be read"
        raise UserError(problem, key=f"vflbench report {' '.join(map(str, folders))}")
    try:
        with written_whole(file) as stream:
            if file.suffix == ".parquet":
                parquet.write_table(table, stream)
            elif file.suffix == ".csv":
                for place, column in enumerate(table.schema):
                    if column.type == pa.string():  # an apostrophe goes before what a spreadsheet would compute
                        texts = compute.replace_substring_regex(table[place], r"^([=+@\t\r-])", r"'\1")
                        table = table.set_column(place, column, texts)
                csv.write_csv(table, stream)
            else:
                for batch in table.to_batches(10_000):
                    stream.writelines(map(_line, batch.to_pylist()))
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="--export", value=file) from error
    return len(table), odd


def _line(row: Mapping[str, Any]) -> bytes:
    """JSON in ASCII; null where a number is infinite, as JSON has no infinity."""
    finite = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
    return json.dumps(finite, allow_nan=False).encode() + b"\n"
