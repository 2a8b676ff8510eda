"""What leaks to an attacker, by the number of rows whose labels it knows."""

import math
from collections.abc import Mapping
from typing import Any

from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.comparison import leak_of
from vflbench.report.groups import Group
from vflbench.report.sections import Section
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table

_DEFAULT_KNOWN, _DEFAULT_MESSAGE = 100, "embeddings"


def completions(run: Run) -> dict[tuple[str, int], str]:
    """(message, known rows) -> the name of the attack `completion` with these options."""
    attacks = run.config.get("attack") or {}
    found = {}
    for name, node in attacks.items():
        options: Mapping[str, Any] = node if isinstance(node, Mapping) else {}
        known = options.get("known", _DEFAULT_KNOWN)
        if str(options.get("_target_", "")).endswith(".Completion") and isinstance(known, int):
            found[str(options.get("message", _DEFAULT_MESSAGE)), known] = name
    return found


def choices(section: Section) -> tuple[list[str], list[int]]:
    """The messages and the numbers of known rows of all runs; no numbers where there are fewer than two."""
    found = {key for run in section.runs for key in completions(run)}
    counts = sorted({known for _, known in found})
    return sorted({message for message, _ in found}, reverse=True), counts if len(counts) > 1 else []


def leak(group: Group, message: str, known: int, layer: str | None) -> OverRuns:
    """Two-sided leak AUC; nan if the runs have no such attack."""
    values = [
        leak_of(run, name, layer)["two_sided"]
        for run in group.runs
        if (name := completions(run).get((message, known))) is not None
    ]
    return over_runs(values, (0.5, 1.0))


def known_labels_table(section: Section) -> Table:
    """A line for each setting and message, a column for each number of known rows."""
    messages, counts = choices(section)
    rows = []
    for group in section.groups if counts else ():
        for message in messages:
            values = [leak(group, message, known, section.layer) for known in counts]
            if not all(math.isnan(value.mean) for value in values):
                rows.append([group.name, message, len(group.runs), group.interval("train_auc"), *values])
    columns = ("setting", "message", "runs", "train AUC", *(f"{known} known" for known in counts))
    note = f"Two-sided leak AUC of completion {section.where}: mean (95 % t-interval over seeds)."
    return Table(f"{section.slug}_known_labels", "Leak by the number of known labels", columns, rows, note)
