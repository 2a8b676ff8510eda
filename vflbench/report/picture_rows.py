"""Which rows of metrics.csv the pictures of a run show: the strongest attacks, and references."""

import math
from collections.abc import Sequence

from vflbench.results.levels import OWN_COLUMNS, PROBE, REFERENCE, base_name, level_of
from vflbench.results.rows import Row

NO_MESSAGE = "none"
"""The column `message` of an attack that reads none."""


Pair = tuple[str, str]
"""The name of an attack, and the kind of message that it reads."""
NO_PAIR: Pair = ("", "")


def is_reference(row: Row) -> bool:
    return row.message == NO_MESSAGE or level_of(row.attack, {}) == REFERENCE


def few(rows: Sequence[Row], most: int, first: Pair = NO_PAIR) -> list[Row]:
    """Rows of references, and of at most so many attacks, each on one kind of message.

    The worst of the verdict is always among them, and the strongest on each kind of message; the rest are the strongest.
    What counts is the last epoch of the rows, at layers that an attacker sees. first: attack and message of the verdict's
    worst.
    """
    chosen = _chosen(rows, most, first)
    return [row for row in rows if is_reference(row) or _pair(row) in chosen]


def selection_words(rows: Sequence[Row], most: int, first: Pair = NO_PAIR) -> str:
    """What `few` leaves out and by which rule, for the note of a figure; empty where it leaves nothing out."""
    pairs, chosen = _pairs(rows), _chosen(rows, most, first)
    if len(chosen) == len(pairs):
        return ""
    names = {attack for attack, _ in pairs}
    what = "attacks" if len(names) == len(pairs) else "pairs of an attack and a kind of message"
    worst_one = "the worst of the verdict, " if first in pairs else ""
    return (
        f"Drawn are {len(chosen)} of {len(pairs)} {what}: {worst_one}the strongest on each kind of message, and the "
        "strongest of the others, all by the last epoch. metrics.csv has all."
    )


def _chosen(rows: Sequence[Row], most: int, first: Pair) -> list[Pair]:
    strongest = _pairs(rows)
    wanted = [first] if first in strongest else []
    of_kinds = {message: (attack, message) for attack, message in reversed(strongest)}
    wanted += sorted((pair for message, pair in of_kinds.items() if message != first[1] or not wanted), key=strongest.index)
    return list(dict.fromkeys([*wanted, *strongest]))[:most]


def _pairs(rows: Sequence[Row]) -> list[Pair]:
    """Attack and message of all rows but references, the strongest first; of equal ones in the order of the rows."""
    last = max((row.epoch for row in rows), default=0)
    strength: dict[Pair, float] = {}
    for row in rows:
        if not is_reference(row):
            counts = row.visible and row.epoch == last and not math.isnan(row.value)
            strength[_pair(row)] = max(strength.get(_pair(row), -1.0), row.value if counts else -1.0)
    return sorted(strength, key=lambda pair: -strength[pair])


def _pair(row: Row) -> Pair:
    return row.attack, row.message


def references_in(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """PROBE, OWN_COLUMNS -> rows of one reference: the probe, and the strongest on own columns of however many."""
    seen = [row for row in rows if is_reference(row) and row.visible and not math.isnan(row.value)]
    of_probe = [row for row in seen if base_name(row.attack) == PROBE]
    of_columns = [row for row in seen if base_name(row.attack) != PROBE]
    of_columns = [row for row in of_columns if row.attack == worst(of_columns).attack]
    return {name: of for name, of in ((PROBE, of_probe), (OWN_COLUMNS, of_columns)) if of}


def worst_of_epochs(rows: Sequence[Row]) -> list[Row]:
    return [worst([row for row in rows if row.epoch == epoch]) for epoch in sorted({row.epoch for row in rows})]


def worst(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: -1.0 if math.isnan(row.value) else row.value)
