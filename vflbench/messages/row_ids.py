"""Ids of rows, as users hold them."""

from typing import Any

import torch
from torch import Tensor

from vflbench.errors import UserError


def row_ids(ids: Any, rows: int | None = None, *, unique: bool = True) -> Tensor:
    """ids as (n,) int64 on the CPU, in memory of its own. Raises UserError for others, and where a row occurs twice."""
    try:
        made = torch.as_tensor(ids).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        problem = "row ids must be integers below 2^63; give text or larger ones a number each, the same in every batch"
        raise UserError(f"{problem} ({error})", key="ids", value=type(ids).__name__) from error
    if not made.numel():
        raise UserError("a batch has at least one row", key="ids", value="[]")
    if made.dtype.is_floating_point or made.dtype.is_complex or made.dtype is torch.bool:
        raise UserError("row ids must be integers", key="ids", value=made.dtype)
    if made.ndim == 2 and 1 in made.shape:
        made = made.flatten()
    if made.ndim != 1 or (rows is not None and len(made) != rows):
        problem = f"there must be one id a row, ({rows if rows is not None else 'n'},)"
        raise UserError(problem, key="ids", value=tuple(made.shape))
    if made.dtype is torch.uint64 and int(made.cpu().view(torch.int64).min()) < 0:
        raise UserError("row ids must be integers below 2^63", key="ids", value=made.dtype)
    made = made.to("cpu", torch.int64, copy=True)
    if not unique:
        return made
    ordered = made.sort().values
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        problem = f"a row may occur once in a batch; id {int(twice[0])} is there more than once ({len(twice)} such rows)"
        raise UserError(problem, key="ids", value=f"{len(made)} rows")
    return made
