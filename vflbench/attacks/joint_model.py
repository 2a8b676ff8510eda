"""The joint model as the label party knows it: a function of the columns of all other parties, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.messages.facts import LocalTop, PartyFeatures, PeerModels
from vflbench.messages.threat import View

_AT_ONCE = 512  # rows at a time


@dataclass(frozen=True)
class Coding:
    """Columns as vectors: numeric ones, then one coordinate for each id of each categorical column.

    numeric: how many. cardinalities: of the categorical columns.
    """

    numeric: int
    cardinalities: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.numeric + sum(self.cardinalities)

    def split(self, vectors: Tensor) -> list[Tensor]:
        """Numeric columns (n, k), and (n, ids) of each categorical one."""
        return list(vectors.split([self.numeric, *self.cardinalities], dim=1))

    def vectors(self, columns: PartyFeatures) -> Tensor:
        """(n, width)."""
        one_hot = [
            F.one_hot(ids.long(), size).to(columns.numeric.dtype)
            for ids, size in zip(columns.categorical.T, self.cardinalities, strict=True)
        ]
        return torch.cat([columns.numeric, *one_hot], dim=1)

    def columns(self, vectors: Tensor) -> PartyFeatures:
        """The nearest columns: numbers are clipped to [0, 1], of each categorical column the largest coordinate counts."""
        numeric, *scores = self.split(vectors)
        ids = [part.argmax(dim=1) for part in scores]
        empty = torch.empty(len(vectors), 0, device=vectors.device)
        return PartyFeatures(numeric.clamp(0, 1), (torch.stack(ids, dim=1) if ids else empty).int())

    def decoded(self, outputs: Tensor) -> Tensor:
        """Vectors from a network's outputs: sigmoids of numeric columns, softmax of categorical ones."""
        numeric, *logits = self.split(outputs)
        return torch.cat([torch.sigmoid(numeric), *(part.softmax(dim=1) for part in logits)], dim=1)


class JointModel:
    """Columns of all other parties -> logits, in the networks of one round.

    view: of the label party, with PeerModels and LocalTop. dtype: of the copies; float64 where an answer has to be exact.
    Networks are in evaluation mode. coding: of the columns, party after party.
    """

    def __init__(self, view: View, dtype: torch.dtype = torch.float32):
        self.models, self._top, self._dtype = view[PeerModels].models, view[LocalTop], dtype
        for network in (*(model.network for model in self.models.values()), self._top.networks.forward):
            if isinstance(network, nn.Module):
                network.to(dtype).eval()
        self.numeric = [len(model.numeric) for model in self.models.values()]
        self._categorical = [len(model.cardinalities) for model in self.models.values()]
        self.coding = Coding(sum(self.numeric), tuple(n for model in self.models.values() for n in model.cardinalities))

    def split(self, columns: PartyFeatures) -> dict[str, PartyFeatures]:
        """Party -> its columns."""
        parts = zip(columns.numeric.split(self.numeric, 1), columns.categorical.split(self._categorical, 1), strict=True)
        return {party: PartyFeatures(*part) for party, part in zip(self.models, parts, strict=True)}

    def joined(self, columns: Mapping[str, PartyFeatures]) -> PartyFeatures:
        """The columns of the other parties side by side."""
        parts = [(columns[party].numeric, columns[party].categorical) for party in self.models]
        return PartyFeatures(*(torch.cat(blocks, dim=1) for blocks in zip(*parts, strict=True)))

    def __call__(self, columns: PartyFeatures, local: PartyFeatures) -> Tensor:
        """(n, outputs). local: the label party's own columns of the same rows."""
        split = self.split(columns).items()
        return self._answer({p: self.models[p].network(x.numeric.to(self._dtype), x.categorical) for p, x in split}, local)

    @torch.no_grad()
    def in_parts(self, columns: PartyFeatures, local: PartyFeatures) -> Tensor:
        """The same, some rows at a time and without a gradient."""
        index = torch.arange(len(columns.numeric), device=columns.numeric.device)
        return torch.cat([self(columns.rows(at), local.rows(at)) for at in index.split(_AT_ONCE)])

    def of_vectors(self, vectors: Tensor, local: PartyFeatures) -> Tensor:
        """Logits (n, outputs) of vectors (n, width) in which categories are mixed in these shares; differentiable in them.

        Raises UserError if a party's network doesn't read vectors of categories that can be mixed.
        """
        numeric, *shares = self.coding.split(vectors)
        nothing = torch.empty(len(vectors), 0, dtype=torch.int32, device=vectors.device)
        layers = {}
        for (party, model), x in zip(self.models.items(), numeric.split(self.numeric, dim=1), strict=True):
            mine, shares = shares[: len(model.cardinalities)], shares[len(model.cardinalities) :]
            if not mine:
                layers[party] = model.network(x, nothing)
                continue
            tables = model.network.tables()
            if len(tables) != len(mine):
                raise _unmixable(party, "reads no vectors of categories")
            mixed = torch.stack([share @ table for share, table in zip(mine, tables, strict=True)], dim=1)
            layers[party] = model.network.from_vectors(x, mixed)
            if set(model.network.sends) - set(layers[party]):
                raise _unmixable(party, "has a linear part of categories beside its vectors")
        return self._answer(layers, local)

    def _answer(self, layers: Mapping[str, Mapping[str, Tensor]], local: PartyFeatures) -> Tensor:
        """layers: of the other parties' networks, of which some are sent."""
        sent = {p: {name: of_party[name] for name in self.models[p].network.sends} for p, of_party in layers.items()}
        return self._top.logits(sent, PartyFeatures(local.numeric.to(self._dtype), local.categorical))


def _unmixable(party: str, why: str) -> UserError:
    problem = f"it mixes categories, and the network of party {party} {why}; use model=logistic, or wide_deep without wide"
    return UserError(problem, key="attack")
