"""Which rows of metrics.csv the pictures of a run show: the strongest attacks, and references."""

import math
from collections.abc import Sequence

from vflbench.results.levels import OWN_COLUMNS, PROBE, REFERENCE, base_name, level_of
from vflbench.results.rows import Row

NO_MESSAGE = "none"
"""The column `message` of an attack that reads none."""


def is_reference(row: Row) -> bool:
    return row.message == NO_MESSAGE or level_of(row.attack, {}) == REFERENCE


def few(rows: Sequence[Row], most: int) -> list[Row]:
    """Rows of references and of the strongest attacks, at most so many."""
    attacks = {row.attack for row in rows if not is_reference(row)}
    strongest = sorted(attacks, key=lambda attack: -worst([r for r in rows if r.attack == attack]).value)[:most]
    return [row for row in rows if is_reference(row) or row.attack in strongest]


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
