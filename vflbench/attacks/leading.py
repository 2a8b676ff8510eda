"""What attacks keep of the batches of an epoch: the place of each row along the leading direction."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.numerics.eigen import top_eigenvectors

_MEMORY = 0.5  # weight of the last batch's directions beside this one's


def asked_about(ids: Tensor, wanted: Tensor) -> Tensor:
    """(n,) bool: which rows are wanted, each where it was met last; a row may be met several times in an epoch.

    ids: (n,) of the rows that were met. wanted: (m,) of those that a view asks about.
    """
    order = ids.sort(stable=True).indices
    is_last = torch.ones_like(ids, dtype=torch.bool)
    is_last[order[:-1]] = ids[order[1:]] != ids[order[:-1]]
    return is_last & torch.isin(ids, wanted.cpu())


class LeadingProjections:
    """Rows of the audited batches of an epoch, projected on the leading direction of their batch, layer by layer.

        z_i = <x_i, v> / rms_j |x_j|,   v: top eigenvector of S,   S <- X^T X / sum_j |x_j|^2 + S / 2

    S joins a batch with those before it, each with half the weight of the next: noise that is drawn afresh averages out,
    and a direction that turns as the network learns is followed. The sign of v is the one that turned less from the last
    batch, so that z keeps its meaning through the run; which sign it has is unknown. Memory: one number a row and layer, and
    S, (d, d).
    """

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._projections: dict[str, list[Tensor]] = {}
        self._scatters: dict[str, Tensor] = {}
        self._directions: dict[str, Tensor] = {}

    def add(self, ids: Tensor, layers: Mapping[str, Tensor]) -> None:
        """ids: (n,) of rows; layers: layer -> x (n, d), the same layers in each batch."""
        self._ids.append(ids.cpu())
        for layer, x in layers.items():
            self._projections.setdefault(layer, []).append(self._project(layer, x).cpu())

    def _project(self, layer: str, x: Tensor) -> Tensor:
        """(n,) float64; zeros where the layer has none."""
        scaled = x.double() / x.abs().max().double().clamp_min(torch.finfo(torch.float64).tiny)
        length = scaled.square().sum(dim=1).mean().sqrt()
        if not float(length) > 0:
            return scaled.sum(dim=1)
        scaled = scaled / length
        scatter = scaled.T @ scaled / len(scaled)
        if layer in self._scatters:
            scatter += _MEMORY * self._scatters[layer].to(scatter)
        direction = top_eigenvectors(scatter[None])[0]
        if layer in self._directions and float(direction @ self._directions[layer].to(direction)) < 0:
            direction = -direction
        self._scatters[layer], self._directions[layer] = scatter, direction
        return scaled @ direction

    def take(self) -> tuple[Tensor, dict[str, Tensor]]:
        """ids (m,) and layer -> z (m,) of all rows since the last call, which are then forgotten; directions are not."""
        ids = torch.cat(self._ids) if self._ids else torch.empty(0, dtype=torch.int64)
        projections = {layer: torch.cat(parts) for layer, parts in self._projections.items()}
        self._ids, self._projections = [], {}
        return ids, projections

    def state(self) -> dict[str, Any]:
        return {
            "ids": list(self._ids),
            "projections": {layer: list(parts) for layer, parts in self._projections.items()},
            "scatters": dict(self._scatters),
            "directions": dict(self._directions),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._ids = [ids.clone() for ids in state["ids"]]
        self._projections = {layer: [z.clone() for z in parts] for layer, parts in state["projections"].items()}
        self._scatters = {layer: scatter.clone() for layer, scatter in state["scatters"].items()}
        self._directions = {layer: direction.clone() for layer, direction in state["directions"].items()}
