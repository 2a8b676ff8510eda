"""What the run supplies to attackers beside the facts of a round: class shares, known rows, auxiliary rows, own columns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, Known, KnownColumn, OwnColumns, OwnModel
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts
from vflbench.numerics.column_vectors import column_vectors
from vflbench.run.hidden_columns import HiddenColumns
from vflbench.run.known_rows import KnownRows, RowNames
from vflbench.run.posts import Post

COLUMNS = "features"
"""The layer under which a party's own columns stand in for messages."""


class Columns(Protocol):
    """Columns of some rows: numeric (n, k), categorical (n, c)."""

    @property
    def numeric(self) -> Tensor: ...

    @property
    def categorical(self) -> Tensor: ...


class Supply:
    """The facts that an attack at its post may read.

    names: of rows. shares: of the classes. known: rows with known labels. auxiliary: rows that are not trained on.
    columns: (party, row ids (n,)) -> its columns, where they are at hand. hidden: columns that attackers know of known rows.
    """

    def __init__(
        self,
        names: RowNames,
        shares: ClassShares,
        known: KnownRows,
        auxiliary: Auxiliary,
        columns: Callable[[str, Tensor], Columns],
        hidden: HiddenColumns | None = None,
    ):
        self._hidden = hidden
        self._names, self._shares, self._known, self._columns = names, shares, known, columns
        self._auxiliary = auxiliary

    def to(self, post: Post, facts: Facts) -> dict[type[Fact], Fact]:
        """facts: of the round, or of the end of an epoch, of the party of the post."""
        held = self._columns_for_messages(post, facts) if post.on_columns else facts
        supplied: dict[type[Fact], Fact] = {ClassShares: self._shares, Auxiliary: self._auxiliary}
        if self._hidden is not None and post.name in self._hidden.of:
            supplied[KnownColumn] = self._hidden.fact(post, self._known, self._names)
        elif post.threat.known_rows:
            supplied[Known] = self._known.fact(post.threat.known_rows, self._names)
        return {**{kind: fact.named(self._names.ids) for kind, fact in held.items()}, **supplied}

    def _columns_for_messages(self, post: Post, facts: Facts) -> dict[type[Fact], Fact]:
        """The party's own columns in the form of each message that the attack reads."""
        read = post.attack.threat.knows
        held = {kind: fact for kind, fact in facts.items() if fact.message is None}
        columns = facts.get(OwnColumns)
        if isinstance(columns, OwnColumns):
            layers = {COLUMNS: as_vectors(columns)}
            held |= {kind: kind(layers) for kind in (Embeddings, Gradients) if kind in read}
        if OwnModel in read:
            held[OwnModel] = OwnModel(self._embed_columns(post.party))
        return held

    def _embed_columns(self, party: str) -> Callable[[Tensor], Mapping[str, Tensor]]:
        def embed(ids: Tensor) -> dict[str, Tensor]:
            columns = self._columns(party, ids)
            return {COLUMNS: as_vectors(OwnColumns(columns.numeric, columns.categorical))}

        return embed


def as_vectors(columns: OwnColumns) -> Tensor:
    """(n, k + 8 c), as `numerics.column_vectors` says."""
    return column_vectors(columns.numeric, columns.categorical)


def remembered(facts: Mapping[str, Facts], parts: Sequence[Tensor]) -> dict[str, Facts]:
    """The same facts, in which each network embeds the rows of a part at once, and only once, however many attacks ask for
    any of them. parts: ids (n,) each. What a row is embedded as then depends on its part alone, to the last bit.
    """
    made: dict[str, Facts] = {}
    for party, of_party in facts.items():
        model = of_party.get(OwnModel)
        asked: dict[type[Fact], Fact] = (
            {OwnModel: OwnModel(Remembered(model.embed, parts))} if isinstance(model, OwnModel) else {}
        )
        made[party] = {**of_party, **asked}
    return made


class Remembered:
    """embed: ids (n,) -> layer -> (n, d). parts: ids (n,) each, embedded at once when one of them is asked for."""

    def __init__(self, embed: Callable[[Tensor], Mapping[str, Tensor]], parts: Sequence[Tensor]):
        self._embed = embed
        self._ids = [part for part in parts if len(part)]
        self._sorted = [part.sort() for part in self._ids]
        self._layers: dict[int, Mapping[str, Tensor]] = {}

    def __call__(self, asked: Tensor) -> dict[str, Tensor]:
        left = torch.ones(len(asked), dtype=torch.bool, device=asked.device)
        pieces: list[tuple[Tensor, Mapping[str, Tensor]]] = []
        for number, (ids, order) in enumerate(self._sorted):
            place = torch.searchsorted(ids, asked.to(ids.device)).clamp_(max=len(ids) - 1)
            rows = ((ids[place] == asked.to(ids.device)).to(left.device) & left).nonzero()[:, 0]
            if len(rows):
                left[rows] = False
                if number not in self._layers:
                    self._layers[number] = self._embed(self._ids[number])
                at = order[place[rows.to(place.device)]]
                pieces.append((rows, {layer: h[at.to(h.device)] for layer, h in self._layers[number].items()}))
        others = left.nonzero()[:, 0]
        if len(others) or not pieces:
            pieces.append((others, self._embed(asked[others])))
        if len(pieces) == 1:
            return dict(pieces[0][1])
        return {
            layer: torch.empty(len(asked), h.shape[1], dtype=h.dtype, device=h.device).index_put_(
                (torch.cat([rows for rows, _ in pieces]).to(h.device),), torch.cat([of[layer] for _, of in pieces])
            )
            for layer, h in pieces[0][1].items()
        }
