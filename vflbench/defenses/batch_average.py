"""Batch average: each row gets the mean gradient of its batch, or of a group of rows of it."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context, Form, LabelDefense
from vflbench.messages.codec import Codebook, Encoded
from vflbench.numerics.mixing import uniform
from vflbench.options import Rows, options


@options
class BatchAverage(LabelDefense):
    """The mean gradient of a group of rows in place of each of them; it falls to `ungroup`, which reads AUC 0.998 of groups
    of two after two epochs and 0.993 of groups of eight after eight, without a label.

        g'_i = 1/|G| sum_(j in G) g_j,   G the group of row i

    group: least number of rows that share a mean, of a batch that has as many; the whole batch if left out. The batch is
    divided into as many groups as it has room for, equally large up to one row, in the order of a hash of row id and epoch:
    the same for all parties and layers, and different in each epoch. A mean crosses once for each group, with the number of
    the group for each row, ceil(log2 groups) bits, at least one.

    Carries no guarantee. It hides which rows of a group are positive, and not how many; after as many epochs as a group has
    rows, the counts tell every row. Of whole batches, two epochs on Criteo tell no more than embeddings do, and the model is
    worse: test AUC 0.676, 0.719 with groups of eight, 0.739 without a defense.

    Source: Pal et al., "Server-side local gradient averaging and learning rate acceleration for scalable split learning",
    2021 (arXiv 2112.05929), whose server sends one gradient averaged at the cut to all clients. Groups are ours.
    """

    takes = frozenset({Form.REAL})
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
