"""Shuffling: a participant cuts its rows into other batches in each epoch."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context, ParticipantDefense
from vflbench.options import options


@options
class Shuffle(ParticipantDefense):
    """A new order of the rows before each epoch, so that no batch of federated training comes twice. Falls to
    `hidden_subset_sum`, which rebuilds batches of 11 binary rows x 20 columns from one update each.

    An attack that needs d + 1 updates of one batch gets only one update of each batch: alpha and beta change from round to
    round. But sums over all rows aren't hidden.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, which names it.
    """

    def order(self, order: Tensor, context: Context) -> Tensor:
        """order: (n,) places of the participant's rows, on the device of the generator."""
        return order[torch.randperm(len(order), generator=context.rng, device=order.device)]
