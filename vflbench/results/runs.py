"""Finished runs as values, the folders in which they lie, what else lies there, and the one long table: every measurement, a
row each. `load` returns it, `report --export` writes it.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflbench.errors import UserError
from vflbench.plain_files import written_whole
from vflbench.results.folder import (
    CONFIG,
    HONEST,
    LOCK,
    MARKS,
    METRICS,
    PAGE_MARK,
    RECORDING,
    SUMMARY,
    Unreadable,
    digest,
    edited_files,
    essential,
    flat,
    format_of,
    named,
    read_config,
    read_error,
    read_head,
    read_manifest,
    read_metrics,
    read_summary,
    read_table,
    shown,
)
from vflbench.results.schema import COLUMNS as MEASURED
from vflbench.results.schema import Cheat, Manifest, MetricRow, Summary, Threat, level_of
from vflbench.results.terminal import path_text

if TYPE_CHECKING:
    import pyarrow

_LABEL_PARTY = "label"


@dataclass(frozen=True)
class Layers:
    """order: all layers, input to output. cut: party -> the layers that cross, the cut layer first."""

    order: tuple[str, ...]
    cut: Mapping[str, tuple[str, ...]]

    @property
    def crossing(self) -> frozenset[str]:
        """The layers that cross at any party."""
        return frozenset(layer for layers in self.cut.values() for layer in layers)

    @property
    def bottom(self) -> tuple[str, ...]:
        """The layers up to the last one that crosses."""
        places = [place for place, layer in enumerate(self.order) if layer in self.crossing]
        return self.order[: places[-1] + 1] if places else ()

    def crosses(self, party: str, layer: str) -> bool:
        """Whether this layer of this party crosses; if no cut layer of the party is known, whether any party's does."""
        return layer in self.cut.get(party, self.crossing)


def layers_of(manifest: Manifest, measured: Iterable[tuple[str, str]] = ()) -> Layers:
    """Those of the manifest, the label party's last; then what else was measured: (party, layer) of leaks."""
    cut = {party: tuple(layers) for party, layers in manifest.cut_layers.items()}
    parties = sorted(manifest.layers, key=_LABEL_PARTY.__eq__)
    order = [layer for party in parties for layer in (*manifest.layers[party], *cut.get(party, ()))]
    return Layers(tuple(dict.fromkeys([*order, *(layer for _, layer in measured)])), cut)


AS_RECORDED = "as recorded"
MOST_FOLDERS = 50
"""Folders within each other in which runs are looked for."""
_IGNORED = {LOCK, "multirun.yaml", ".gitignore", ".DS_Store"}


