"""Attribute inference: a column of another party from its embeddings, and from a few rows of which it is known."""

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.attacks.base import Attack, ColumnScores, FollowedRows
from vflbench.attacks.completion import completed
from vflbench.messages.facts import Embeddings, KnownColumn, Labels, PartyFeatures
from vflbench.messages.threat import Role, Threat, View
from vflbench.numerics.directions import column_vectors
from vflbench.options import Count, Range, Rows, ShareOrZero, options

_LAST, _MEAN, _FEATURES, _LABEL = "last ", "mean ", "features", "label"


@options
class Attribute(FollowedRows, Attack):
    """The label party learns a column of another party that is not the label, for rows whose embeddings it receives.

        s(x) = log share + a <w, x> + b <v, c> + d <u, y>,   w, v, u: averages of ridge regressions on the known rows

    x: the row's last embedding of every layer that the party sends, and the mean of those of all epochs, in which fresh
    noise averages out. c: the label party's own columns. y: the label. The regressions are those of `completion`, with
    another target. The same attack without x is run as well: it shows what labels and own columns reveal about the column.
    `attribute_gain` is the difference of the two: what messages reveal. A guess below a coin counts as a coin.

    column: its name; the first one of another party if left out. Categories are the values; those that are not among the
    `values` most frequent ones count as one. Of a number, the attack infers whether it is above `threshold`, in the unit [0,
    1] to which parties scale columns, or above the median. known: rows of which it knows the column. They are drawn once and
    never scored.
    rows: how many others it follows through the run. Scores are log odds (n,), or logits (n, K) of more than two values.
    They are graded by their AUC against the column, mean over its values, and never count as a leak of the label.

    Source: the attack of Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, at
    the other party and with another target; Song and Shmatikov, "Overlearning reveals sensitive attributes", ICLR 2020, for
    embeddings that reveal what they were not trained for. The heads are ours.
    """

    max_classes: ClassVar[float] = math.inf

    column: str | None = None
    threshold: ShareOrZero | None = None
    values: Annotated[Count, Range(2, 1000)] = 16
    known: Rows = 100
    rows: Rows = 4096

    def __post_init__(self) -> None:
        super().__post_init__()  # sums, with how many they are of in the last column, and what came last
        self.follows = self.rows
        self._met: list[tuple[Tensor, dict[str, Tensor]]] = []  # of this epoch: ids, and embeddings

    @property
    def threat(self) -> Threat:
        return Threat(Role.LABEL, {Embeddings, PartyFeatures, Labels, KnownColumn}, known_rows=self.known)

    def observe(self, view: View) -> None:
        layers, features = view[Embeddings].received[view[KnownColumn].party], view[PartyFeatures]
        held = {_LAST + layer: h.float().cpu() for layer, h in layers.items()}
        held[_FEATURES] = column_vectors(features.numeric, features.categorical).float().cpu()
        held[_LABEL] = view[Labels].classes.cpu()[:, None].float()
        self._met.append((view.ids.cpu(), held))

    def epoch(self, view: View) -> ColumnScores | None:
        self._end_epoch()
        fact = view[KnownColumn]
        is_met, here = (torch.isin(ids.cpu(), self._ids) for ids in (fact.ids, view.ids))
        values, ids = fact.values.cpu()[is_met], view.ids.cpu()[here]
        if len(values) < 2 or not len(ids):
            return None
        shares = ((torch.bincount(values, minlength=fact.count) + 0.5) / (len(values) + fact.count / 2)).tolist()
        known, rows = self._groups(fact.ids.cpu()[is_met]), self._groups(ids)
        scores, guess = (completed(known[first:], values, rows[first:], shares) for first in (0, 1))
        layer = next(name for name in self._tables if name.startswith(_LAST)).removeprefix(_LAST)
        return ColumnScores(view.ids[here.to(view.ids.device)], layer, scores, guess)

    def _groups(self, ids: Tensor) -> list[list[Tensor]]:
        """Embeddings, own columns and labels of rows that were met: each group has a regression of its own."""
        of = {name: kept[self.places(ids)] for name, kept in self._tables.items()}
        last = [h for name, h in of.items() if name.startswith(_LAST)]
        means = [sums[:, :-1] / sums[:, -1:] for name, sums in of.items() if name.startswith(_MEAN)]
        label = F.one_hot(of[_LABEL][:, 0].long(), int(self._tables[_LABEL].max()) + 1).float()
        return [[*last, *means], *([[of[_FEATURES]]] if of[_FEATURES].shape[1] else []), [label]]

    def _end_epoch(self) -> None:
        """Join what was met since the last call with what was met before."""
        if not self._met:
            return
        ids = torch.cat([ids for ids, _ in self._met])
        held = {name: torch.cat([of_round[name] for _, of_round in self._met]) for name in self._met[0][1]}
        sent = {_MEAN + name: F.pad(h, (0, 1), value=1.0) for name, h in held.items() if name.startswith(_LAST)}
        self.add(ids, {name: torch.zeros_like(values) for name, values in held.items()} | sent)
        for name, values in held.items():
            self._tables[name][self.places(ids)] = values
        self._met = []
