"""What a label party remembers of the embeddings that came for each row."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.messages.fact import Layers

_LEAST = 8  # rows met before


class EarlierEmbeddings:
    """The last embedding that came for each row, by party, from batches in their own order."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, Tensor]] = {}

    def out_of_place(self, ids: Tensor, received: Mapping[str, Layers]) -> bool:
        """Whether a batch is of its rows in another order: of most rows met before, the nearest of the earlier embeddings of
        this batch is another row's. A batch in its own order is remembered. ids: (n,). received: party -> layer -> (n, d).
        """
        keys, vectors = ids.tolist(), {party: _joined(layers) for party, layers in received.items()}
        strange = any(self._strange(party, keys, h) for party, h in vectors.items())
        if not strange:
            for party, h in vectors.items():
                self._rows.setdefault(party, {}).update(zip(keys, h.unbind(), strict=True))
        return strange

    def _strange(self, party: str, keys: list[int], h: Tensor) -> bool:
        known = self._rows.get(party, {})
        places = [place for place, key in enumerate(keys) if key in known]
        if len(places) < _LEAST:
            return False
        earlier = torch.stack([known[keys[place]] for place in places])
        nearest = torch.cdist(h[places].double(), earlier.double()).argmin(dim=1)
        own = nearest == torch.arange(len(places))
        return bool(own.double().mean() < 0.5)

    def state(self) -> dict[str, Any]:
        return {
            party: {"ids": torch.tensor(list(rows)), "embeddings": torch.stack(list(rows.values()))}
            for party, rows in self._rows.items()
            if rows
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._rows = {
            party: dict(zip(saved["ids"].tolist(), saved["embeddings"].clone().unbind(), strict=True))
            for party, saved in state.items()
        }


def _joined(layers: Layers) -> Tensor:
    return torch.cat([h.detach().float().cpu() for h in layers.values()], dim=1)