@dataclass(frozen=True)
class Run:
    """A finished run. config: its options. summary, manifest: the files of these names.

    honest: of a run with an adversary, the same run without it, if its folder can be read.
    """

    folder: Path
    config: Mapping[str, Any]
    summary: Summary
    manifest: Manifest = field(default_factory=Manifest)
    honest: "Run | None" = None

    @cached_property
    def rows(self) -> list[MetricRow]:
        """All rows of metrics.csv. Raises FileNotFoundError and Unreadable."""
        return read_metrics(self.folder)

    def option(self, key: str) -> Any:
        """The value of a dotted key; None if this run has no such option."""
        node: Any = self.config
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return None
            node = node[part]
        return node

    @property
    def is_audit(self) -> bool:
        """Whether it is an audit of recorded messages, by `vflbench audit`: nothing was trained."""
        return self.manifest.kind == "audit"

    @property
    def seed(self) -> Any:
        """Of an audit that was given none, that of the recorded run."""
        seed = self.config.get("seed")
        return self.manifest.seed if seed is None and self.is_audit else seed

    @property
    def dataset(self) -> str:
        """The chosen entry of configs/dataset, else the name of its class; of an audit, where its recording lies."""
        if self.is_audit:
            path = str((self.manifest.source or {}).get("path", ""))
            return f"recording {'/'.join(Path(path).parts[-2:])}"
        target = str((self.config.get("dataset") or {}).get("_target_", "data"))
        return str(self.manifest.choices.get("dataset") or target.rsplit(".", 1)[-1].lower())

    @property
    def experiment(self) -> str:
        """The chosen entry of configs/experiment, or empty."""
        return str(self.manifest.choices.get("experiment") or "")

    @property
    def defense(self) -> str:
        """The names of its defenses, joined by +, or none. Of an audit, nobody knows: `as recorded`."""
        if self.is_audit:
            return AS_RECORDED
        return "+".join(self.config.get("defense") or {}) or "none"

    @property
    def adversary(self) -> str:
        """The names of its adversaries, joined by +, or none."""
        return "+".join(self.adversaries) or "none"

    @property
    def failed(self) -> str | None:
        """Why it counts as failed although it came to its end; None for a run that counts."""
        return self.summary.failed

    @cached_property
    def layers(self) -> Layers:
        """The layers of its network."""
        places = [(leak.party, leak.layer) for leak in self.summary.leaks if leak.message != "none"]
        return layers_of(self.manifest, places)

    @property
    def threats(self) -> Mapping[str, Threat]:
        """Attack -> who attacks, and what it knows and does."""
        return self.manifest.threats

    @property
    def adversaries(self) -> Mapping[str, Cheat]:
        """Adversary -> the party that deviates from the protocol, and how. Empty for an honest run."""
        return self.manifest.adversary

    @property
    def skipped(self) -> Mapping[str, str]:
        """Attack -> why it did not run."""
        return {**self.summary.skipped, **self.manifest.skipped}

    @property
    def unscored(self) -> Mapping[str, str]:
        """Attack -> why none of its answers could be scored."""
        return {**self.summary.unscored, **self.manifest.unscored}

    @property
    def quantities(self) -> Sequence[str]:
        """The names of what it measures."""
        return self.manifest.quantities


