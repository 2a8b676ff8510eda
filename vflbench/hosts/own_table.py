"""The table of a party that lives elsewhere, and which of its rows the label party may ask for."""

from typing import Any, Protocol

import torch
from torch import Tensor

from vflbench.data.table import Columns, Features
from vflbench.errors import UserError

_TIMES = 4
"""So often each row may be in one request: rows of several uses are asked for together."""


class OwnTable(Protocol):
    """The rows of one party, and nothing of another's."""

    @property
    def columns(self) -> Columns: ...

    def __len__(self) -> int: ...

    def lookup(self, ids: Tensor) -> Features: ...


def asked_rows(ids: Any, table: OwnTable, party: str) -> Tensor:
    """(n,) ids of rows that the party has. Raises UserError for anything else."""
    if not isinstance(ids, Tensor) or ids.dtype is not torch.int64 or ids.ndim != 1:
        raise UserError("the label party asks for rows that are none", key="engine")
    if len(ids) > _TIMES * len(table):
        raise UserError("the label party asks for the same rows many times at once", key="engine")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
        problem = f"the label party asks for rows that party {party} doesn't have: it has {len(table):,}"
        raise UserError(problem, key="engine")
    return ids
