"""Columns of other parties that attacks at the label party are after: which there are, what attackers know, the truth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, ColumnScores
from vflbench.data.table import LABEL_PARTY, Columns, Features
from vflbench.errors import UserError
from vflbench.messages.facts import KnownColumn
from vflbench.metrics.leakage import checked_scores
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.numerics.auc import auc
from vflbench.run.known_rows import KnownRows, Lookup, Population, RowNames
from vflbench.run.posts import Post

_SAMPLE = 20_000  # training rows by which a column is cut, and its values are counted
_LISTED = 12
_PARTS = 10  # that are graded one by one, for an interval


@runtime_checkable
class AfterColumn(Protocol):
    """The options of an attack with `KnownColumn`: as `attacks.attribute.Attribute` has them."""

    column: str | None
    threshold: float | None
    values: int


@dataclass(frozen=True)
class HiddenColumn:
    """cut: of a numeric column. common: (m,) of a categorical one, its most frequent ids; all others count as one."""

    party: str
    name: str
    place: int
    cut: float | None
    common: Tensor
    count: int

    def values(self, features: Features) -> Tensor:
        """(n,) 0 .. count - 1. features: of its party."""
        if self.cut is not None:
            return (features.numeric[:, self.place] > self.cut).long()
        ids = features.categorical[:, self.place].long()
        ordered, order = self.common.to(ids.device).sort()
        at = torch.searchsorted(ordered, ids).clamp_(max=len(ordered) - 1)
        return torch.where(ordered[at] == ids, order[at], len(ordered))


class HiddenColumns:
    """The column that each attack with `KnownColumn` is after. rows: the columns of each party by row id.

    Raises UserError for a column that there isn't, is the label party's own, or has one value.
    """

    def __init__(self, attacks: Mapping[str, Attack], train: Population, rows: Lookup):
        self._rows = rows
        self.of = {
            name: hidden_column(name, attack, train)
            for name, attack in attacks.items()
            if KnownColumn in attack.threat.knows and isinstance(attack, AfterColumn)
        }

    def _values(self, attack: str, ids: Tensor) -> Tensor:
        column = self.of[attack]
        return column.values(self._rows.features(column.party, ids))

    def fact(self, post: Post, known: KnownRows, names: RowNames) -> KnownColumn:
        ids, column = known.ids[: post.threat.known_rows], self.of[post.name]
        return KnownColumn(column.party, column.name, names.of(ids), self._values(post.name, ids), column.count)

    def grade(self, post: Post, answer: ColumnScores, ids: Tensor, known: Tensor, table: ReconstructionTable) -> None:
        """attribute_auc: the mean over values of the AUC of a value against the others. attribute_gain: how much it is above
        that of the guess without messages, or above a coin where that is more. Both stand under the name of the column.

        ids: (n,) of the rows of the answer. known: (n,) bool, rows that don't count.
        """
        column, truth = self.of[post.name], self._values(post.name, ids)
        areas = []
        for scores in (answer.scores, answer.guess):
            checked = checked_scores(scores, len(ids), column.count, attack=post.name, layer=answer.layer)
            areas.append(_macro_auc(checked[~known.to(checked.device)], truth[~known].to(checked.device)))
        figures = {"attribute_auc": areas[0], "attribute_gain": areas[0] - max(areas[1], 0.5)}
        table.add(
            (post.name, str(post.message or "none"), column.party, f"{column.name} ({answer.layer})", post.visible), figures
        )
        guess = f"{column.name} (label and own columns)"
        table.add((post.name, "none", column.party, guess, post.visible), {"attribute_auc": areas[1]})


def split(answer: ColumnScores, places: Tensor | None, groups: Sequence[Tensor]) -> Iterator[ColumnScores]:
    """The answer in ten parts. places: (n,) of its rows in the question, None for the order there. groups: of all places."""
    at = torch.arange(len(answer.ids)) if places is None else places.cpu()
    for group in torch.cat(list(groups)).chunk(_PARTS):
        rows = torch.isin(at, group.cpu()).nonzero()[:, 0]
        if len(rows):
            ids, scores, guess = (values[rows.to(values.device)] for values in (answer.ids, answer.scores, answer.guess))
            yield ColumnScores(ids, answer.layer, scores, guess)


def _macro_auc(scores: Tensor, truth: Tensor) -> float:
    """Of the values that some of the rows have, and not all. scores: (n,) or (n, K)."""
    columns = [scores] if scores.ndim == 1 else list(scores.T)
    values = [1] if scores.ndim == 1 else range(len(columns))
    defined = [auc(column, truth == value) for column, value in zip(columns, values, strict=True)]
    defined = [area for area in defined if area == area]
    return sum(defined) / len(defined) if defined else float("nan")


def hidden_column(attack: str, options: AfterColumn, train: Population) -> HiddenColumn:
    """The column that the options name; the first one of another party where they name none."""
    sample = train.sample(min(len(train), _SAMPLE))
    parties = {party: columns for party, columns in sample.columns.items() if party != LABEL_PARTY}
    key = f"attack.{attack}.column"
    name, party = options.column, None
    if name is None:
        party, name = next((party, _names(columns)[0]) for party, columns in parties.items() if len(columns))
    party = party or next((party for party, columns in parties.items() if name in _names(columns)), None)
    if party is None:
        own = LABEL_PARTY in sample.columns and name in _names(sample.columns[LABEL_PARTY])
        problem = "the label party holds it itself; " if own else "there is no such column; "
        raise UserError(f"{problem}others hold {_listed(parties)}", key=key, value=name)
    features = sample.features[party]
    made = _numeric(party, name, options, features) if name in features.columns.numeric else None
    made = made or _categorical(party, name, options, features)
    if len(made.values(features).unique()) < 2:
        raise UserError("it has one value alone, where it is cut, so that there is nothing to learn", key=key, value=name)
    return made


def _numeric(party: str, name: str, options: AfterColumn, features: Features) -> HiddenColumn:
    place = features.columns.numeric.index(name)
    column = features.numeric[:, place].double()
    cut = float(column.median()) if options.threshold is None else options.threshold
    if options.threshold is None and not bool((column > cut).any()):
        cut = (cut + float(column.min())) / 2  # most rows have the largest value
    return HiddenColumn(party, name, place, cut, torch.empty(0), 2)


def _categorical(party: str, name: str, options: AfterColumn, features: Features) -> HiddenColumn:
    place = features.columns.categorical.index(name)
    ids, counts = features.categorical[:, place].long().unique(return_counts=True)
    most = min(options.values, features.columns.cardinalities[place])
    common = ids[counts.argsort(descending=True, stable=True)][:most]
    others = int(features.columns.cardinalities[place] > len(common))
    return HiddenColumn(party, name, place, None, common, len(common) + others)


def _names(columns: Columns) -> tuple[str, ...]:
    return (*columns.numeric, *columns.categorical)


def _listed(parties: Mapping[str, Columns]) -> str:
    names = [f"{name} ({party})" for party, columns in parties.items() for name in _names(columns)]
    more = f" and {len(names) - _LISTED} others" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
