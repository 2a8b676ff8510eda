"""Finished runs as values, and the folders in which they lie."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vflbench.results.files import CONFIG, HONEST, LOCK, MARKS, PAGE_MARK, RECORDING, SUMMARY
from vflbench.results.layers import Layers, layers_of
from vflbench.results.read import format_of, read_config, read_error, read_manifest, read_metrics, read_summary
from vflbench.results.schema import Cheat, Manifest, MetricRow, Record, Summary, Threat
from vflbench.results.untrusted import Unreadable, read_head

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


def mappings(value: Any) -> list[Any]:
    """The mappings in a list; none if it is no list."""
    return [entry for entry in value if isinstance(entry, Mapping | Record)] if isinstance(value, list) else []


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
