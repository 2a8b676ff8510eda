"""Minimise a function of ids, one per column: coordinate search over the ids that look best to first order."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_ROWS_PER_CALL = 1 << 16  # of `score`


def nearest_ids(vectors: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """(n, c) ids whose vectors are nearest, row by row. vectors: (n, c, dim). tables: (ids, dim) per column."""
    columns = [torch.cdist(vectors[:, j], table).argmin(dim=1) for j, table in enumerate(tables)]
    return torch.stack(columns, dim=1)


def improve_ids(
    ids: Tensor,
    tables: Sequence[Tensor],
    targets: Tensor,
    slope: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], Tensor],
    candidates: int,
) -> tuple[Tensor, Tensor]:
    """One pass over the columns. In each column, every row takes the id with the smallest score, its other ids fixed.

    If a column has more ids than `candidates`, only some are scored: half of them have the smallest value of a linear model
    of the score, <slope_ij, T_j[id]>, half are nearest to `targets`, and one is the row's present id.

    ids: (n, c). tables: (ids, dim) per column. targets: (n, c, dim). slope: ids (n, c) -> (n, c, dim), the gradient of the
    score in the embedding vectors. score: (rows (m,), ids (m, c)) -> (m,). Returns new ids (n, c) and their scores (n,).
    """
    ids = ids.clone()
    rows = torch.arange(len(ids), device=ids.device)
    value = score(rows, ids)
    for j, table in enumerate(tables):
        tried = _candidates(ids, j, table, targets[:, j], slope, candidates)  # (n, m)
        scores = torch.cat([_scores(r, ids, j, t, score) for r, t in _parts(rows, tried)])
        least, place = scores.min(dim=1)
        better = least < value
        ids[better, j] = tried.gather(1, place[:, None])[better, 0]
        value = torch.minimum(value, least)
    return ids, value


def _candidates(ids: Tensor, j: int, table: Tensor, target: Tensor, slope: Callable[[Tensor], Tensor], count: int) -> Tensor:
    """(n, m) ids to try in column j."""
    if len(table) <= count:
        return torch.arange(len(table), device=ids.device).expand(len(ids), -1)
    half = max(1, count // 2)
    promising = (slope(ids)[:, j] @ table.T).topk(half, largest=False).indices
    near = torch.cdist(target, table).topk(half, largest=False).indices
    return torch.cat([promising, near, ids[:, j : j + 1]], dim=1)


def _parts(rows: Tensor, tried: Tensor) -> list[tuple[Tensor, Tensor]]:
    size = max(1, _ROWS_PER_CALL // tried.shape[1])
    return list(zip(rows.split(size), tried.split(size), strict=True))


def _scores(rows: Tensor, ids: Tensor, j: int, tried: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(n, m) scores of these rows with each of their candidate ids in column j."""
    n, m = tried.shape
    changed = ids[rows][:, None].repeat(1, m, 1)
    changed[:, :, j] = tried
    return score(rows.repeat_interleave(m), changed.view(n * m, -1)).view(n, m)
