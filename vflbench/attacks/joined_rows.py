"""Followed rows: means over the epochs of the gradients about them, and of their directions and lengths."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_RANKS = (0, 1, 2, 4, 8, 16, 32, 64)  # of the directions that are removed before a length is measured
_FLOOR = 1e-12  # of squared lengths, relative to their mean


class JoinedRows:
    """Means over epochs of what gradients about single rows are, on the CPU. A row may have been met less often than others.

    Memory: rows x (3 d + 8) numbers of 4 bytes for each layer of width d, 6.6 MB for 4,196 rows of 128.
    """

    def __init__(self) -> None:
        self._met: list[tuple[Tensor, Mapping[str, Tensor]]] = []  # of this epoch
        self._sums: dict[str, Tensor] = {}  # layer -> (n, 2 d + ranks + 1), in the order of `ids`; last: how many messages

    @cached_property
    def ids(self) -> Tensor:
        """Sorted."""
        return torch.empty(0, dtype=torch.int64)

    def add(self, ids: Tensor, layers: Mapping[str, Tensor]) -> None:
        """The messages of one round. ids: (b,). layers: layer -> (b, d)."""
        self._met.append((ids.cpu(), {layer: g.cpu().float() for layer, g in layers.items()}))

    def end_epoch(self) -> None:
        """Add what was met since the last call to the sums."""
        if not self._met:
            return
        ids, order = torch.cat([ids for ids, _ in self._met]).sort()
        both = torch.cat([self.ids, ids]).unique()
        for layer in self._met[0][1]:
            added = _parts(torch.cat([layers[layer] for _, layers in self._met])[order])
            total = added.new_zeros(len(both), added.shape[1])
            total.index_add_(0, torch.searchsorted(both, ids), added)
            if layer in self._sums:
                total.index_add_(0, torch.searchsorted(both, self.ids), self._sums[layer])
            self._sums[layer] = total
        self.ids, self._met = both, []

    def of(self, ids: Tensor) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Layer -> means of the messages (n, d), of unit vectors along them (n, d), and of their log lengths (n, r).

        ids: rows that were met.
        """
        places = torch.searchsorted(self.ids, ids)
        answer: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for layer, sums in self._sums.items():
            means = sums[places, :-1] / sums[places, -1:]
            d = (means.shape[1] - len(_RANKS)) // 2
            mean, units, lengths = means.split([d, d, len(_RANKS)], dim=1)
            answer[layer] = mean, units, lengths
        return answer

    def state(self) -> dict[str, Any]:
        return {"ids": self.ids, "sums": dict(self._sums), "met": [[ids, dict(layers)] for ids, layers in self._met]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.ids = state["ids"].clone()
        self._sums = {layer: sums.clone() for layer, sums in state["sums"].items()}
        self._met = [(ids.clone(), {layer: g.clone() for layer, g in layers.items()}) for ids, layers in state["met"]]


def _parts(g: Tensor) -> Tensor:
    """(n, 2 d + ranks + 1): g, unit vectors along it, logs of the squared lengths outside its first singular directions, 1.

    A row of zeros has no direction, and the shortest length. g: (n, d).
    """
    scaled = g.double() / g.abs().max().clamp_min(torch.finfo(g.dtype).tiny)
    _, directions = torch.linalg.eigh(scaled.T @ scaled)  # the largest last
    outside = (scaled @ directions).square().cumsum(dim=1)  # column j: outside all but the smallest j + 1
    columns = [max(g.shape[1] - 1 - rank, 0) for rank in _RANKS]
    lengths = (outside[:, columns] + _FLOOR * outside[:, -1].mean() + 1e-30).log()
    units = torch.nn.functional.normalize(scaled, eps=1e-30)
    return torch.cat([g, units.float(), lengths.float(), torch.ones(len(g), 1)], dim=1)
