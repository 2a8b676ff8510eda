"""What attacks rebuilt in a run, beside guesses without messages, as tables on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any


def rebuilt_tables(entries: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, ...]]]:
    """A table per attack that rebuilt data: a line per figure, with its interval over rows, or over batches that differ."""
    tables = []
    for attack in dict.fromkeys(entry["attack"] for entry in entries):
        of_attack = [entry for entry in entries if entry["attack"] == attack]
        figures = list(dict.fromkeys(name for entry in of_attack for name in entry["figures"] if ":" not in name))
        header = (attack, *(f"{entry['message']} {entry['party']} {entry['layer']}" for entry in of_attack))
        rows = [(name.replace("_", " "), *(_figure(entry["figures"].get(name)) for entry in of_attack)) for name in figures]
        if any(entry.get("rows") for entry in of_attack):
            answers = {True: "yes", False: "no", None: "-"}
            rows.append(("beats every guess", *(answers[entry.get("beats_every_guess")] for entry in of_attack)))
        tables.append([header, *rows, ("batches", *(str(entry["batches"]) for entry in of_attack))])
    return tables


def _figure(value: Mapping[str, float | None] | None) -> str:
    if value is None or value["mean"] is None:
        return "-"
    same = value["low"] is None or value["low"] == value["high"]
    return f"{value['mean']:.4g}" + ("" if same else f" ({value['low']:.4g} .. {value['high']:.4g})")
