"""What the simulator attack keeps of received embeddings, and how they are aligned with auxiliary rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vflbench.messages.peer_facts import Architecture
from vflbench.numerics.pixels import area_of
from vflbench.numerics.unpaired import Grid, by_matching, by_moments

_ROUNDS_OF_MATCHING = 9
_ROUNDS_OF_MOMENTS = 3
_ROWS_OF_A_CLASS = 8  # on average, from which on rows are aligned

ByParty = Mapping[str, "Tensor"]


class Memory:
    """The embeddings received last, and the classes of their rows. rows: so many, in whole batches."""

    def __init__(self, rows: int):
        self.rows = rows
        self._batches: list[tuple[dict[str, Tensor], Tensor]] = []

    def add(self, received: ByParty, classes: Tensor) -> None:
        self._batches.append((dict(received), classes))
        while len(self._batches) > 1 and len(self) - len(self._batches[0][1]) >= self.rows:
            self._batches.pop(0)

    def __len__(self) -> int:
        return sum(len(classes) for _, classes in self._batches)

    @property
    def classes(self) -> Tensor:
        """(n,), the oldest first."""
        return torch.cat([classes for _, classes in self._batches])

    def of(self, party: str) -> Tensor:
        """(n, d) the embeddings of a party."""
        return torch.cat([received[party] for received, _ in self._batches])

    def state(self) -> list[Any]:
        return [[dict(received), classes] for received, classes in self._batches]

    def restore(self, state: Sequence[Any]) -> None:
        self._batches = [
            ({party: h.clone() for party, h in received.items()}, classes.clone()) for received, classes in state
        ]


def cells(architecture: Architecture, network: nn.Module, width: int) -> Grid | None:
    """The cells of an embedding of this width, if a convolution over the pixels of a rectangle puts it out; else None."""
    area = None if architecture.cardinalities else area_of(architecture.numeric)
    if area is None:
        return None
    shapes: list[torch.Size | None] = []

    def note(module: nn.Module, _: Any, output: Tensor) -> None:
        shapes.append(output.shape[1:] if isinstance(module, nn.Conv2d) else None)

    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    device = next(network.parameters()).device
    with torch.no_grad():
        network(
            torch.zeros(1, len(architecture.numeric), device=device), torch.zeros(1, 0, dtype=torch.int32, device=device)
        )
    for hook in hooks:
        hook.remove()
    if not shapes or shapes[-1] is None or len(shapes[-1]) != 3 or shapes[-1].numel() != width:
        return None
    channels, height, across = shapes[-1]
    if height > area.height or across > area.width:
        return None
    grid = Grid(channels, height, across, area.channels, area.height, area.width)
    return grid if grid.fits else None


def aligned(
    memory: Memory,
    rows: ByParty,
    classes_of_rows: Tensor,
    grids: Mapping[str, Grid],
    starts: Sequence[ByParty],
    rng: torch.Generator,
) -> Callable[[ByParty], dict[str, Tensor]] | None:
    """A map from embeddings to columns, fitted to embeddings and auxiliary rows that are not paired; None at too few.

    Where every party's embedding has cells, by moments of the newer half (`numerics.unpaired.by_moments`), else by matching
    all parties together (`numerics.unpaired.by_matching`). rows: party -> (m, width) auxiliary rows. starts: first guesses
    of the columns of the rows in memory.
    """
    classes, parties = memory.classes, list(rows)
    if len(memory) < _ROWS_OF_A_CLASS * len(classes_of_rows.unique()):
        return None
    h = {party: memory.of(party) for party in parties}
    if grids.keys() == rows.keys():
        newer = slice(-max(1, min(len(classes), memory.rows // 2)), None)
        maps = by_moments(
            [h[party][newer] for party in parties],
            [grids[party] for party in parties],
            classes[newer],
            [rows[party] for party in parties],
            classes_of_rows,
            rng,
            rounds=_ROUNDS_OF_MOMENTS,
        )
        return lambda received: {party: fit(received[party]) for party, fit in zip(parties, maps, strict=True)}
    widths = [rows[party].shape[1] for party in parties]
    fit = by_matching(
        together(h, parties),
        classes,
        together(rows, parties),
        classes_of_rows,
        rng,
        rounds=_ROUNDS_OF_MATCHING,
        starts=[together(start, parties) for start in starts],
    )
    return lambda received: dict(zip(parties, fit(together(received, parties)).split(widths, dim=1), strict=True))


def together(parts: ByParty, parties: Sequence[str]) -> Tensor:
    """All parties side by side, (n, sum of widths)."""
    return torch.cat([parts[party] for party in parties], dim=1)


def class_means(rows: ByParty, classes_of_rows: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """The mean auxiliary row of each row's class; of a class that no auxiliary row has, the mean of all."""
    means: dict[str, Tensor] = {}
    for party, vectors in rows.items():
        by_class = {
            k: vectors[classes_of_rows == k].mean(dim=0) if bool((classes_of_rows == k).any()) else vectors.mean(dim=0)
            for k in classes.unique().tolist()
        }
        means[party] = torch.stack([by_class[k] for k in classes.tolist()])
    return means
