"""What lies in folders of outputs: the runs that a report counts, and everything else with the reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflbench.results.provenance import digest, origin
from vflbench.results.runs import Oddity, Run, entries, run_folders
from vflbench.results.wrapping import path_text

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
