"""Partial overlap: parties that each hold a part of the rows, of which those are trained on that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.data.strata import shares
from vflbench.errors import UserError

if TYPE_CHECKING:
    import torch


def shared_rows(
    kept: np.ndarray, share: float, parties: Sequence[str], rng: torch.Generator
) -> tuple[np.ndarray, dict[str, Any], str]:
    """(n,) bool: the rows of `kept` that every non-label party holds; facts for the manifest, and a line.

    Each of the K parties holds round(share m) of the m rows of `kept`, drawn from a generator of its own, so about m share^K
    rows are shared. The label party holds all. kept: (n,) bool. Raises UserError where fewer than two rows are shared.
    """
    import torch

    shared, total = kept.copy(), int(np.count_nonzero(kept))
    held = max(1, round(share * total))
    for _ in parties:
        own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng)))
        for start, offsets, count in shares(kept, held):
            drawn = torch.randperm(len(offsets), generator=own)[count:].numpy()
            shared[start + offsets[drawn]] = False
    count = int(np.count_nonzero(shared))
    if count < 2:
        problem = f"of {total:,} rows, each of {len(parties)} holds {held:,}, and {count} are shared; training needs more"
        raise UserError(problem, key="dataset.overlap", value=share)
    facts = {"overlap": {"rows": total, "shared": count, "held": dict.fromkeys(parties, held)}}
    note = (
        f"overlap: of the label party's {total:,} rows each non-label party holds {held:,}; the {count:,} that all share "
        f"are used, and {total - count:,} are left out"
    )
    return shared, facts, note
