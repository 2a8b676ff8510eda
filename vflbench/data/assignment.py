"""The assignment of columns to parties."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from string import ascii_lowercase
from typing import Annotated, Any

from pydantic import PlainValidator

from vflbench.data.column_splits import KINDS, ColumnSplit, split_of
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError, nearest


def _check_shape(parties: Any) -> Any:
    """Accept a number, party -> list of columns, or a division; otherwise raise an error in the words of this option."""
    if (isinstance(parties, int) and not isinstance(parties, bool)) or isinstance(parties, ColumnSplit):
        return parties
    if parties in (*KINDS,) or (isinstance(parties, Mapping) and isinstance(parties.get("kind"), str)):
        return split_of(parties)
    if not isinstance(parties, Mapping):
        raise ValueError(
            "it must be a number of non-label parties, {party: [columns], ...} such as {a: [I*], b: [C1]}, or a division of "
            f"a kind such as {{kind: importance, alpha: 1.0, count: 2}}; kinds are {', '.join(KINDS)}"
        )
    for party, columns in parties.items():
        if not isinstance(party, str) or not party.isidentifier():
            raise ValueError(f"a party's name must be a word, and {party!r} is not one")
        if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
            raise ValueError(f"party {party} must have a list of column names, such as {party}: [I1, C*]")
    return parties


Parties = Annotated[Any, PlainValidator(_check_shape)]
"""A number of non-label parties, party name -> column names and patterns (`I*`), or how to divide the columns: `random`,
`importance`, `correlation`, or a mapping with such a `kind` and the options of that class (see `column_splits`)."""

Assignment = dict[str, tuple[str, ...]]
"""Party name -> its columns, in the order of the file."""


def assign_columns(parties: Parties, columns: Sequence[str]) -> Assignment:
    """The columns of each party.

    An integer K divides the columns, in their order, evenly between the non-label parties a, b, c, ... A mapping lists
    column names or shell patterns for each party; the party `label` is the label party. A column that no party lists is
    not used.

    Raises UserError for an unknown column, a column of two parties, a party without columns, or no non-label party.
    """
    if isinstance(parties, int):
        return _even_runs(parties, columns)
    owner: dict[str, str] = {}
    for party, patterns in parties.items():
        for pattern in patterns:
            matches = [pattern] if pattern in columns else [name for name in columns if fnmatchcase(name, pattern)]
            if not matches:
                problem = f"party {party} names the column {pattern}, which is not one of {_list(columns)}"
                raise _error(parties, problem + nearest(pattern, columns))
            for name in matches:
                if owner.setdefault(name, party) != party:
                    problem = f"both {owner[name]} and {party} name the column {name}; a column belongs to one party"
                    raise _error(parties, problem)
    assignment = {party: tuple(c for c in columns if owner.get(c) == party) for party in parties}
    empty = [party for party, names in assignment.items() if not names]
    if empty:
        raise _error(parties, f"party {empty[0]} holds no column; a party needs at least one")
    if not set(assignment) - {LABEL_PARTY}:
        raise _error(parties, "there is no non-label party, so no message would be sent; name at least one")
    return assignment


def unassigned_columns(assignment: Mapping[str, Sequence[str]], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that no party holds."""
    held = {name for names in assignment.values() for name in names}
    return tuple(name for name in columns if name not in held)


def _even_runs(count: int, columns: Sequence[str]) -> Assignment:
    most = min(len(columns), len(ascii_lowercase))
    if not 1 <= count <= most:
        raise _error(count, f"as a number it must be between 1 and {most} for {len(columns)} columns")
    bounds = [round(i * len(columns) / count) for i in range(count + 1)]
    runs = (tuple(columns[start:stop]) for start, stop in pairwise(bounds))
    return dict(zip(ascii_lowercase, runs, strict=False))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 40 else f"{', '.join(names[:40])}, ... ({len(names)} columns)"


def _error(value: object, problem: str) -> UserError:
    return UserError(problem, key="dataset.parties", value=value)
