"""All measurements of many runs as one Arrow table."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.errors import UserError, shown
from vflbench.results.files import METRICS
from vflbench.results.levels import level_of
from vflbench.results.provenance import made_by
from vflbench.results.read import read_table
from vflbench.results.runs import Run, entries
from vflbench.results.schema import COLUMNS
from vflbench.results.untrusted import Unreadable

if TYPE_CHECKING:
    import pyarrow

_INT64 = 2**63


def load(folder: str | os.PathLike[str], options: Sequence[str] = ()) -> "pyarrow.Table":
    """The measurements of every finished run in or under a folder, one row each.

        import pyarrow.compute as pc
        from vflbench.results import load

        table = load("outputs", options=["defense.marvell.sumkl"])
        norm = table.filter((pc.field("attack") == "norm") & (pc.field("metric") == "leak_auc_two_sided"))
        norm.group_by(["made_by", "defense.marvell.sumkl", "layer"]).aggregate([("value", "mean")]).to_pylist()

    run: the run's folder, relative to `folder`. experiment, dataset, defense, adversary: what was chosen; several defenses
    are joined by +, and a run without defense or adversary has `none`. seed. made_by: 8 digits, equal for two runs if the
    same code, plug-ins, data and device made them: average only over runs of one. failed: why a run counts as failed
    although it came to its end. level: what the attack of the row knows (`vflbench.results.levels`). The other columns are
    those of metrics.csv (`vflbench.results.rows.Row`). What does not apply is null.

    options: dotted keys of config.yaml, each of which becomes a column; null in runs without that option.

    Half-written runs are left out, as in a report, and with a warning those that can't be read. So is the honest run that
    a run with an adversary keeps.
    Raises UserError if there is no finished run.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UserError("there is no such folder", key="folder", value=folder)
    taken = [key for key in options if key in ("run", "failed", "level", "made_by", *COLUMNS)]
    if taken:
        raise UserError("the table has another column of this name", key="options", value=",".join(taken))
    runs, tables = [], []
    for run in entries([root]):
        if not isinstance(run, Run):
            if run.kind == "unreadable":
                warnings.warn(f"{shown(run.path)} is left out: {run.reason}", stacklevel=2)
            continue
        try:
            tables.append(read_table(run.folder))
        except (FileNotFoundError, Unreadable) as error:
            reason = error.problem if isinstance(error, Unreadable) else f"no {METRICS}"
            warnings.warn(f"{shown(run.folder)} is left out: {reason}", stacklevel=2)
            continue
        runs.append(run)
    if not runs:
        raise UserError("there is no finished run in or under it", key="folder", value=folder)

    import pyarrow

    facts = [_facts(run, root.resolve()) | {key: run.option(key) for key in options} for run in runs]
    types = {name: pyarrow.string() for name in facts[0]} | {"seed": pyarrow.int64()}
    for key in options:
        types[key] = _option_type([values[key] for values in facts])
        if types[key] == pyarrow.string():
            facts = [values | {key: None if values[key] is None else str(values[key])} for values in facts]
    wide = []
    for run, values, table in zip(runs, facts, tables, strict=True):
        columns = {name: pyarrow.repeat(pyarrow.scalar(v, types[name]), len(table)) for name, v in values.items()}
        levels = [level_of(attack, run.threats) if attack else None for attack in table["attack"].to_pylist()]
        columns["level"] = pyarrow.array(levels, pyarrow.string())
        wide.append(pyarrow.table({**columns, **{name: table[name] for name in COLUMNS}}))
    return pyarrow.concat_tables(wide)


def _facts(run: Run, root: Path) -> dict[str, Any]:
    return {
        "run": os.fsencode(run.folder.relative_to(root).as_posix()).decode(errors="backslashreplace"),
        "experiment": run.experiment or None,
        "dataset": run.dataset,
        "defense": run.defense,
        "adversary": run.adversary,
        "seed": run.seed if isinstance(run.seed, int) and abs(run.seed) < _INT64 else None,
        "made_by": made_by(run),
        "failed": run.failed,
    }


def _option_type(values: Sequence[Any]) -> Any:
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
