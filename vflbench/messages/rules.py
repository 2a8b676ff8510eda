"""What every participant of federated training has agreed to, and knows of the columns; manifest.json has it too."""

from dataclasses import dataclass
from typing import Literal

from vflbench.options import Count, Positive


@dataclass(frozen=True)
class Schema:
    """What participants of federated training know of their columns, because they all have the same ones.

    binary: the columns that hold only 0 and 1, by number. intercept: whether column 0 is a column of ones. one_hot: first
    column and size of each categorical column; every row has exactly one 1 among these.
    """

    binary: tuple[int, ...]
    intercept: bool = False
    one_hot: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Rules:
    """What every participant of federated training has agreed to.

    parties: participants. rate: of a local step. reduction: of a batch's gradients, sum or mean. batches: local steps a
    round, one a batch. batch_size: rows of one such batch. schema: of their columns, or None if it is not known. whole:
    whether every coordinate of an update is sent, or None if it is not known.
    """

    parties: Count
    rate: Positive
    reduction: Literal["sum", "mean"]
    batches: Count
    batch_size: Count
    schema: Schema | None = None
    whole: bool | None = None
