"""The one long table: every measurement of finished runs, a row each. `load` returns it, `report --export` writes it."""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.errors import UserError, shown
from vflbench.plain_files import written_whole
from vflbench.results.folder import METRICS, Unreadable, read_table
from vflbench.results.provenance import essential, flat, made_by
from vflbench.results.runs import Oddity, Run, entries
from vflbench.results.schema import COLUMNS as MEASURED
from vflbench.results.schema import MetricRow, level_of

if TYPE_CHECKING:
    import pyarrow

FACTS = (
    *("run", "experiment", "dataset", "data_digest", "version", "made_by", "setting", "seed"),
    *("adversary", "defense", "options", "failed"),
)
"""The columns that all rows of a run have in common."""
COLUMNS = (*FACTS, *MEASURED, "level", "infinite")
ENDINGS = (".jsonl", ".csv", ".parquet")
WHOLE_RUN = "run"
"""The split of a figure of the whole run, which its summary holds."""
_INT64 = 2**63
_FORMULA = r"^([=+@\t\r-])"
"""How a text begins that a spreadsheet would compute."""


def load(folder: str | os.PathLike[str], options: Sequence[str] = ()) -> "pyarrow.Table":
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
    if taken := [key for key in options if key in COLUMNS]:
        raise UserError("the table has another column of this name", key="options", value=",".join(taken))
    there = list(entries([root]))
    runs = [entry for entry in there if isinstance(entry, Run)]
    odd = [entry for entry in there if isinstance(entry, Oddity) and entry.kind == "unreadable"]
    table, unreadable = long_table(runs, [root], options)
    for one in (*odd, *unreadable):
        warnings.warn(f"{shown(one.path)} is left out: {one.reason}", stacklevel=2)
    if table is None:
        raise UserError("there is no finished run in or under it", key="folder", value=folder)
    return table


def long_table(
    runs: Iterable[Run], folders: Sequence[Path], options: Sequence[str] = ()
) -> tuple["pyarrow.Table | None", list[Oddity]]:
    """The table of these runs, sorted by run and place, and those whose metrics.csv can't be read. folders: where they lie.

    The same runs make the same table, wherever they lie. None if no run is left.
    """
    import pyarrow

    tables, odd, found = [], [], []
    runs = list(runs)
    for name, run in sorted(zip(run_names(runs, folders), runs, strict=True), key=lambda pair: pair[0]):
        try:
            rows = pyarrow.concat_tables([read_table(run.folder), _whole_run(run)])
        except (FileNotFoundError, Unreadable) as error:
            reason = error.problem if isinstance(error, Unreadable) else f"no {METRICS}"
            odd.append(Oddity("unreadable", run.folder, reason))
            continue
        found.append([run.option(key) for key in options])
        tables.append(_with_facts(rows, run, name))
    if not tables:
        return None, odd
    table = pyarrow.concat_tables(tables)
    for number, key in enumerate(options):
        values = [values[number] for values in found]
        kind = _option_type(values)
        if kind == pyarrow.string():
            values = [None if value is None else str(value) for value in values]
        of_rows = [pyarrow.repeat(pyarrow.scalar(v, kind), len(t)) for v, t in zip(values, tables, strict=True)]
        table = table.append_column(key, pyarrow.chunked_array(of_rows))
    return table, odd


def export(runs: Iterable[Run], folders: Sequence[Path], file: Path) -> tuple[int, list[Oddity]]:
    """Write the table as .jsonl, .csv or .parquet. Returns the number of rows, and runs that can't be read.

    Raises UserError if nothing is left, or if the file has another ending or can't be written.
    """
    if file.suffix not in ENDINGS:
        raise UserError(
            f"the file's name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}", key="--export", value=file
        )
    table, odd = long_table(runs, folders)
    if table is None:
        problem = "there is no finished run in or under it whose measurements can be read"
        raise UserError(problem, key="report", value=", ".join(map(str, folders)))
    try:
        with written_whole(file) as stream:
            _WRITERS[file.suffix](table, stream)
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="--export", value=file) from error
    return len(table), odd


def _write_lines(table: "pyarrow.Table", stream: Any) -> None:
    """JSON lines in ASCII; null where a number is infinite, as JSON has no infinity."""
    for batch in table.to_batches(10_000):
        for row in batch.to_pylist():
            finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
            stream.write(json.dumps(finite, allow_nan=False).encode() + b"\n")


def _write_csv(table: "pyarrow.Table", stream: Any) -> None:
    """null is an empty cell. What a spreadsheet would compute has an apostrophe before it."""
    import pyarrow
    from pyarrow import compute, csv

    for number, field in enumerate(table.schema):
        if field.type == pyarrow.string():
            safe = compute.replace_substring_regex(table.column(number), _FORMULA, r"'\1")
            table = table.set_column(number, field.name, safe)
    csv.write_csv(table, stream)


def _write_parquet(table: "pyarrow.Table", stream: Any) -> None:
    from pyarrow import parquet

    parquet.write_table(table, stream)


_WRITERS = {".jsonl": _write_lines, ".csv": _write_csv, ".parquet": _write_parquet}


