"""Batch average: each row gets the mean gradient of its batch, or of a group of rows of it."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context, Form, LabelDefense
from vflbench.messages.codec import Codebook, Encoded
from vflbench.numerics.hashing import uniform
from vflbench.options import Rows, options


@options
class BatchAverage(LabelDefense):
    """The mean gradient of a group of rows instead of each gradient. Falls to `ungroup`, which needs no label, after as many
    epochs as a group has rows.

        g'_i = 1/|G| sum_(j in G) g_j,   G the group of row i

    group: least number of rows that share a mean, if the batch has as many rows; the whole batch if left out. The batch is
    divided into as many groups as possible. Their sizes differ by at most one row. Rows are assigned in the order of a hash
    of row id and epoch. So the groups are the same for all parties and layers, and different in each epoch. A mean crosses
    once for each group. The number of its group crosses for each row, with ceil(log2 groups) bits, at least one.

    It carries no guarantee. It hides which rows of a group are positive, but not how many. After as many epochs as a group
    has rows, the counts reveal every row. Under means of whole batches, attacks read no more than from embeddings, and the
    model is worse: docs/experiments/matrix.md has figures.

    Source: Pal et al., "Server-side local gradient averaging and learning rate acceleration for scalable split learning",
    2021 (arXiv 2112.05929), whose server sends one gradient averaged at the cut to all clients. Groups are ours.
    """

    gives = Form.WORDS

    group: Rows | None = None

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Encoded:
        """g: (n, d)."""
        groups = 1 if self.group is None else max(1, len(g) // self.group)
        order = uniform(context.ids, context.epoch).argsort(stable=True).to(g.device)
        member = order.new_empty(len(g)).scatter_(0, order, torch.arange(len(g), device=g.device) % groups)
        total = g.new_zeros(groups, g.shape[1], dtype=torch.float64).index_add_(0, member, g.double())
        means = (total / member.bincount(minlength=groups)[:, None]).to(g.dtype)
        return Encoded(g.shape[1], member[:, None], Codebook(means), announced=means.reshape(-1))
