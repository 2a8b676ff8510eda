"""What lies in folders of outputs: finished runs, and all that is none, with the reason."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vflbench.results.identity import digest
from vflbench.results.report.sweep import Run

PAGE_MARK = "<!-- made by vflbench report -->"
_RUN_FILES = {"config.yaml", "manifest.json", "metrics.csv", "summary.json", "error.txt", "train.log", "checkpoint.pt"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
_OF_NO_MATTER = {".lock", "multirun.yaml", ".gitignore", ".DS_Store"}


@dataclass(frozen=True)
class Oddity:
    """A folder or file that is no finished run. kind: failed | half-written | repeated | foreign."""

    kind: str
    path: Path
    told: str


@dataclass
class Tree:
    """runs: finished ones, each configuration once an experiment. odd: everything else that was found."""

    runs: list[Run] = field(default_factory=list)
    odd: list[Oddity] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Oddity]:
        return [oddity for oddity in self.odd if oddity.kind == kind]


def read_tree(folders: Sequence[Path]) -> Tree:
    """All in or under these folders, in the order of their names; reports that were made before are passed over."""
    tree, seen, visited = Tree(), {}, set()
    for folder in dict.fromkeys(path.resolve() for path in folders):
        for place, files in _walk(folder):
            if place in visited:
                continue
            visited.add(place)
            if _RUN_FILES.isdisjoint(files):
                told = "no file of a run"
                tree.odd += [Oddity("foreign", place / f, told) for f in files if f not in _OF_NO_MATTER]
                continue
            found = read_run(place)
            if isinstance(found, Oddity):
                tree.odd.append(found)
                continue
            earlier = seen.setdefault((digest(found.config), _experiment(found)), place)
            if earlier == place:
                _take(tree, found)
            else:
                tree.odd.append(Oddity("repeated", place, f"the same configuration and seed as {earlier}, counted once"))
    return tree


def _experiment(run: Run) -> Any:
    """Two experiments may hold the same run, each in a part of its own."""
    return (run.manifest.get("choices") or {}).get("experiment")


def _take(tree: Tree, run: Run) -> None:
    if run.summary.get("failed"):
        tree.odd.append(Oddity("failed", run.folder, str(run.summary["failed"])))
    else:
        tree.runs.append(run)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for place, folders, files in os.walk(folder):
        if _is_report(Path(place), files):
            files = [f for f in files if f in _RUN_FILES]
            folders[:] = [f for f in folders if f not in ("tables", "figures")]
        if not _RUN_FILES.isdisjoint(files):
            folders[:] = []  # what a run keeps for itself
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield Path(place), sorted(files)


def _is_report(place: Path, files: Sequence[str]) -> bool:
    for name in files:
        if name.endswith(".html"):
            with (place / name).open(errors="replace") as page:
                if PAGE_MARK in page.read(400):
                    return True
    return False


def read_run(folder: Path) -> Run | Oddity:
    """The finished run of that folder, or why there is none."""
    if not (folder / "summary.json").exists():
        if (folder / "error.txt").exists():
            return Oddity("failed", folder, first_paragraph(folder / "error.txt"))
        return Oddity(
            "half-written", folder, "no summary.json: it is still running, or was stopped; the same command goes on"
        )
    try:
        summary = _mapping(json.loads((folder / "summary.json").read_text()), "summary.json")
        config = _mapping(yaml.load((folder / "config.yaml").read_text(), _LOADER), "config.yaml")
        manifest = _mapping(json.loads((folder / "manifest.json").read_text()), "manifest.json")
    except FileNotFoundError as error:
        if Path(str(error.filename)).name == "manifest.json":
            return Run(folder, config, summary)
        return Oddity("half-written", folder, f"no {Path(str(error.filename)).name}")
    except (OSError, ValueError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        return Oddity("half-written", folder, f"a file that can't be read: {told[:200]}")
    return Run(folder, config, summary, manifest)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} holds no options or results")
    return value


def first_paragraph(file: Path) -> str:
    """The message for the user; the traceback stands below it."""
    text = file.read_text(errors="replace").strip()
    return " ".join(text.split("\n\n")[0].split())[:600] or "no message"
