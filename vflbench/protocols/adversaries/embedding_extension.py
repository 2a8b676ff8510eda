"""Embedding extension: values made by hand fill a part of the embedding, and hide from a defense what the rest says."""

import torch
from torch import Tensor

from vflbench.defenses.base import Context
from vflbench.messages.codec import Encoded
from vflbench.options import Fraction, Ratio, options
from vflbench.protocols.adversaries import Adversary


@options
class EmbeddingExtension(Adversary):
    """Send large values that say nothing about the label in the last columns of the embedding, so that a penalty on the
    correlation of embeddings and labels is small whatever the other columns say.

        h'_ij = h_ij for j <= d - m,   h'_ij = scale s_i u_j otherwise

    s_i is -1 or 1, drawn again for each row of each batch; u_j alternates between -1 and 1; `scale` is in units of the root
    mean square of the batch's embeddings. Distances between rows, on which dCor rests, then follow s, and the gradient of
    the penalty at the other columns shrinks with the scale. The last columns of the gradient are ignored, because no part of
    the network computed those values. Embeddings for later predictions are honest. So the top model loses what these columns
    would have said.

    share: share of the columns that get made-up values, at least one and not all. scale: size of these values.

    Source: He et al., "LabObf: A Label Protection Scheme for Vertical Federated Learning Through Label Obfuscation", 2024,
    arXiv 2405.17042, which names the attack. These values are ours, and so is that the embedding keeps its width.
    """

    share: Fraction = 0.25
    scale: Ratio = 10.0

    def embedding(self, layer: str, h: Tensor | Encoded, context: Context) -> Tensor | Encoded:
        values = h.values if isinstance(h, Encoded) else h
        made = self._columns(values.shape[1])
        if not made:
            return h
        signs = 2.0 * torch.randint(2, (len(values), 1), generator=context.rng, device=values.device).to(values) - 1
        alternating = 1 - 2 * (torch.arange(made, device=values.device) % 2).to(values)
        size = values.double().square().mean().sqrt().to(values)
        sent = values.clone()
        sent[:, -made:] = self.scale * size * signs * alternating
        return sent

    def gradient(self, layer: str, g: Tensor, h: Tensor, context: Context) -> Tensor:
        made = self._columns(g.shape[1])
        if not made:
            return g
        learned = g.clone()
        learned[:, -made:] = 0
        return learned

    def _columns(self, width: int) -> int:
        """How many of the last columns are made by hand; none of a single column."""
        return min(max(1, round(self.share * width)), width - 1)
