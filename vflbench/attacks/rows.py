"""Rows that an attack meets again and again: tables by their ids, and where each was met last."""

from collections.abc import Sequence

import torch
from torch import Tensor


def with_rows(ids: Tensor, kept: dict[str, Tensor], new: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Tables with more rows, which are zeros as far as they are new. Where none is, the same tables.

    ids: (n,) sorted. kept: name -> (n, d), in their order. new: (m,), in any order. Returns the same of all ids.
    """
    if len(ids) and torch.equal(ids[torch.searchsorted(ids, new).clamp_max(len(ids) - 1)], new):
        return ids, kept
    both = torch.cat([ids, new]).unique()
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
