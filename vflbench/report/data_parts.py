"""Runs in parts that may share a plane: one experiment on one data set, whose files have one content."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from vflbench.results.runs import Run

Part = tuple[str, str, list[Run]]
"""Experiment or '', data set in words, runs."""


def data_parts(runs: Sequence[Run]) -> list[Part]:
    """In the order of experiments and data sets. Files are named where runs of one kind of data set read different ones.

    `csv`; `csv, all.csv` beside `csv, bank.csv+shop.csv`; `csv, all.csv, 620f63d7` where the content differs as well. A run
    that recorded no digest of its files is with the others of their names, if these have one content.
    """
    by_dataset: dict[tuple[str, str], dict[str, list[tuple[str, Run]]]] = {}
    for run in runs:
        names, content = _files(run)
        by_dataset.setdefault((run.experiment, run.dataset), {}).setdefault(names, []).append((content, run))
    made: list[Part] = []
    for (experiment, dataset), by_names in sorted(by_dataset.items()):
        for names, pairs in sorted(by_names.items()):
            contents = sorted({content for content, _ in pairs})
            is_one = len([content for content in contents if content]) < 2
            name = [dataset, *([names or "files not recorded"] if len(by_names) > 1 or not is_one else [])]
            if is_one:
                made.append((experiment, ", ".join(name), [run for _, run in pairs]))
                continue
            for content in contents:
                words = ", ".join([*name, content[:8] or "content not recorded"])
                made.append((experiment, words, [run for of, run in pairs if of == content]))
    return made


def _files(run: Run) -> tuple[str, str]:
    """(names of its files, their digests); empty where it read none, or recorded nothing."""
    data = run.manifest.get("data") or {}
    of_parties = data.get("party_files")
    files: list[Any] = [data] if not isinstance(of_parties, Mapping) else [of_parties[party] for party in sorted(of_parties)]
    files = [file for file in files if isinstance(file, Mapping)]
    names = [PurePosixPath(str(file["path"])).name for file in files if file.get("path")]
    return "+".join(names), " ".join(str(file["file_sha256"]) for file in files if file.get("file_sha256"))
