"""`vflbench audit RECORDING --describe`: what is in a recording, which attacks can run on it, and why others can't."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.results.wrapping import wrapped
from vflbench.run.offline import Contents, contents


def description(
    recording: Path, attacks: Mapping[str, Attack], unusable: Mapping[str, str], labels: str | None = None
) -> str:
    """Tables for the terminal. unusable: attack -> why it can't be built."""
    there = contents(recording, attacks, labels)
    refused = {**unusable, **there.refused}
    able = [name for name in attacks if name not in refused]
    lines = [*facts(there), "", *columns([("party", "layer", "width", "crosses"), *there.layers])]
    lines += ["", *columns([("party", "kind", "batches"), *there.kinds])]
    lines += ["", *wrapped(f"attacks that can run ({len(able)}): {', '.join(able) or 'none'}", "  ")]
    if refused:
        lines += ["", f"attacks that can't ({len(refused)}), and why:"]
        groups: dict[str, list[str]] = {}
        for name, reason in refused.items():
            groups.setdefault(reason, []).append(name)
        for reason, group in groups.items():
            lines += [*wrapped(f"  {', '.join(group)}:", "  "), *wrapped(f"    {reason}", "    ")]
    notes = [line for note in there.notes for line in wrapped(note)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def facts(there: Contents) -> list[str]:
    """The lines on the whole."""
    width = max(len(name) for name in there.facts)
    indent = " " * (width + 2)
    return [line for name, value in there.facts.items() for line in wrapped(f"{name:<{width}}  {value}", indent)]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
