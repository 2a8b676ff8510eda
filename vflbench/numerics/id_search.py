"""Which ids, one a column, make a function small: coordinate search over the ids that look best to first order."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_AT_ONCE = 1 << 16  # rows of one call


def nearest_ids(vectors: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """(n, c) the id of each column whose vector lies nearest. vectors: (n, c, dim); tables: (ids, dim) a column."""
    columns = [torch.cdist(vectors[:, j], table).argmin(dim=1) for j, table in enumerate(tables)]
    return torch.stack(columns, dim=1)


def improve_ids(
    ids: Tensor,
    tables: Sequence[Tensor],
    wished: Tensor,
    slope: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], Tensor],
    candidates: int,
) -> tuple[Tensor, Tensor]:
    """One pass over the columns: in each, every row takes the id that makes its score least, all others as they are.

    Of a column with more ids than `candidates` only these are scored: half of them those that a linear model of the score,
    <slope_ij, T_j[id]>, likes best, half those nearest to `wished`, and the one that the row has.

    ids: (n, c). tables: (ids, dim) a column. wished: (n, c, dim). slope: ids (n, c) -> (n, c, dim), the gradient of the
    score by what was read for them. score: (rows (m,), ids (m, c)) -> (m,). Returns new ids (n, c) and their scores (n,).
    """
    ids = ids.clone()
    rows = torch.arange(len(ids), device=ids.device)
    value = score(rows, ids)
    for j, table in enumerate(tables):
        tried = _choose(ids, j, table, wished[:, j], slope, candidates)  # (n, m)
        scores = torch.cat([_scores(r, ids, j, t, score) for r, t in _pieces(rows, tried)])
        least, place = scores.min(dim=1)
        better = least < value
        ids[better, j] = tried.gather(1, place[:, None])[better, 0]
        value = torch.minimum(value, least)
    return ids, value


def _choose(
    ids: Tensor, j: int, table: Tensor, wished: Tensor, slope: Callable[[Tensor], Tensor], candidates: int
) -> Tensor:
    if len(table) <= candidates:
        return torch.arange(len(table), device=ids.device).expand(len(ids), -1)
    half = max(1, candidates // 2)
    promising = (slope(ids)[:, j] @ table.T).topk(half, largest=False).indices
    near = torch.cdist(wished, table).topk(half, largest=False).indices
    return torch.cat([promising, near, ids[:, j : j + 1]], dim=1)


def _pieces(rows: Tensor, tried: Tensor) -> list[tuple[Tensor, Tensor]]:
    size = max(1, _AT_ONCE // tried.shape[1])
    return list(zip(rows.split(size), tried.split(size), strict=True))


def _scores(rows: Tensor, ids: Tensor, j: int, tried: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(n, m) score of each of these rows with each id that is tried in column j."""
    n, m = tried.shape
    changed = ids[rows][:, None].repeat(1, m, 1)
    changed[:, :, j] = tried
    return score(rows.repeat_interleave(m), changed.view(n * m, -1)).view(n, m)
