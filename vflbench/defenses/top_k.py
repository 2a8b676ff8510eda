"""Top-k: only the largest coordinates of an embedding or a gradient cross."""

from dataclasses import replace

import torch

from vflbench.defenses.base import Compressor, Form
from vflbench.messages.codec import Encoded, kept, largest
from vflbench.metrics.privacy import Sent
from vflbench.options import Share, options


@options
class TopK(Compressor):
    """Send the largest coordinates of each row and set the others to 0. Falls to `model_inversion`, which rebuilds digits
    from an eighth of the coordinates. From 3 % of the coordinates of gradients, `direct` reads the classes, without a label.

        h'_j = h_j  if |h_j| is among the k largest of its row,  0 otherwise;   k = fraction d, rounded, at least 1

    fraction in (0, 1]; 1 sends the embedding as it is. A row takes k float32 and their places: k ceil(log2 d) bits, or d
    bits if these are fewer.

    message: `embeddings`, which a non-label party sends, or `gradients`, which the label party sends: then h is the gradient
    of a row, and the party learns from h'. What a gradient loses is not sent later (no error feedback).

    It carries no guarantee: what is kept crosses as it is, and the places depend on the row as well.

    Source: Castiglia et al., "Compressed-VFL: communication-efficient learning with vertically partitioned data", ICML 2022;
    Stich et al., "Sparsified SGD with memory", NeurIPS 2018; of gradients against label inference, Fu et al., "Label
    Inference Attacks Against Vertical Federated Learning", USENIX Security 2022, whose threshold is one for a whole tensor.
    """

    gives = Form.SPARSE

    fraction: Share = 0.25

    def compressed(self, values: Encoded, rng: torch.Generator) -> Encoded:
        """The largest coordinates and their places."""
        if (count := kept(self.fraction, values.width)) == values.width:
            return values
        places = largest(values.numbers, count)
        return replace(values, numbers=values.numbers.gather(1, places), places=places)

    def sent(self, name: str, before: Sent) -> Sent:
        count = kept(self.fraction, before.width)
        if count == before.width:
            return before
        reason = f"the places that {name} keeps depend on the embedding, and no noise hides them"
        return replace(before, width=count, reason=reason)
