"""What lies in folders of outputs: the runs that a report counts, and everything else with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflbench.results.identity import digest
from vflbench.results.origins import origin
from vflbench.results.runs import Oddity, Run, entries


@dataclass
class Tree:
    """runs: finished runs; each configuration counts once per experiment. odd: everything else."""

    runs: list[Run] = field(default_factory=list)
    odd: list[Oddity] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Oddity]:
        return [oddity for oddity in self.odd if oddity.kind == kind]


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
