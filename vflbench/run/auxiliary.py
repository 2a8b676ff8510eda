"""Auxiliary rows: rows that an attacker has whole, and that nobody trains on."""

import torch

from vflbench.data.rows import EncodedRows
from vflbench.messages.facts import OwnColumns
from vflbench.messages.peer_facts import Auxiliary


def auxiliary_rows(held_out: EncodedRows, count: int, seed: int) -> Auxiliary:
    """At most so many held-out rows, in a random order: the columns of every party, and the classes."""
    rows = held_out.sample(count)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count].to(rows.ids.device)
    drawn = rows.rows(order)
    columns = {party: OwnColumns(block.numeric, block.categorical) for party, block in drawn.features.items()}
    return Auxiliary(columns, drawn.labels)
