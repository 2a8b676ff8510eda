"""Finished runs as values, the folders in which they lie, and what else lies there."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vflbench.results import folder as files
from vflbench.results.folder import Unreadable, read_manifest
from vflbench.results.schema import Manifest, MetricRow, Summary
from vflbench.results.terminal import path_text

AS_RECORDED = "as recorded"


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
        from vflbench.results.table import read_metrics  # late: it loads pyarrow

        return read_metrics(self.folder)

    def option(self, key: str) -> Any:
        """The value of a dotted key; None if this run has no such option."""
        node: Any = self.config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
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
        return "+".join(self.manifest.adversary) or "none"

    @property
    def layers(self) -> list[str]:
        """The layers of its network, input to output, the label party's last; then what else was measured."""
        cut, of = self.manifest.cut_layers, self.manifest.layers
        order = [layer for party in sorted(of, key="label".__eq__) for layer in (*of[party], *cut.get(party, ()))]
        return list(dict.fromkeys([*order, *(leak.layer for leak in self.summary.leaks if leak.message != "none")]))

    @property
    def crossing(self) -> frozenset[str]:
        """The layers that cross at any party."""
        return frozenset(layer for layers in self.manifest.cut_layers.values() for layer in layers)

    def crosses(self, party: str, layer: str) -> bool:
        """Whether this layer of this party crosses; if no cut layer of the party is known, whether any party's does."""
        return layer in self.manifest.cut_layers.get(party, self.crossing)

    @cached_property
    def origin(self) -> dict[str, Any]:
        """What decides its numbers beside its options; of an audit, `data` has the state of its recording."""
        data = self.manifest.identity.get("data", {})
        data = [data, (self.manifest.source or {}).get("state")] if self.is_audit else data
        return {**self.manifest.identity, "data": data, "device": self.manifest.device}

    @cached_property
    def made_by(self) -> str:
        """8 hexadecimal digits: equal for two runs if nothing but options and rounding tells them apart."""
        return short_hash(self.origin)


@dataclass(frozen=True)
class Oddity:
    """A folder or file that is not a finished run. kind: failed | unfinished | unreadable | repeated | recording.

    reason: printable, in a line.
    """

    kind: str
    path: Path
    reason: str


def entries(folders: Sequence[Path]) -> Iterator[Run | Oddity]:
    """All runs in or under these folders, each once, in the order of their names."""
    places = (place for folder in dict.fromkeys(path.resolve() for path in folders) for place in files.run_folders(folder))
    yield from map(read_run, dict.fromkeys(places))


def read_run(folder: Path) -> Run | Oddity:
    """The finished run in that folder, or why there is none."""
    try:
        if not os.path.lexists(folder / files.SUMMARY):
            reason = files.read_error(folder)
            if reason is not None:
                return Oddity("failed", folder, reason)
            if files.is_recording(folder):
                return Oddity("recording", folder, "recorded messages, which vflbench audit reads")
            problem = f"no {files.SUMMARY}: the run has not finished, or was stopped; the same command continues it"
            return Oddity("unfinished", folder, problem)
        manifest, summary, config = read_manifest(folder), files.read_summary(folder), files.read_run_config(folder)
    except FileNotFoundError as error:
        return Oddity("unfinished", folder, f"no {Path(str(error.filename)).name}")
    except Unreadable as error:
        return Oddity("unreadable", folder, error.problem)
    honest = None if not manifest.adversary or (folder / files.HONEST).is_symlink() else read_run(folder / files.HONEST)
    return Run(folder, config, summary, manifest, honest if isinstance(honest, Run) else None)


_LEFT_OUT = ("failed", "unfinished", "unreadable", "repeated", "recording")


@dataclass
class RunTree:
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
        left = [f"{len(these):,} {kind}" for kind in _LEFT_OUT if (these := self.of_kind(kind))]
        return f"{taken}; left out: {', '.join(left)}" if left else taken

    def left_out(self, most: int = 3) -> list[str]:
        """Lines that name the first of what `counts` leaves out."""
        lines = [f"  {path_text(one.path)} ({kind})" for kind in _LEFT_OUT for one in self.of_kind(kind)]
        return [*lines[:most], *([f"  and {len(lines) - most:,} more"] if len(lines) > most else [])]


def read_tree(folders: Sequence[Path]) -> RunTree:
    """All runs in or under these folders, in the order of names.

    Two experiments may hold the same run: it counts in both.
    """
    tree = RunTree()
    first: dict[tuple[str, str, str], Path] = {}
    for entry in entries(folders):
        if isinstance(entry, Oddity):
            tree.odd.append(entry)
            continue
        key = (files.digest(entry.config), entry.made_by, entry.experiment)
        earlier = first.setdefault(key, entry.folder)
        if earlier != entry.folder:
            reason = f"the same configuration, seed and code as {earlier}, counted once"
            tree.odd.append(Oddity("repeated", entry.folder, reason))
        elif entry.summary.failed:
            tree.odd.append(Oddity("failed", entry.folder, entry.summary.failed))
        else:
            tree.runs.append(entry)
    return tree


def rounding(runs: Sequence[Run]) -> str:
    """The versions of packages and the numbers of threads in which averaged runs differ, in words; '' if in none."""
    known = [{**run.manifest.versions, "threads": run.manifest.threads} for run in runs]
    values = {name: list(dict.fromkeys(str(one.get(name)) for one in known)) for one in known for name in one}
    return ", ".join(f"{name} {' and '.join(different)}" for name, different in values.items() if len(different) > 1)


def may_be_compared(one: Run, other: Run) -> bool:
    """Whether two runs are of one origin, where one of them may have no plug-in: a setting and its undefended baseline."""
    pairs = {part: (one.origin.get(part), other.origin.get(part)) for part in one.origin | other.origin}
    return all(a == b or (part == "plugins" and not (a and b)) for part, (a, b) in pairs.items())


def names_of_runs(runs: Sequence[Run]) -> list[str]:
    """For each of some runs, what of its origin it has for itself, in words; '' for a single run."""
    parts = [part for part in files.PARTS if any(run.origin.get(part) != runs[0].origin.get(part) for run in runs)]
    return [", ".join(_part_name(part, run.origin.get(part)) for part in parts) for run in runs]


def _part_name(part: str, value: Any) -> str:
    """`plug-ins 1a2b3c4d`, `device cuda:0`, `no plug-ins`."""
    if not value:
        return f"no {files.PARTS[part]}"
    return f"{files.PARTS[part]} {value if part == 'device' else short_hash(value)}"


def short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]
