"""The joint model as the label party knows it: every other party's bottom and its own networks."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns, OwnTop
from vflbench.messages.peer_facts import PeerModel, PeerModels
from vflbench.messages.threat import View

_AT_ONCE = 512  # rows at a time

Features = Mapping[str, tuple["Tensor", "Tensor"]]
"""Party -> its numeric (n, k) and categorical (n, c) columns."""


class JointModel:
    """Columns of all parties -> logits, in the networks of one round.

    view: of the label party, with PeerModels and OwnTop. dtype: of the copies; float64 where an answer has to be exact, else
    float32. Networks are in evaluation mode.
    """

    def __init__(self, view: View, dtype: torch.dtype | None = None):
        self.models: Mapping[str, PeerModel] = view[PeerModels].models
        self._top, self._dtype = view[OwnTop], dtype or torch.float32
        for network in (*(model.network for model in self.models.values()), self._top.networks.forward):
            if isinstance(network, nn.Module):
                network.to(self._dtype).eval()

    @property
    def sizes(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Party -> its number of numeric columns, and the number of ids of each categorical one."""
        return {party: (len(model.numeric), tuple(model.cardinalities)) for party, model in self.models.items()}

    def sends(self, party: str) -> tuple[str, ...]:
        """The layers that cross."""
        return tuple(self.models[party].network.sends)

    def logits(self, features: Features, own: OwnColumns) -> Tensor:
        """(n, outputs). own: the label party's own columns of the same rows."""
        return self.answer({p: self.models[p].network(x.to(self._dtype), ids) for p, (x, ids) in features.items()}, own)

    def answer(self, layers: Mapping[str, Mapping[str, Tensor]], own: OwnColumns) -> Tensor:
        """(n, outputs) of the layers of the other parties' networks, of which some are sent."""
        sent = {party: {name: of_party[name] for name in self.sends(party)} for party, of_party in layers.items()}
        return self._top.logits(sent, OwnColumns(own.numeric.to(self._dtype), own.categorical))


class FlatModel:
    """The joint model as a function of all unknown columns side by side.

    x: (n, k) numeric columns of all other parties, party after party; ids: (n, c) categorical ones. parties: their names.
    """

    def __init__(self, joint: JointModel):
        self.joint, self.parties = joint, tuple(joint.models)
        self.numeric = [joint.sizes[party][0] for party in self.parties]
        self.cardinalities = [size for party in self.parties for size in joint.sizes[party][1]]
        self._categorical = [len(joint.sizes[party][1]) for party in self.parties]

    @property
    def columns(self) -> int:
        """k: the number of numeric columns of all other parties."""
        return sum(self.numeric)

    def split(self, x: Tensor, ids: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Party -> its columns."""
        parts = zip(x.split(self.numeric, dim=1), ids.split(self._categorical, dim=1), strict=True)
        return dict(zip(self.parties, parts, strict=True))

    def joined(self, columns: Mapping[str, OwnColumns]) -> tuple[Tensor, Tensor]:
        """The columns of the other parties side by side: x (n, k), ids (n, c)."""
        numeric = torch.cat([columns[party].numeric for party in self.parties], dim=1)
        return numeric, torch.cat([columns[party].categorical for party in self.parties], dim=1)

    def __call__(self, x: Tensor, ids: Tensor, own: OwnColumns) -> Tensor:
        """(n, outputs)."""
        return self.joint.logits(self.split(x, ids), own)

    @torch.no_grad()
    def in_parts(self, x: Tensor, ids: Tensor, own: OwnColumns) -> Tensor:
        """The same, some rows at a time and without a gradient."""
        index = torch.arange(len(x), device=x.device)
        return torch.cat([self(x[at], ids[at], own.rows(at)) for at in index.split(_AT_ONCE)])


def one_hot(ids: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """(n, sum of cardinalities) float64 with a 1 for each id. ids: (n, c)."""
    blocks = [nn.functional.one_hot(ids[:, j].long(), size) for j, size in enumerate(cardinalities)]
    return torch.cat(blocks, dim=1).double() if blocks else torch.empty(len(ids), 0, dtype=torch.float64, device=ids.device)


def from_shares(model: FlatModel, x: Tensor, shares: Sequence[Tensor], own: OwnColumns) -> Tensor:
    """Logits (n, outputs) of numeric columns, and of categories that are mixed in these shares; differentiable in both.

    Raises UserError if a party's network doesn't read vectors of categories that can be mixed.
    """
    if not shares:
        return model(x, torch.empty(len(x), 0, dtype=torch.int32, device=x.device), own)
    embeddings, left = {}, list(shares)
    for (party, one), numeric in zip(model.joint.models.items(), x.split(model.numeric, dim=1), strict=True):
        mine, left = left[: len(one.cardinalities)], left[len(one.cardinalities) :]
        nothing = torch.empty(len(x), 0, dtype=torch.int32, device=x.device)
        if not mine:
            embeddings[party] = one.network(numeric, nothing)
            continue
        tables = one.network.tables()
        if len(tables) != len(mine):
            raise _unmixable(party, "reads no vectors of categories")
        mixed = torch.stack([share @ table for share, table in zip(mine, tables, strict=True)], dim=1)
        embeddings[party] = one.network.from_vectors(numeric, mixed)
        if set(model.joint.sends(party)) - set(embeddings[party]):
            raise _unmixable(party, "has a linear part of categories beside its vectors")
    return model.joint.answer(embeddings, own)


def _unmixable(party: str, why: str) -> UserError:
    problem = f"it mixes categories, and the network of party {party} {why}; use model=logistic, or wide_deep without wide"
    return UserError(problem, key="attack")