def _with_facts(rows: "pyarrow.Table", run: Run, name: str) -> "pyarrow.Table":
    """All COLUMNS of a run, sorted by place."""
    import pyarrow
    from pyarrow import compute

    rows = rows.sort_by([(key, "ascending") for key in ("epoch", "split", "party", "layer", "message", "attack", "metric")])
    facts = facts_of(run, name)
    types = dict.fromkeys(FACTS, pyarrow.string()) | {"seed": pyarrow.int64()}
    columns = {key: pyarrow.repeat(pyarrow.scalar(facts[key], types[key]), len(rows)) for key in FACTS}
    columns |= {key: rows[key] for key in MEASURED}
    levels = {attack: level_of(attack, run.threats) for attack in rows["attack"].unique().to_pylist() if attack}
    of_rows = zip(rows["attack"].to_pylist(), rows["metric"].to_pylist(), strict=True)
    known = [None if metric.startswith("promised_") else levels.get(attack) for attack, metric in of_rows]
    signs = compute.if_else(compute.is_inf(rows["value"]), compute.sign(rows["value"]), None)
    columns |= {"level": pyarrow.array(known, pyarrow.string()), "infinite": signs.cast(pyarrow.int64())}
    return pyarrow.table(columns)


def facts_of(run: Run, name: str) -> dict[str, Any]:
    """FACTS -> value. name: of the run.

    options: all options that a result depends on, but for the seed, as a JSON object of dotted keys; infinite ones are texts
    in it. setting: s and 8 digits, equal for two runs that differ in nothing but the seed; with the letter, no reader of CSV
    takes 72e83572 for an infinite number.
    """
    manifest = run.manifest
    digest = (
        manifest.data.fingerprint
        or (manifest.data.model_extra or {}).get("file_sha256")
        or (manifest.source or {}).get("state")
    )
    config = {key: value for key, value in essential(run.config).items() if key != "seed"}
    leaves = {key: str(v) if isinstance(v, float) and math.isinf(v) else v for key, v in sorted(flat(config))}
    options = json.dumps(leaves, default=str)
    values = {
        "run": name,
        "experiment": run.experiment or None,
        "dataset": run.dataset,
        "data_digest": json.dumps(digest) if isinstance(digest, list | dict) else digest,
        "version": manifest.vflbench,
        "made_by": f"m{made_by(run)}",
        "setting": f"s{hashlib.sha256(f'{options} {made_by(run)} {run.dataset}'.encode()).hexdigest()[:8]}",
        "adversary": run.adversary,
        "defense": run.defense,
        "options": options,
        "failed": run.failed,
    }
    values = {key: v if v is None else shown(v, 1 << 20) for key, v in values.items()}
    return values | {"seed": run.seed if isinstance(run.seed, int) and abs(run.seed) < _INT64 else None}


def _whole_run(run: Run) -> "pyarrow.Table":
    """Figures that only the summary holds: seconds, promised ceilings, and what the worst attack of each level reads."""
    import pyarrow

    summary, epoch = run.summary, max(run.summary.epochs - 1, 0)
    rows = [MetricRow(epoch, WHOLE_RUN, metric="seconds", value=number(summary.seconds))]
    for defense, promise in summary.guarantees.items():
        for name in ("leak_auc_one_message", "leak_auc_all_messages") if promise else ():
            value = number(getattr(promise, name))
            rows.append(MetricRow(epoch, WHOLE_RUN, attack=defense, metric=f"promised_{name}", value=value))
    for one in summary.verdict.levels.values():
        place = (epoch, WHOLE_RUN, one.party, one.layer, one.message, one.attack)
        numbers = (number(one.value), number(one.low), number(one.high))
        rows.append(MetricRow(*place, f"worst_{one.figure.replace(' ', '_').lower()}", *numbers, visible=True))
    types = {"epoch": pyarrow.int64(), "visible": pyarrow.bool_()}
    types |= dict.fromkeys(("value", "ci_low", "ci_high"), pyarrow.float64())
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in MEASURED])
    plain = [{key: None if value in ("", None) or value != value else value for key, value in vars(r).items()} for r in rows]
    return pyarrow.Table.from_pylist(plain, schema)


def number(value: float | None) -> float:
    """nan in place of None."""
    return math.nan if value is None else value


def run_names(runs: Sequence[Run], folders: Sequence[Path]) -> list[str]:
    """The folder of each run, from the one that was named; from the shortest tails that tell several apart."""
    roots = list(dict.fromkeys(folder.resolve() for folder in folders))
    heads = dict.fromkeys(roots, "")
    depth = 1
    while len(roots) > 1 and (depth == 1 or len(set(heads.values())) < len(roots)):
        heads = {root: "/".join(root.parts[-depth:]) for root in roots}
        depth += 1
    return [_name(run.folder, heads) for run in runs]


def _name(folder: Path, heads: Mapping[Path, str]) -> str:
    root = max((root for root in heads if folder.is_relative_to(root)), key=lambda root: len(root.parts))
    tail = folder.name if folder == root else folder.relative_to(root).as_posix()
    name = "/".join(filter(None, [heads[root] if folder != root else "", tail]))
    return os.fsencode(name).decode(errors="backslashreplace")


def _option_type(values: Sequence[Any]) -> "pyarrow.DataType":
    """The narrowest of bool, int64, float64 and string that holds all of them."""
    import pyarrow

    kinds = {type(value) for value in values if value is not None}
    if int in kinds and any(isinstance(value, int) and abs(value) >= _INT64 for value in values):
        return pyarrow.string()
    if kinds == {bool}:
        return pyarrow.bool_()
    if kinds == {int}:
        return pyarrow.int64()
    return pyarrow.float64() if kinds and kinds <= {int, float} else pyarrow.string()
