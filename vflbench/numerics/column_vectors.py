"""Columns of a table as vectors of a width that doesn't grow with the number of ids."""

import torch
from torch import Tensor

_BUCKETS = 8  # coordinates of a categorical column; ids that are equal modulo this share one


def column_vectors(numeric: Tensor, categorical: Tensor) -> Tensor:
    """(n, k + 8 c) numeric columns, and 8 coordinates for each categorical one, of which that of the id modulo 8 is 1.

    Rows with equal categories have the larger inner product, as with one-hot vectors. numeric: (n, k). categorical: (n, c)
    ids from 0.
    """
    n, c = categorical.shape
    one_hot = numeric.new_zeros(n, c * _BUCKETS)
    places = categorical.long() % _BUCKETS + torch.arange(c, device=one_hot.device) * _BUCKETS
    return torch.cat([numeric, one_hot.scatter_(1, places, 1.0)], dim=1)
