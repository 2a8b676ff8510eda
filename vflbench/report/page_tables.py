"""A table as the page shows it: cells with their exact numbers, cut to what a reader can use."""

from collections.abc import Sequence
from typing import Any

from vflbench.results.table_formats import Table, exact, is_number, text_of
from vflbench.results.untrusted import shown

_ON_PAGE, _WIDE = 400, 100  # lines and columns of a table; its files have all
_MOST_TEXT = 4_000  # characters of a note
_LONG, _MIDDLE, _SOME = 90, 40, 13  # characters as of which a cell gets more room


def on_page(table: Table, reading: "Reading") -> dict[str, Any]:
    """What the template needs, without columns that are empty. The note goes to `reading`, and the table links to it."""
    numeric, wide = table.numeric, table.wide
    filled = [j for j in range(len(table.columns)) if any(exact(row[j]) != "" for row in table.rows)]
    kept = filled[:_WIDE]
    layout = table.latex_layout
    latex = layout.columns or [""] * len(numeric)
    columns = [{"text": shown(table.columns[j]), "number": numeric[j], "wide": wide[j], "latex": latex[j]} for j in kept]
    rows = [[_cell(row[j]) for j in kept] for row in table.rows[:_ON_PAGE]]
    left, more = len(table.rows) - len(rows), len(filled) - len(kept)
    cut = [f"{left:,} more lines are in tables/{table.slug}.csv."] * (left > 0)
    cut += [f"{more:,} more columns are there."] * (more > 0)
    return {
        "slug": table.slug,
        "title": shown(table.title),
        "caption": table.caption,
        "latex": {"size": layout.size, "is_resized": layout.is_resized},
        "columns": columns,
        "rows": rows,
        "cut": " ".join(cut),
        "note": reading.place(shown(table.title), shown(table.note, _MOST_TEXT)),
        "count": len(table.rows),
    }


def _cell(cell: Any) -> dict[str, Any]:
    text = text_of(cell)
    room = "long" if len(text) > _LONG else "mid" if len(text) > _MIDDLE else "some" if len(text) > _SOME else ""
    return {"text": text, "exact": exact(cell), "look": "n" if is_number(cell) else room}


class Reading:
    """How the tables of a page are read: each different note once, for the end of the page."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], str] = {}

    def place(self, title: str, note: str) -> str:
        """The name of the note's place in the page; empty if there is no note."""
        return self._notes.setdefault((title, note), f"reading_{len(self._notes) + 1}") if note else ""

    def notes(self) -> Sequence[tuple[str, str, str]]:
        """(place, title, note)."""
        return [(place, title, note) for (title, note), place in self._notes.items()]
