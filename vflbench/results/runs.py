"""Finished runs as values, the folders in which they lie, and what else lies there."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vflbench.results.folder import (
    CONFIG,
    HONEST,
    LOCK,
    MARKS,
    PAGE_MARK,
    RECORDING,
    SUMMARY,
    Unreadable,
    format_of,
    read_config,
    read_error,
    read_head,
    read_manifest,
    read_metrics,
    read_summary,
)
from vflbench.results.provenance import digest, origin
from vflbench.results.schema import Cheat, Manifest, MetricRow, Summary, Threat
from vflbench.results.terminal import path_text

_LABEL_PARTY = "label"


@dataclass(frozen=True)
class Layers:
    """order: all layers, input to output. cut: party -> the layers that cross, the cut layer first."""

    order: tuple[str, ...]
    cut: Mapping[str, tuple[str, ...]]
    recorded: bool = True

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

    honest: of a run with an adversary, the same run without it, if its folder can be read. computed: what readers computed
    from the others once, by whatever name.
    """

    folder: Path
    config: Mapping[str, Any]
    summary: Summary
    manifest: Manifest = field(default_factory=Manifest)
    honest: "Run | None" = None
    computed: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

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
