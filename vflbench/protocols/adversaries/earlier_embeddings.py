"""What a label party remembers of the embeddings that came for each row."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vflbench.messages.fact import Layers

_LEAST = 8  # rows met before


class EarlierEmbeddings:
    """The last embedding that came for each row, from batches in their own order. tables: party -> (rows, d) float32, the
    row of an id at its place; NaN where none has come.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Tensor] = {}

    def out_of_place(self, ids: Tensor, received: Mapping[str, Layers]) -> bool:
        """Whether a batch is of its rows in another order: of most rows met before, the nearest of the earlier embeddings of
        this batch is another row's. A batch in its own order is remembered. ids: (n,). received: party -> layer -> (n, d).
        """
        ids, vectors = ids.cpu(), {party: _joined(layers) for party, layers in received.items()}
        strange = any(self._strange(party, ids, h) for party, h in vectors.items())
        if not strange:
            for party, h in vectors.items():
                self._with_room(party, int(ids.max()) + 1, h.shape[1])[ids] = h
        return strange

    def _with_room(self, party: str, rows: int, width: int) -> Tensor:
        """The party's table of at least so many rows."""
        table = self.tables.get(party, torch.empty(0, width))
        if len(table) < rows:
            table = torch.cat([table, torch.full((rows - len(table), width), torch.nan)])
        self.tables[party] = table
        return table

    def _strange(self, party: str, ids: Tensor, h: Tensor) -> bool:
        earlier = self._with_room(party, int(ids.max()) + 1, h.shape[1])[ids]
        known = ~earlier.isnan().any(dim=1)
        if int(known.sum()) < _LEAST:
            return False
        nearest = torch.cdist(h[known].double(), earlier[known].double()).argmin(dim=1)
        own = nearest == torch.arange(len(nearest))
        return bool(own.double().mean() < 0.5)


def _joined(layers: Layers) -> Tensor:
    return torch.cat([h.detach().float().cpu() for h in layers.values()], dim=1)
