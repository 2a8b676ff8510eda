"""The measurements of finished runs as one file that others can load: JSON lines, CSV or Parquet.

A line is a measurement: what was run, where it was measured, and the number. Every line has all COLUMNS in their order, each
of one type, and null where a column does not apply. Lines are sorted by run, and within a run by where they were measured,
so the same runs make the same bytes wherever they lie and whenever they are read.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vflbench.results import quantity
from vflbench.results.levels import level_of
from vflbench.results.provenance import essential, made_by
from vflbench.results.read import read_metrics
from vflbench.results.rows import Row
from vflbench.results.runs import Run
from vflbench.results.untrusted import shown

FACTS = (
    *("run", "experiment", "dataset", "data_digest", "version", "made_by", "setting", "seed"),
    *("adversary", "defense", "options"),
)
"""The columns that all lines of a run have in common."""
MEASURED = (
    *("epoch", "split", "party", "layer", "visible", "message", "attack", "level", "metric"),
    *("value", "infinite", "ci_low", "ci_high"),
)
COLUMNS = (*FACTS, *MEASURED)
TYPES = dict.fromkeys(COLUMNS, str) | {
    **dict.fromkeys(("seed", "epoch", "infinite"), int),
    **dict.fromkeys(("value", "ci_low", "ci_high"), float),
    "visible": bool,
}
WHOLE_RUN = "run"
"""The split of a figure of the whole run, which its summary holds."""
_PROMISES = ("leak_auc_one_message", "leak_auc_all_messages")
_INT64 = 2**63
_MOST_TEXT = 20_000  # characters


def facts_of(run: Run, name: str) -> dict[str, Any]:
    """FACTS -> value. name: that of its folder.

    options: all options that a result depends on, but for the seed, as a JSON object of dotted keys in a text; infinite ones
    are texts in it. setting: s and 8 digits, equal for two runs that differ in nothing but the seed; with
    the letter, no reader of CSV takes 72e83572 for an infinite number.
    """
    manifest = run.manifest
    data = manifest.get("data") or {}
    source = manifest.get("source") if run.is_audit else None
    digest = data.get("fingerprint") or data.get("file_sha256") or (source or {}).get("state")
    options = json.dumps(_strict(dict(sorted(_flat(_without_seed(run.config)).items()))), allow_nan=False)
    values = {
        "run": name,
        "experiment": run.experiment or None,
        "dataset": run.dataset,
        "data_digest": digest if isinstance(digest, str) else json.dumps(digest) if digest else None,
        "version": manifest.get("vflbench"),
        "made_by": f"m{made_by(run)}",
        "setting": f"s{hashlib.sha256(f'{options} {made_by(run)} {run.dataset}'.encode()).hexdigest()[:8]}",
        "seed": run.seed if isinstance(run.seed, int) and abs(run.seed) < _INT64 else None,
        "adversary": run.adversary,
        "defense": run.defense,
    }
    return {key: shown(v, _MOST_TEXT) if isinstance(v, str) else v for key, v in values.items()} | {"options": options}


def measured(run: Run) -> list[dict[str, Any]]:
    """MEASURED -> value, for each row of metrics.csv and each figure of the whole run, sorted. Raises Unreadable."""
    rows = [*read_metrics(run.folder), *of_whole_run(run)]
    return [_cells(row, run) for row in sorted(rows, key=_place)]


def of_whole_run(run: Run) -> Iterator[Row]:
    """Figures that only the summary holds: seconds, promised ceilings, and what the worst attack of each level reads."""
    epochs = run.summary.get("epochs")
    last = Row(max(int(epochs) - 1, 0) if epochs else 0, WHOLE_RUN)
    yield replace(last, metric="seconds", value=quantity.number(run.summary.get("seconds")))
    for defense, promise in (run.summary.get("guarantees") or {}).items():
        for name in _PROMISES if promise else ():
            yield replace(last, attack=str(defense), metric=f"promised_{name}", value=quantity.number(promise.get(name)))
    for reading in ((run.summary.get("verdict") or {}).get("levels") or {}).values():
        yield Row(
            last.epoch,
            WHOLE_RUN,
            party=str(reading["party"]),
            layer=str(reading["layer"]),
            message=str(reading["message"]),
            attack=str(reading["attack"]),
            metric=f"worst_{str(reading['figure']).replace(' ', '_').lower()}",
            value=quantity.number(reading["value"]),
            ci_low=quantity.number(reading.get("low")),
            ci_high=quantity.number(reading.get("high")),
            visible=True,
        )


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
    root = max((root for root in heads if folder.is_relative_to(root)), key=lambda root: len(root.parts), default=None)
    tail = folder.name if root is None or folder == root else folder.relative_to(root).as_posix()
    name = "/".join(filter(None, [heads.get(root, "") if root is not None and folder != root else "", tail]))
    return os.fsencode(name).decode(errors="backslashreplace")


def _cells(row: Row, run: Run) -> dict[str, Any]:
    texts = {
        name: shown(value, _MOST_TEXT) or None
        for name in ("split", "party", "layer", "message", "attack", "metric")
        for value in [getattr(row, name)]
    }
    is_attack = row.attack and not row.metric.startswith("promised_")
    return {
        "epoch": row.epoch,
        **{name: texts[name] for name in ("split", "party", "layer")},
        "visible": row.visible,
        **{name: texts[name] for name in ("message", "attack")},
        "level": shown(level_of(row.attack, run.threats), _MOST_TEXT) if is_attack else None,
        "metric": texts["metric"],
        "value": _finite(row.value),
        "infinite": int(math.copysign(1, row.value)) if math.isinf(row.value) else None,
        "ci_low": _finite(row.ci_low),
        "ci_high": _finite(row.ci_high),
    }


def _place(row: Row) -> tuple[Any, ...]:
    """What rows of a run are sorted by; rows of one place stay as metrics.csv has them."""
    return row.epoch, row.split, row.party, row.layer, row.message, row.attack, row.metric


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in essential(config).items() if key != "seed"}


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return leaves


def _strict(value: Any) -> Any:
    """The same with a text for an infinite number, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _strict(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_strict(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines(facts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """JSON lines of a run, in ASCII."""
    head = json.dumps(dict(facts), allow_nan=False)[:-1]
    for row in rows:
        yield f"{head}, {json.dumps(row, allow_nan=False)[1:]}\n"
