"""`vflbench audit RECORDING --describe`: what is in a recording, which attacks can run on it, and why others can't."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.run.contents import Contents, contents


def description(
    recording: Path, attacks: Mapping[str, Attack], unusable: Mapping[str, str], labels: str | None = None
) -> str:
    """Tables for the terminal. unusable: attack -> why it can't be built."""
    there = contents(recording, attacks, labels)
    refused = {**unusable, **there.refused}
    able = [name for name in attacks if name not in refused]
    lines = [*facts(there), "", *columns([("party", "layer", "width", "crosses"), *there.layers])]
    lines += ["", *columns([("party", "kind", "batches"), *there.kinds])]
    lines += ["", f"attacks that can run ({len(able)}): {', '.join(able) or 'none'}"]
    if refused:
        lines += ["", f"attacks that can't ({len(refused)}), and why:"]
        groups: dict[str, list[str]] = {}
        for name, reason in refused.items():
            groups.setdefault(reason, []).append(name)
        lines += columns([(f"  {', '.join(group)}", reason) for reason, group in groups.items()])
    return "\n".join([*lines, *([""] if there.notes else []), *there.notes])


def facts(there: Contents) -> list[str]:
    """The lines on the whole."""
    width = max(len(name) for name in there.facts)
    return [f"{name:<{width}}  {value}" for name, value in there.facts.items()]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