@dataclass(frozen=True)
class Oddity:
    """A folder or file that is not a finished run. kind: failed | half-written | unreadable | repeated | recording |
    foreign.

    reason: printable, in a line.
    """

    kind: str
    path: Path
    reason: str


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Every finished run in or under these folders, in the order of their names; unreadable ones are left out."""
    return [entry for entry in entries(folders) if isinstance(entry, Run)]


def entries(folders: Sequence[Path]) -> Iterator[Run | Oddity]:
    """All runs and other files in or under these folders, each once, in the order of their names. Reports are left out."""
    visited: set[Path] = set()
    for folder in dict.fromkeys(path.resolve() for path in folders):
        for place, files in _walk(folder):
            if place in visited:
                continue
            visited.add(place)
            if not _is_run(place, files):
                yield from (Oddity("foreign", place / f, "no file of a run") for f in files if f not in _IGNORED)
            else:
                yield read_run(place)


def run_folders(folder: Path) -> Iterator[Path]:
    """The folders of runs in or under this one, in the order of their names, of which no file is read."""
    yield from (place for place, files in _walk(folder) if _is_run(place, files))


def read_run(folder: Path) -> Run | Oddity:
    """The finished run in that folder, or why there is none."""
    try:
        if not os.path.lexists(folder / SUMMARY):
            reason = read_error(folder)
            if reason is not None:
                return Oddity("failed", folder, reason)
            if is_recording(folder):
                return Oddity("recording", folder, "recorded messages, which vflbench audit reads")
            problem = f"no {SUMMARY}: the run has not finished, or was stopped; the same command continues it"
            return Oddity("half-written", folder, problem)
        manifest, summary, config = read_manifest(folder), read_summary(folder), read_config(folder)
    except FileNotFoundError as error:
        return Oddity("half-written", folder, f"no {Path(str(error.filename)).name}")
    except Unreadable as error:
        return Oddity("unreadable", folder, error.problem)
    honest = None if not manifest.adversary or (folder / HONEST).is_symlink() else read_run(folder / HONEST)
    return Run(folder, config, summary, manifest, honest if isinstance(honest, Run) else None)


def is_recording(folder: Path) -> bool:
    """Whether it holds recorded messages, and no run."""
    with suppress(OSError, Unreadable):
        return not os.path.lexists(folder / SUMMARY) and format_of(folder).startswith(RECORDING)
    return False


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    top = len(folder.parts)
    for place, folders, files in os.walk(folder):
        if len(Path(place).parts) - top >= MOST_FOLDERS:
            folders[:] = []
        if _is_report(Path(place), files):
            files = [f for f in files if f in MARKS]
            folders[:] = [f for f in folders if f not in ("tables", "figures")]
        if _is_run(Path(place), files):
            # what a run keeps for itself, its honest run included; a config alone may have come with runs of others
            folders[:] = [f for f in folders if f != HONEST] if MARKS.intersection(files) == {CONFIG} else []
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield Path(place), sorted(files)


def _is_run(place: Path, files: Sequence[str]) -> bool:
    """Whether a folder belongs to a run. One with an adversary does its honest run first, before it writes its own files."""
    return not MARKS.isdisjoint(files) or (LOCK in files and (place / HONEST).is_dir())


def _is_report(place: Path, files: Sequence[str]) -> bool:
    for name in files:
        if name.endswith(".html"):
            with suppress(OSError, Unreadable):
                if PAGE_MARK in read_head(place / name, 400):
                    return True
    return False


MANY_RUNS = 200
"""So many runs are taken without a question only from folders of outputs."""
_LEFT_OUT = {
    "failed": "failed",
    "half-written": "unfinished",
    "unreadable": "unreadable",
    "repeated": "repeated",
}
"""Kind of what is left out -> the word for it in a sentence."""


@dataclass
class Tree:
    """runs: finished runs; each configuration counts once per experiment. odd: everything else."""

    runs: list[Run] = field(default_factory=list)
    odd: list[Oddity] = field(default_factory=list)

    def set_aside(self, odd: Sequence[Oddity]) -> None:
        """Count these runs among the odd ones."""
        bad = {one.path for one in odd}
        self.runs = [run for run in self.runs if run.folder not in bad]
        self.odd += odd

    def of_kind(self, kind: str) -> list[Oddity]:
        return [oddity for oddity in self.odd if oddity.kind == kind]

    def counts(self) -> str:
        """`27 runs taken; left out: 1 failed, 2 unfinished`."""
        taken = f"{len(self.runs):,} run{'s' * (len(self.runs) != 1)} taken"
        left = [f"{len(these):,} {word}" for kind, word in _LEFT_OUT.items() if (these := self.of_kind(kind))]
        if recordings := self.of_kind("recording"):
            left.append(f"{len(recordings):,} recording{'s' * (len(recordings) != 1)}")
        return f"{taken}; left out: {', '.join(left)}" if left else taken

    def left_out(self, most: int = 3) -> list[str]:
        """Lines that name the first of what `counts` leaves out."""
        words = {**_LEFT_OUT, "recording": "recording, for vflbench audit"}
        these = [oddity for kind in words for oddity in self.of_kind(kind)]
        lines = [f"  {path_text(oddity.path)} ({words[oddity.kind]})" for oddity in these[:most]]
        return [*lines, *([f"  and {len(these) - most:,} more"] if len(these) > most else [])]


def read_tree(folders: Sequence[Path]) -> Tree:
    """Everything in or under these folders, in the order of names; reports made before are left out.

    Two experiments may hold the same run: it counts in both.
    """
    tree = Tree()
    first: dict[tuple[str, str, str], Path] = {}
    for entry in entries(folders):
        if isinstance(entry, Oddity):
            tree.odd.append(entry)
            continue
        key = (digest(entry.config), str(origin(entry)), entry.experiment)
        earlier = first.setdefault(key, entry.folder)
        if earlier != entry.folder:
            reason = f"the same configuration, seed and code as {earlier}, counted once"
            tree.odd.append(Oddity("repeated", entry.folder, reason))
        elif entry.failed:
            tree.odd.append(Oddity("failed", entry.folder, entry.failed))
        else:
            tree.runs.append(entry)
    return tree


def strangers(folders: Iterable[Path]) -> dict[Path, int]:
    """Folder -> number of runs under it, of those folders that are no outputs tree.

    An outputs tree has its runs right in it or in folders right in it; in the latter case nothing else lies in it but
    reports, logs (*.log) and hidden files: `.` in a project with an `outputs` folder is none.
    """
    counts = {}
    for folder in dict.fromkeys(path.resolve() for path in folders):
        runs = list(run_folders(folder))
        depths = {len(run.relative_to(folder).parts) for run in runs}
        if depths <= {0, 1} or (depths <= {0, 1, 2} and _holds_runs_alone(folder, runs)):
            continue
        counts[folder] = len(runs)
    return counts


def _holds_runs_alone(folder: Path, runs: Sequence[Path]) -> bool:
    known = {folder / run.relative_to(folder).parts[0] for run in runs if run != folder}
    others = (path for path in folder.iterdir() if path not in known and not path.name.startswith("."))
    return all(path.name in ("report", "tables", "figures") or path.suffix in (".log", ".html") for path in others)


_ABSENT = {
    "code": "code not recorded",
    "plug-ins": "no plug-ins",
    "data": "data not recorded",
    "device": "device not recorded",
}


def origin(run: Run) -> dict[str, str]:
    """Part -> a text that is equal for two runs if they have this part in common; '' where it does not apply.

    code: vflbench's version and sources. plug-ins, data: contents of files; of an audit the state of its recording. device.
    """
    known, manifest = run.manifest.identity, run.manifest
    data: Any = known.get("data")
    if run.is_audit:
        data = [data, (manifest.source or {}).get("state")]
    return {
        "code": f"vflbench {known.get('vflbench')} {known.get('code', '')[:8]}" if known else "",
        "plug-ins": f"plug-ins {_short(known['plugins'])}" if known.get("plugins") else "",
        "data": f"data {_short(data)}" if data else "",
        "device": manifest.device or "",
    }


def made_by(run: Run) -> str:
    """8 hexadecimal digits: equal for two runs if nothing but options and rounding tells them apart."""
    return _short(origin(run))


def apart(runs: Sequence[Run]) -> str:
    """In what runs of one configuration differ, in words: `plug-ins (loud.py) and data`; '' in nothing."""
    origins = [origin(run) for run in runs]
    files = {name for run in runs for name in edited_files(runs[0].manifest.identity, run.manifest.identity)}
    words = {"code": "vflbench's code", "plug-ins": f"plug-ins ({named(sorted(files))})" if files else "plug-ins"}
    return " and ".join(words.get(part, part) for part in origins[0] if len({one[part] for one in origins}) > 1)


def rounding(runs: Sequence[Run]) -> str:
    """The versions of packages and the numbers of threads in which averaged runs differ, in words; '' if in none."""
    known = [{**run.manifest.versions, "threads": run.manifest.threads} for run in runs]
    values = {name: list(dict.fromkeys(str(one.get(name)) for one in known)) for one in known for name in one}
    return ", ".join(f"{name} {' and '.join(different)}" for name, different in values.items() if len(different) > 1)


def may_be_compared(one: Run, other: Run) -> bool:
    """Whether two runs are of one origin, where one of them may have no plug-in: a setting and its undefended baseline."""
    ours, theirs = origin(one), origin(other)
    plugins = {ours.pop("plug-ins"), theirs.pop("plug-ins")}
    return ours == theirs and (len(plugins) == 1 or "" in plugins)


def names_of(runs: Sequence[Run]) -> list[str]:
    """For each of some runs, what of its origin it has for itself, in words; '' for a single run."""
    origins = [origin(run) for run in runs]
    parts = [part for part in _ABSENT if len({one[part] for one in origins}) > 1]
    return [", ".join(one[part] or _ABSENT[part] for part in parts) for one in origins]


def _short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


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

    for place, name in enumerate(table.column_names):
        if table[name].type == pyarrow.string():
            safe = compute.replace_substring_regex(table[name], _FORMULA, r"'\1")
            table = table.set_column(place, name, safe)
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
    beside = [(manifest.data.model_extra or {}).get("file_sha256"), (manifest.source or {}).get("state")]
    content = next(filter(None, [manifest.data.fingerprint, *beside]), None)
    config = {key: value for key, value in essential(run.config).items() if key != "seed"}
    leaves = {key: str(v) if isinstance(v, float) and math.isinf(v) else v for key, v in sorted(flat(config))}
    options = json.dumps(leaves, default=str)
    values = {
        "run": name,
        "experiment": run.experiment or None,
        "dataset": run.dataset,
        "data_digest": json.dumps(content) if isinstance(content, list | dict) else content,
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
