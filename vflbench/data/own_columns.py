"""The columns of a table of one's own: which are features, what each is taken for, and whose it is."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from vflbench.data.alignment import KEY
from vflbench.data.assignment import Assignment, assign_columns, unassigned_columns
from vflbench.data.base import Dataset
from vflbench.data.files import listed
from vflbench.data.own_doubts import case_lines, doubts_of, identifiers_of
from vflbench.data.own_table import class_lines, column_table, note_lines, use_lines
from vflbench.data.party_source import PartySource
from vflbench.data.readings import MISSING_PART
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.errors import UserError, shown
from vflbench.options import options

COLUMNS_ARE = "columns_are"
"""The fact of a run that says, in lines, what its columns are taken for."""
_PARTS = (".month", ".weekday", ".hour", MISSING_PART)


@options
class OwnColumns(Dataset):
    """A dataset whose columns the user names.

    label: the column that holds the labels. types: column -> what it is taken for, where what is found is wrong. id: the
    column that identifies the rows; it is never a feature.
    """

    label: str | None = None
    types: dict[str, Any] | None = None
    id: str | None = None

    def usable(self, raw: RawTable, facts: Mapping[str, Any]) -> tuple[list[str], dict[str, Any], tuple[str, ...]]:
        """The columns that are features, what each is taken for, and lines on what may be wrong."""
        read_as = facts.get("read_as", {})
        left_out = self.left_out(raw, read_as)
        for party, patterns in self.parties.items() if isinstance(self.parties, Mapping) else ():
            for name in patterns:
                if name in left_out:
                    problem = (
                        f"party {party} names the column {shown(name, 60)}, which identifies rows ({left_out[name]}) "
                        f"and is no feature; to use it nevertheless, say dataset.types={{{shown(name, 60)}: categorical}}"
                    )
                    raise UserError(problem, key="dataset.parties", value=dict(self.parties))
        names = [name for name in raw.names if name not in left_out]
        if not names:
            problem = (
                f"no column is left beside the label{' and identifiers' if left_out else ''}; a party needs at least one"
            )
            raise UserError(problem, key="dataset.path", value=facts.get("path"))
        lines = use_lines(raw, read_as.get("columns", {}), left_out)
        said = [*lines, *class_lines(str(self.label), facts.get("class_rows", {}))]
        lines = [*self.doubts(raw, read_as), *case_lines(facts.get("class_rows", {}))]
        if isinstance(self.parties, Mapping) and (unused := unassigned_columns(self.assign(names), names)):
            lines.append(f"no party in dataset.parties names these columns, so they are not used: {listed(unused, 10)}")
        return names, {COLUMNS_ARE: said}, tuple(lines)

    def table_lines(self, raw: RawTable, facts: Mapping[str, Any]) -> list[str]:
        """A table of what each column is taken for, with lines on what may be wrong."""
        read_as = facts.get("read_as", {})
        left_out = self.left_out(raw, read_as)
        table = column_table(raw, facts, str(self.label), self.id, left_out)
        lines = [*self.doubts(raw, read_as), *case_lines(facts.get("class_rows", {}))]
        return [*table, *note_lines(lines)]

    def left_out(self, raw: RawTable, read_as: Mapping[str, Any]) -> dict[str, str]:
        """Columns that are no features, and why."""
        return identifiers_of(raw, self.types or (), _dates(read_as), self.min_count)

    def doubts(self, raw: RawTable, read_as: Mapping[str, Any]) -> tuple[str, ...]:
        """Lines on columns that may be something else than they are taken for."""
        return (*read_as.get("doubts", ()), *doubts_of(raw, self.types or (), _dates(read_as), self.min_count))

    def assign(self, names: Sequence[str]) -> Assignment:
        """As of one table; whoever has a date or a number has all that was made of it."""
        if not isinstance(self.parties, Mapping):
            return super().assign(names)
        listed_by_one = {name for patterns in self.parties.values() for name in patterns}
        with_parts = {
            party: [
                *patterns,
                *(
                    f"{name}{part}"
                    for name in patterns
                    if name in names
                    for part in _PARTS
                    if (part == MISSING_PART or f"{name}.weekday" in names)
                    and f"{name}{part}" in names
                    and f"{name}{part}" not in listed_by_one
                ),
            ]
            for party, patterns in self.parties.items()
        }
        return assign_columns(with_parts, names)

    def check_label(self, names: Sequence[str]) -> None:
        """Raises UserError where none is named, with the columns to choose from."""
        if self.label is None:
            problem = f"it must name the column that holds the labels; the columns are {listed(names, 40)}"
            raise UserError(problem, key="dataset.label")

    def check_named(self, names: Sequence[str]) -> None:
        """Raises UserError for options that name a column which isn't there. names: all columns."""
        self.check_label(names)
        wanted = [("dataset.label", str(self.label)), *(("dataset.types", name) for name in self.types or {})]
        wanted += [("dataset.id", self.id)] if self.id is not None else []
        for key, name in wanted:
            if name not in names:
                near = [other for other in names if other.strip() == name.strip()] or get_close_matches(name, names, 1)
                quotes = "'" if near and near[0] != near[0].strip() else ""
                meant = f"; did you mean {quotes}{shown(near[0], 60)}{quotes}?" if near else ""
                problem = f"there is no such column; the columns are {listed(names, 40)}{meant or _unsplit(name, names)}"
                raise UserError(problem, key=key, value=name)
        if self.id is not None and self.id == self.label:
            raise UserError("the label can't be the identifier of its row", key="dataset.id", value=self.id)

    def as_features(self, source: PartySource) -> PartySource:
        """A party's file without the columns that are no features, and with lines on the others."""
        read_as = (source.facts or {}).get("read_as", {})
        left_out = self.left_out(source.raw, read_as)
        names = [name for name in source.raw.names if name not in left_out]
        if not names and source.party != LABEL_PARTY:
            problem = f"it holds no column beside identifiers ({', '.join(left_out)}); a party needs at least one"
            raise UserError(problem, key=f"{KEY}.{source.party}", value=(source.facts or {}).get("path"))
        lines = use_lines(source.raw, read_as.get("columns", {}), left_out, f"party {source.party}: ")
        return source.only(names, self.doubts(source.raw, read_as), lines)


def _unsplit(name: str, names: Sequence[str]) -> str:
    """What to do about a first line that is no header, or that wasn't split."""
    if names[0].startswith("sep="):
        return f"; the first line names the separator: say dataset.skip_lines=1 dataset.delimiter='{names[0][4:] or ','}'"
    return "; to split at blanks, say dataset.delimiter=' '" if len(names) == 1 and name in names[0].split() else ""


def _dates(read_as: Mapping[str, Any]) -> set[str]:
    """Columns that were made of dates."""
    dates = [name for name, words in read_as.get("columns", {}).items() if words.startswith("dates")]
    return {f"{name}{part}" for name in dates for part in ("", *_PARTS)}
