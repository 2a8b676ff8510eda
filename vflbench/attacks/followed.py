"""Rows that an attack follows through a run: tables by their ids, and messages at the cut, epoch by epoch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.attacks.spectral import rising_projection
from vflbench.messages.facts import ClassShares, Gradients, OwnModel
from vflbench.messages.threat import Threat, View
from vflbench.models.layer_names import WIDE


def with_rows(ids: Tensor, kept: dict[str, Tensor], new: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Tables with more rows, which are zeros as far as they are new. Where none is, the same tables.

    ids: (n,) sorted. kept: name -> (n, d), in their order. new: (m,), in any order. Returns the same of all ids.
    """
    both = torch.cat([ids, new]).unique()
    if len(both) == len(ids):
        return ids, kept
    places = torch.searchsorted(both, ids)
    return both, {name: x.new_zeros(len(both), x.shape[1]).index_copy_(0, places, x) for name, x in kept.items()}


def last_met(met: Sequence[Tensor], asked: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the rows asked about were met, bool, and the places of these in the batches side by side, where each was
    met last. met: ids (b,) of each batch, on the CPU. asked: (n,).
    """
    ids, order = torch.cat([asked[:0].cpu(), *met]).sort(stable=True)
    places = torch.searchsorted(ids, asked.cpu(), right=True) - 1
    is_met = torch.isin(asked.cpu(), ids)
    return is_met, order[places[is_met]]


class CutRows(Attack):
    """It follows rows through the run by the gradients about them at the cut, and joins those of an epoch.

    A subclass keeps a round by `keep`, and joins the rounds of an epoch in `join`, once it is over: also where it isn't
    asked after each epoch.
    """

    rows: int
    threat = Threat(knows={OwnModel, Gradients, ClassShares})

    def __post_init__(self) -> None:
        self.follows = self.rows
        self._met: list[list[Tensor]] = []  # of the epoch under way, by round
        self._layer, self._epoch = "", 0
        self._direction = torch.empty(0, dtype=torch.float64)  # of the last epoch, (d,)

    def keep(self, view: View, g: Tensor) -> list[Tensor]:
        """What is kept of a round, ids first. g: (n, d), on the CPU."""
        raise NotImplementedError

    def join(self, met: list[list[Tensor]]) -> None:
        """At the end of an epoch. met: what was kept of its rounds, at least one."""
        raise NotImplementedError

    def observe(self, view: View) -> None:
        layers = [layer for layer in view[Gradients].layers if layer != WIDE]
        if not layers or not len(view.ids):
            return
        if view.epoch != self._epoch:
            self.end_epoch()
            self._epoch = view.epoch
        self._layer = layers[-1]
        self._met.append(self.keep(view, view[Gradients].layers[self._layer].cpu()))

    def end_epoch(self) -> None:
        met, self._met = self._met, []
        if met:
            self.join(met)

    def turned(self, u: Tensor) -> Tensor:
        """u or -u (d,), whichever turned less from the direction of the last epoch; it is kept as the next one."""
        if len(self._direction) == len(u) and float(self._direction @ u) < 0:
            u = -u
        self._direction = u
        return u

    def embedded(self, view: View, ids: Tensor) -> tuple[Tensor, Tensor] | None:
        """Of the rows that the view asks about, those among `ids`, and their embeddings along the last direction, with a
        root mean square of 1, both (n,). None if there are none.
        """
        asked = view.ids.cpu()[torch.isin(view.ids.cpu(), ids)]
        layers = view[OwnModel].embed(asked.to(view.ids.device)) if len(asked) else {}
        if self._layer not in layers:
            return None
        t = rising_projection(layers[self._layer].cpu().double(), self._direction)
        return asked, t / t.square().mean().sqrt().clamp_min(1e-300)
