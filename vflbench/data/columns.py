"""Which columns belong to which party: named, in even runs, or divided by chance, by importance or by correlation."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from string import ascii_lowercase
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator, ValidationError

from vflbench.data.files import listed
from vflbench.data.table import LABEL_PARTY, RawTable, to_float
from vflbench.errors import UserError, nearest
from vflbench.numerics.party_correlation import association, divide
from vflbench.options import Concentration, Count, Range, Seed, ShareOrAll, ShareOrZero, options

SAMPLED_ROWS = 10_000
"""Training rows, spread evenly, that correlations are taken of."""

_MOST_COLUMNS = 200  # whose correlations are searched
PartyCount = Annotated[Count, Range(1, 26)]
_Division = tuple[np.ndarray, str]
"""(m,) the non-label party 0 .. count - 1 of each column, each party at least once; and how they were divided, in words."""


@options
class ColumnSplit:
    """count: non-label parties a, b, c, ... label: the share of the columns, drawn at random, that the label party keeps.
    seed: of all draws; the run's seed has no part in them, so that runs with other seeds keep the division.

    A subclass overrides `divide`.
    """

    count: PartyCount = 1
    label: ShareOrZero = 0.0
    seed: Seed = 0

    def assign(self, names: Sequence[str], raw: RawTable, rows: np.ndarray) -> tuple[dict[str, tuple[str, ...]], str]:
        """Party -> its columns, in the order of `names`, and a line on the division. rows: positions of training rows."""
        parties = list(ascii_lowercase[: self.count])
        kept = round(self.label * len(names))
        if (self.label and kept < 1) or len(names) - kept < self.count:
            held = f", of which the label party keeps {kept}" if self.label else ""
            problem = f"{len(names)} columns{held} are too few for {self.count} non-label parties of at least one each"
            raise UserError(problem, key="dataset.parties", value=vars(self))
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(names))
        others = np.sort(order[kept:])
        party, how = self.divide([names[j] for j in others], raw, rows, rng)
        assignment = {name: tuple(names[j] for j in others[party == k]) for k, name in enumerate(parties)}
        if kept:
            assignment[LABEL_PARTY] = tuple(names[j] for j in np.sort(order[:kept]))
        held = ", ".join(f"{name} {len(columns)}" for name, columns in assignment.items())
        return assignment, f"columns divided {how}, seed {self.seed}: {held}"

    def divide(self, names: Sequence[str], raw: RawTable, rows: np.ndarray, rng: np.random.Generator) -> _Division:
        """Of these columns."""
        raise NotImplementedError


@options
class RandomSplit(ColumnSplit):
    """Columns at random, in equal numbers; half of them stay with the label party, the attacker on features.

    Source: Luo, Wu, Xiao and Ooi, "Feature Inference Attack on Model Predictions in Vertical Federated Learning", ICDE
    2021: a random share d_target = 1 - label of the columns is the other party's, from 0.1 to 0.6.
    """

    kind: Literal["random"] = "random"
    label: ShareOrZero = 0.5

    def divide(self, names: Sequence[str], raw: RawTable, rows: np.ndarray, rng: np.random.Generator) -> _Division:
        return rng.permutation(np.repeat(np.arange(self.count), _sizes(len(names), self.count))), "at random"


@options
class ImportanceSplit(ColumnSplit):
    """Each column goes to a party drawn with that party's weight; the weights are drawn once.

        r ~ Dirichlet(alpha, ..., alpha),   P(a column goes to party k) = r_k

    alpha: small values give nearly everything to one party, large ones equal numbers to all. As columns are drawn without
    regard to what they tell, r_k is the share of the importance of all columns that party k expects. A party that drew none
    takes one at random from the party that has most.

    Source: Wu, Hou and He, "VertiBench: Advancing Feature Distribution Diversity in Vertical Federated Learning
    Benchmarks", ICLR 2024, section 4.2.
    """

    kind: Literal["importance"] = "importance"
    count: PartyCount = 2
    alpha: Concentration = 1.0

    def divide(self, names: Sequence[str], raw: RawTable, rows: np.ndarray, rng: np.random.Generator) -> _Division:
        weights = rng.dirichlet(np.full(self.count, self.alpha))
        if not np.isfinite(weights).all():  # of an alpha so small that all draws are 0
            weights = np.eye(self.count)[rng.integers(self.count)]
        party = rng.choice(self.count, len(names), p=weights)
        for k in range(self.count):
            if not (party == k).any():
                most = int(np.bincount(party, minlength=self.count).argmax())
                party[rng.choice(np.flatnonzero(party == most))] = k
        return party, f"by importance (alpha {self.alpha:g}; weights {', '.join(f'{weight:.3f}' for weight in weights)})"


@options
class CorrelationSplit(ColumnSplit):
    """Equal numbers of columns, so that parties go together as strongly as wanted (see `party_correlation.divide`).

    beta: 0 puts columns that go together into one party, 1 spreads them over all parties. Correlations (see `association`)
    are those of at most 10,000 training rows.

    Source: as of `ImportanceSplit`, section 4.3.
    """

    kind: Literal["correlation"] = "correlation"
    count: Annotated[PartyCount, Range(2, 26)] = 2
    beta: ShareOrAll = 0.5

    def divide(self, names: Sequence[str], raw: RawTable, rows: np.ndarray, rng: np.random.Generator) -> _Division:
        if len(names) > _MOST_COLUMNS:
            problem = f"the correlations of {len(names)} columns are too many to search; there may be {_MOST_COLUMNS}"
            raise UserError(problem, key="dataset.parties", value=vars(self))
        sample = raw.take(rows)
        numeric = [raw.numeric_names.index(name) for name in names if name in raw.numeric_names]
        categorical = [raw.categorical_names.index(name) for name in names if name in raw.categorical_names]
        measured = association(to_float(sample.numeric[:, numeric]), sample.categorical[:, categorical])
        place = {raw.numeric_names[j]: k for k, j in enumerate(numeric)}
        place |= {raw.categorical_names[j]: len(numeric) + k for k, j in enumerate(categorical)}
        order = [place[name] for name in names]
        sizes = _sizes(len(names), self.count)
        one, least, greatest = divide(measured[np.ix_(order, order)], sizes, self.beta, rng)
        return one.party, f"by correlation (beta {self.beta:g}; Icor {one.icor:.4f}, from {least:.4f} to {greatest:.4f})"


_Split = RandomSplit | ImportanceSplit | CorrelationSplit
KINDS: dict[str, type[_Split]] = {"random": RandomSplit, "importance": ImportanceSplit, "correlation": CorrelationSplit}


def split_of(given: Any) -> _Split:
    """The division that a word or a mapping with a `kind` describes. Raises ValueError in the words of this option."""
    values: dict[Any, Any] = {"kind": given} if isinstance(given, str) else dict(given)
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the kind of a division is {', '.join(KINDS)}, not {str(kind)[:60]!r}")
    try:
        return KINDS[kind](**{str(name): value for name, value in values.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))[:60]
        names = ", ".join(KINDS[kind].__dataclass_fields__)
        problem = f"{name}: {first['msg'].removeprefix('Value error, ')}; a division by {kind} has {names}"
        raise ValueError(problem) from error


def training_sample(is_training: np.ndarray) -> np.ndarray:
    """(n,) rising positions of at most so many training rows, spread evenly. is_training: (rows,) bool."""
    rows = np.flatnonzero(is_training)
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED_ROWS)).round().astype(np.int64))]


def _sizes(columns: int, count: int) -> list[int]:
    """As equal as possible; the first parties have one more."""
    return [columns // count + (k < columns % count) for k in range(count)]


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
`importance`, `correlation`, or a mapping with such a `kind` and the options of that class (see `columns`)."""

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
                problem = f"party {party} names the column {pattern}, which is not one of {listed(columns, 40)}"
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


def _error(value: object, problem: str) -> UserError:
    return UserError(problem, key="dataset.parties", value=value)
