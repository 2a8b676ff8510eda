"""What attacks rebuilt in a run, beside guesses without messages, as tables for table.txt."""

from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.figure_words import figure_words
from vflbench.results.files import SUMMARY

_NOTES = 3


def rebuilt_lines(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table per attack that rebuilt data, what its figures say, and what the attack noted."""
    lines: list[str] = []
    for rows in rebuilt_tables(entries):
        of_attack = [entry for entry in entries if entry["attack"] == rows[0][0]]
        lines += ["", *lined_up(rows), "", *figure_words(figures_of(of_attack)), ""]
    for entry in entries:
        notes = list(entry.get("notes", {}).items())
        lines += [f"{entry['attack']}, {count} of {entry['batches']} batches: {note}" for note, count in notes[:_NOTES]]
        lines += [f"... and {len(notes) - _NOTES} more notes in {SUMMARY}"] if len(notes) > _NOTES else []
    return lines


def lined_up(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines in which columns begin at one place."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def rebuilt_tables(entries: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, ...]]]:
    """A table per attack that rebuilt data: a line per figure, with its interval over rows, or over batches that differ."""
    tables = []
    for attack in dict.fromkeys(entry["attack"] for entry in entries):
        of_attack = [entry for entry in entries if entry["attack"] == attack]
        header = (attack, *(f"{entry['message']} {entry['party']} {entry['layer']}" for entry in of_attack))
        rows = [
            (name.replace("_", " "), *(_figure(entry["figures"].get(name)) for entry in of_attack))
            for name in figures_of(of_attack)
        ]
        if any(entry.get("rows") for entry in of_attack):
            answers = {True: "yes", False: "no", None: "-"}
            rows.append(("beats every guess", *(answers[entry.get("beats_every_guess")] for entry in of_attack)))
        tables.append([header, *rows, ("batches", *(str(entry["batches"]) for entry in of_attack))])
    return tables


def figures_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of their figures, each once; those of single columns are left out."""
    return list(dict.fromkeys(name for entry in entries for name in entry["figures"] if ":" not in name))


def _figure(value: Mapping[str, float | None] | None) -> str:
    if value is None or value["mean"] is None:
        return "-"
    same = value["low"] is None or value["low"] == value["high"]
    return f"{value['mean']:.4g}" + ("" if same else f" ({value['low']:.4g} .. {value['high']:.4g})")
