"""Which party holds which column."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from string import ascii_lowercase
from typing import Annotated, Any

from pydantic import PlainValidator

from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError


def _check_shape(parties: Any) -> Any:
    """Refuse what is neither a number nor party -> list of columns, in words of this option."""
    if isinstance(parties, int) and not isinstance(parties, bool):
        return parties
    if not isinstance(parties, Mapping):
        raise ValueError("it must be a number of non-label parties, or {party: [columns], ...} such as {a: [I*], b: [C1]}")
    for party, columns in parties.items():
        if not isinstance(party, str) or not party.isidentifier():
            raise ValueError(f"a party's name must be a word, and {party!r} is not one")
        if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
            raise ValueError(f"party {party} must have a list of column names, such as {party}: [I1, C*]")
    return parties


Parties = Annotated[Any, PlainValidator(_check_shape)]
"""A number of non-label parties, or party name -> column names and patterns (`I*`)."""

Assignment = dict[str, tuple[str, ...]]
"""Party name -> its columns, in the file's order."""


def assign_columns(parties: Parties, columns: Sequence[str]) -> Assignment:
    """Columns by party.

    An integer K cuts the columns, in their order, into K even runs for the non-label parties a, b, c, ...; a mapping names
    columns or shell patterns a party. The party `label` is the label party. Columns that no party names are left out.

    Raises UserError for a column that is not there or that two parties claim, a party without columns, no non-label party.
    """
    if isinstance(parties, int):
        return _even_runs(parties, columns)
    owner: dict[str, str] = {}
    for party, patterns in parties.items():
        for pattern in patterns:
            found = [pattern] if pattern in columns else [name for name in columns if fnmatchcase(name, pattern)]
            if not found:
                raise _refuse(parties, f"party {party} names the column {pattern}, which is not one of {_list(columns)}")
            for name in found:
                if owner.setdefault(name, party) != party:
                    raise _refuse(parties, f"both {owner[name]} and {party} claim the column {name}; it can have one holder")
    assignment = {party: tuple(c for c in columns if owner.get(c) == party) for party in parties}
    empty = [party for party, names in assignment.items() if not names]
    if empty:
        raise _refuse(parties, f"party {empty[0]} holds no column; a party needs at least one")
    if not set(assignment) - {LABEL_PARTY}:
        raise _refuse(parties, "there is no non-label party, so nothing crosses between parties; name at least one")
    return assignment


def left_out(assignment: Mapping[str, Sequence[str]], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns that no party holds."""
    held = {name for names in assignment.values() for name in names}
    return tuple(name for name in columns if name not in held)


def _even_runs(count: int, columns: Sequence[str]) -> Assignment:
    most = min(len(columns), len(ascii_lowercase))
    if not 1 <= count <= most:
        raise _refuse(count, f"as a number it must be between 1 and {most} for {len(columns)} columns")
    bounds = [round(i * len(columns) / count) for i in range(count + 1)]
    runs = (tuple(columns[start:stop]) for start, stop in pairwise(bounds))
    return dict(zip(ascii_lowercase, runs, strict=False))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 40 else f"{', '.join(names[:40])}, ... ({len(names)} columns)"


def _refuse(value: object, problem: str) -> UserError:
    return UserError(problem, key="dataset.parties", value=value)
